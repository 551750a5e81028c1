"""The directory a training run leaves, and what it says about itself."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import logging
import os
import platform
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import psutil

from genelab.config import atomic_write_text, dump_json, expect, read_json
from genelab.config.files import inside, remove_leftovers, temporary_name
from genelab.errors import GenelabError, UsageError
from genelab.rl.provenance import command_line, genelab_revision, git_revision, hardware, versions

Status = Literal["running", "completed", "interrupted", "failed"]
LOCK_FILE = ".lock"
"""Names the process that owns a run directory, while it does."""
_ATTEMPTS = 6
_LOG = logging.getLogger("genelab")

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
    """Ownership of a directory by one process: an advisory lock of the system, which ends with the process.

    On a file system without such locks (some NFS and FUSE mounts) the lock file itself is the lock. It stays when its
    process is killed, so it says which process that was, and since when it runs: a process id is used again.
    """

    def __init__(self, file: int, path: Path) -> None:
        self._file = file
        self._path = path

    @classmethod
    def take(cls, directory: Path) -> Lock:
        """Own the directory.

        Raises:
            UsageError: Another process does.
        """
        path = directory / LOCK_FILE
        for _ in range(_ATTEMPTS):
            file, created = _open(path)
            locked = _locks(file, fcntl.LOCK_EX)
            if created if locked is None else locked and _is_still(path, file):  # it may have been taken away meanwhile
                if locked is None:
                    _LOG.warning("the file system of %s has no locks: %s says who uses it", directory, path)
                os.ftruncate(file, 0)
                os.write(file, f"{os.getpid()} {platform.node()} {_started(os.getpid())}\n".encode())
                return cls(file, path)
            owner = _owner(file)
            if locked is None and not _is_alive(owner):
                _take_away(path, file)
            os.close(file)
            time.sleep(0.05)  # another process may only be looking whether it is taken
        who = f"process {owner[0]} on {owner[1]}" if owner else "another process"
        how = f"; if it has ended, delete {path}" if locked is None else ""
        raise UsageError(f"{directory} is in use by {who}: wait for its end, or choose another directory{how}")

    @classmethod
    def is_taken(cls, directory: Path) -> bool:
        """Return whether a process owns the directory now."""
        try:
            file = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # no pipe is waited for
        except OSError:
            return False
        try:
            locked = _locks(file, fcntl.LOCK_SH)
            return _is_alive(_owner(file)) if locked is None else not locked
        finally:
            os.close(file)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        if _is_still(self._path, self._file):
            self._path.unlink(missing_ok=True)
        os.close(self._file)


def _open(path: Path) -> tuple[int, bool]:
    """Return the open lock file, and whether this process has made it."""
    flags = os.O_RDWR | os.O_NOFOLLOW  # what a link points to is not ours
    while True:
        with contextlib.suppress(FileExistsError):
            return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644), True
        with contextlib.suppress(FileNotFoundError):  # its owner has ended meanwhile
            return os.open(path, flags), False


def _locks(file: int, kind: int) -> bool | None:
    """Return whether the file could be locked; None on a file system without locks."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _owner(file: int) -> tuple[int, str, str] | None:
    """Return process, machine and start of the process in a lock file; None if it has not been written yet."""
    try:
        words = os.pread(file, 200, 0).decode(errors="replace").split()
    except OSError:  # a pipe
        return None
    if len(words) < 2 or not re.fullmatch(r"[0-9]{1,9}", words[0]):
        return None
    return int(words[0]), words[1], words[2] if len(words) > 2 else ""


def _is_alive(owner: tuple[int, str, str] | None) -> bool:
    """Return whether the owner may still run: of another machine's process nothing is known."""
    if owner is None or owner[1] != platform.node():
        return True
    now = _started(owner[0])
    return now is not None and (not owner[2] or now == owner[2])


def _started(pid: int) -> str | None:
    """Return when a process of this machine started, in ticks since the machine did; None if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return "?" if psutil.pid_exists(pid) else None


def _take_away(path: Path, file: int) -> None:
    """Remove the lock file of a process that was killed, but not that of a new owner."""
    aside = temporary_name(path)
    with contextlib.suppress(FileNotFoundError):
        path.rename(aside)
        if _is_still(aside, file):
            aside.unlink()
        else:
            aside.rename(path)


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
        self._began: float | None = None
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
        self._began = time.monotonic()
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
        """Return how long the run has taken, s, without the pauses before it was resumed."""
        if self._began is not None:
            return self._seconds_before + time.monotonic() - self._began  # the time of day may be set meanwhile
        started = datetime.datetime.fromisoformat(self.record["started_at"])  # by a process that is gone
        return max(0.0, (datetime.datetime.now(datetime.UTC) - started).total_seconds())

    def revert(self) -> None:
        """Say again what was said before this start: the run cannot go on, and is as it was."""
        if self._earlier:
            self.record = self._earlier
            self._write()

    def finish(self, status: Status, **facts: Any) -> None:
        """Say how the run ended."""
        ended = max(_now(), self.record["started_at"])  # the time of day may have been set back
        self.record.update(status=status, ended_at=ended, wall_seconds=round(self.elapsed(), 3), **facts)
        self._write()

    def _write(self) -> None:
        try:
            text = json.dumps(self.record, indent=2) + "\n"
            atomic_write_text(self.path / "run.json", text, parents=False)  # a directory that was deleted stays so
        except OSError as error:
            raise GenelabError(f"cannot write {self.path / 'run.json'}: {error.strerror}") from error


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
