"""The directory a training run leaves, and what it says about itself."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

from genelab.config import atomic_write_text, dump_json
from genelab.errors import GenelabError, UsageError

Status = Literal["running", "completed", "interrupted", "failed"]
_PACKAGES = (
    "genelab",
    "torch",
    "numpy",
    "mujoco",
    "genesis-world",
    "rsl-rl-lib",
    "skrl",
    "stable-baselines3",
    "rl-games",
)


class RunDirectory:
    """Writes `params/*.json` and keeps `run.json` true."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record: dict[str, Any] = {}
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

    def create(self) -> None:
        """Make the directory, and make sure that it can be written to."""
        self._before = {path for path in (*self._own(), *self.path.parents) if path.exists()}
        try:
            (self.path / "params").mkdir(parents=True, exist_ok=True)
            probe = self.path / ".writable"
            probe.write_bytes(b"\0" * 4096)
            probe.unlink()
        except OSError as error:
            raise UsageError(f"--log-dir: cannot write to {self.path}: {error.strerror}") from error

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
        files = [params / "env.json", params / "agent.json", self.path / "run.json", *self.path.glob("events.out.*")]
        return [*files, params, self.path]

    def read(self) -> dict[str, Any]:
        """What the run says about itself."""
        try:
            self.record = json.loads((self.path / "run.json").read_text())
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.path} is not a run directory: it has no readable run.json") from error
        return self.record

    def write_params(self, env: Any, agent: Any) -> None:
        """The configs as they are used."""
        dump_json(env, self.path / "params" / "env.json")
        dump_json(agent, self.path / "params" / "agent.json")

    def start(self, **facts: Any) -> None:
        """Say what the run is."""
        self.record = {
            **facts,
            "command": " ".join(sys.argv),
            "status": "running",
            "started_at": _now(),
            "ended_at": None,
            "wall_seconds": None,
            "versions": versions(),
            "hardware": hardware(),
            "git": git_revision(),
        }
        self._write()

    def finish(self, status: Status, **facts: Any) -> None:
        """Say how the run ended."""
        started = datetime.datetime.fromisoformat(self.record["started_at"])
        ended = datetime.datetime.now(datetime.UTC)
        self.record.update(
            status=status,
            ended_at=ended.isoformat(timespec="seconds"),
            wall_seconds=round((ended - started).total_seconds(), 3),
            **facts,
        )
        self._write()

    def _write(self) -> None:
        try:
            atomic_write_text(self.path / "run.json", json.dumps(self.record, indent=2) + "\n")
        except OSError as error:
            raise GenelabError(f"cannot write {self.path / 'run.json'}: {error.strerror}") from error


def versions() -> dict[str, str | None]:
    """Versions of everything that shapes a result; None for what is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def hardware() -> dict[str, Any]:
    """The machine."""
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "gpus": gpus}


def cpu_name() -> str:
    """The processor, as the system calls it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def git_revision() -> dict[str, Any] | None:
    """Commit and branch where the run was started, and whether there were changes; None where git does not tell."""
    try:
        commit = _git("rev-parse", "HEAD")
        branch = _git("rev-parse", "--abbrev-ref", "HEAD")
        return {"commit": commit, "branch": branch, "dirty": bool(_git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
