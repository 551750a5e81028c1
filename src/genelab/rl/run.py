"""The directory a training run leaves, and what it says about itself."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from genelab.config import atomic_write_text, dump_json, expect, read_json
from genelab.config.files import inside, remove_leftovers, temporary_name
from genelab.errors import GenelabError, UsageError
from genelab.rl.provenance import command_line, genelab_revision, git_revision, hardware, versions

Status = Literal["running", "completed", "interrupted", "failed"]
LOCK_FILE = ".lock"
"""Names the process that owns a run directory, while it does."""
_ATTEMPTS = 6

RECORD: dict[str, Any] = {
    "task": str,
    "backend": str,
    "status": str,
    "started_at": str,
    "seed": int,
    "num_envs": int,
    "engine": str,
    "device": str,
    "experiment": str | None,
    "ranks": int | None,
    "budget": int | None,
    "unit": str | None,
    "logger": str | None,
    "overrides": list[str] | None,
    "command": str | None,
    "wall_seconds": float | None,
    "env_steps": int | None,
    "steps_per_second": float | None,
    "versions": dict[str, str | None] | None,
    "hardware": dict[str, str | int | list[str]] | None,
    "git": dict[str, str | bool] | None,
    "genelab_git": dict[str, str | bool] | None,
}
"""What `run.json` says, as far as anything reads it."""


class Lock:
    """That one process writes to a directory: an advisory lock of the system, which ends with the process."""

    def __init__(self, file: int, path: Path) -> None:
        self._file = file
        self._path = path

    @classmethod
    def take(cls, directory: Path) -> Lock:
        """Own the directory, or say who does."""
        path = directory / LOCK_FILE
        for attempt in range(_ATTEMPTS):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)  # what a link points to is not ours
            if _locks(file, fcntl.LOCK_EX):
                if _is_still(path, file):  # its last owner may have taken the file away meanwhile
                    os.ftruncate(file, 0)
                    os.write(file, f"{os.getpid()} {platform.node()}\n".encode())
                    return cls(file, path)
            elif attempt == _ATTEMPTS - 1:
                owner = os.read(file, 200).decode(errors="replace").split()
                os.close(file)
                who = f"process {owner[0]} on {owner[1]}" if len(owner) == 2 else "another process"
                raise UsageError(f"{directory} is in use by {who}: wait for its end, or choose another directory")
            os.close(file)
            time.sleep(0.05)  # somebody may only be looking whether it is taken
        raise UsageError(f"{directory} is in use by another process")

    @classmethod
    def is_taken(cls, directory: Path) -> bool:
        """Whether a process owns the directory now."""
        try:
            file = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # no pipe is waited for
        except OSError:
            return False
        try:
            return not _locks(file, fcntl.LOCK_SH)
        finally:
            os.close(file)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        if _is_still(self._path, self._file):
            self._path.unlink(missing_ok=True)
        os.close(self._file)


def _locks(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks: nobody can be told from nobody
    return True


def _is_still(path: Path, file: int) -> bool:
    """Whether the open file is the one of that name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except OSError:
        return False


class RunDirectory:
    """Writes `params/*.json` and keeps `run.json` true."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record: dict[str, Any] = {}
        self._earlier: dict[str, Any] = {}
        self._seconds_before = 0.0
        self._before: set[Path] | None = None
        """What was there before this run was created; None: it was not created by this."""

    @classmethod
    def default_path(cls, backend: str, task: str) -> Path:
        """Where a run goes when nobody says: `logs/<backend>/<task>/<time>`, with a number if that is taken."""
        stamp = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        base = Path("logs") / backend / task / stamp
        path, number = base, 1
        while path.exists():
            number += 1
            path = base.with_name(f"{stamp}_{number}")
        return path

    def check_free(self) -> None:
        """Refuse a directory that has a run already."""
        if (self.path / "run.json").exists():
            raise UsageError(
                f"`log_dir`: {self.path} already holds a run; choose another, or `resume_task('{self.path}')`"
            )

    @contextlib.contextmanager
    def owned(self) -> Iterator[None]:
        """Let no other process write here while the block runs, and clean up after one that was killed."""
        try:
            lock = Lock.take(self.path)
        except OSError as error:
            raise UsageError(f"cannot write to {self.path}: {error.strerror}") from error
        with lock:
            for home in self._homes():
                remove_leftovers(home)
            yield

    def check_links(self) -> None:
        """Refuse a run whose files or folders are links out of it.

        A run from elsewhere would overwrite what they point to when it is resumed, and show it when it is reported.
        """
        homes = [home for home in self._homes() if home.is_symlink() and home != self.path]
        files = [path for home in self._homes() for path in home.glob("*") if not path.is_dir()]
        for path in (*homes, *files):
            if path.is_symlink() and not inside(path, self.path):
                raise UsageError(f"{path} is a link out of the run: put a copy of what it points to in its place")

    def _homes(self) -> tuple[Path, ...]:
        """Where a run's files are."""
        return self.path, self.path / "params", self.path / "videos"

    def create(self) -> None:
        """Make the directory or use the one that is there, and make sure that it can be written to."""
        self._make(exist_ok=True)

    def create_numbered(self) -> None:
        """The same for the path that nobody asked for: if another run has taken it, make one with a number."""
        base, number = self.path, 1
        while not self._make(exist_ok=False):
            number += 1
            self.path = base.with_name(f"{base.name}_{number}")

    def _make(self, *, exist_ok: bool) -> bool:
        """Whether the directory was made, or may be used as it is."""
        self._before = {path for path in (*self._own(), *self.path.parents) if path.exists()}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self.path.mkdir(exist_ok=exist_ok)
            except FileExistsError:
                if exist_ok:
                    raise
                return False
            (self.path / "params").mkdir(exist_ok=True)
            probe = temporary_name(self.path / "probe")
            with open(probe, "xb") as file:
                file.write(b"\0" * 4096)
            probe.unlink()
            return True
        except OSError as error:
            raise UsageError(f"`log_dir`: cannot write to {self.path}: {error.strerror}") from error

    def discard(self) -> None:
        """Take away what was created: nothing was learned, and the directory is free for the next try."""
        if self._before is None:
            return
        for path in (*self._own(), *self.path.parents):
            if path.exists() and path not in self._before:
                with contextlib.suppress(OSError):  # a directory that has something else in it stays
                    path.rmdir() if path.is_dir() else path.unlink()

    def _own(self) -> list[Path]:
        """What a run has before it learns; a directory after what is in it."""
        params = self.path / "params"
        files = [params / "env.json", params / "agent.json", self.path / "run.json", self.path / LOCK_FILE]
        files += self.path.glob("events.out.*")
        return [*files, params, self.path]

    def read(self) -> dict[str, Any]:
        """What the run says about itself."""
        try:
            self.record = expect(read_json(self.path / "run.json"), RECORD, self.path / "run.json")
        except UsageError as error:
            reason = error if (self.path / "run.json").is_file() else "it has no readable run.json"
            raise UsageError(f"{self.path} is not a run directory: {reason}") from error
        try:
            datetime.datetime.fromisoformat(self.record["started_at"])
        except ValueError as error:
            raise UsageError(f"{self.path / 'run.json'}: started_at: {error}") from error
        if self.record["status"] == "running" and not Lock.is_taken(self.path):
            self.record["status"] = "interrupted"  # it was killed, and could not say so
        return self.record

    def write_params(self, env: Any, agent: Any) -> None:
        """The configs as they are used."""
        dump_json(env, self.path / "params" / "env.json")
        dump_json(agent, self.path / "params" / "agent.json")

    def start(self, **facts: Any) -> None:
        """Say what the run is."""
        self._earlier = self.record
        self.record = {
            **facts,
            "pid": os.getpid(),
            "host": platform.node(),
            "command": facts.get("command") or command_line(),
            "status": "running",
            "started_at": _now(),
            "ended_at": None,
            "wall_seconds": None,
            "versions": versions(),
            "hardware": hardware(),
            "git": git_revision(),
            "genelab_git": genelab_revision(),
        }
        self._write()

    def go_on(self, checkpoint: str, seconds: float, **facts: Any) -> None:
        """Say that the run goes on from its checkpoint of so many seconds; its command stays the first one."""
        told = {"resumed_from": checkpoint, "resumed_with": command_line()}
        self._seconds_before = seconds
        self.start(**facts, **told, command=self.record.get("command"))

    def elapsed(self) -> float:
        """How long the run has taken, s, without the pauses before it was resumed."""
        started = datetime.datetime.fromisoformat(self.record["started_at"])
        return self._seconds_before + (datetime.datetime.now(datetime.UTC) - started).total_seconds()

    def revert(self) -> None:
        """Say again what was said before this start: the run cannot go on, and is as it was."""
        if self._earlier:
            self.record = self._earlier
            self._write()

    def finish(self, status: Status, **facts: Any) -> None:
        """Say how the run ended."""
        self.record.update(status=status, ended_at=_now(), wall_seconds=round(self.elapsed(), 3), **facts)
        self._write()

    def _write(self) -> None:
        try:
            text = json.dumps(self.record, indent=2) + "\n"
            atomic_write_text(self.path / "run.json", text, parents=False)  # a directory that was deleted stays so
        except OSError as error:
            raise GenelabError(f"cannot write {self.path / 'run.json'}: {error.strerror}") from error


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
