"""Trainings in processes of their own, which tell their progress in a file: what seeds and sweeps have in common."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from genelab.config import atomic_write_text, read_json
from genelab.errors import UsageError
from genelab.rl.launch.process import Job, Process, available_threads, python_command, share
from genelab.rl.launch.ray import ray_launcher

if TYPE_CHECKING:
    from genelab.rl.monitor import Progress

PROGRESS_FILE = "GENELAB_PROGRESS_FILE"
"""Environment variable that names the file in which a child tells its progress."""
POLL_SECONDS = 0.2

State = Literal["waiting", "running", "completed", "interrupted", "failed"]


@dataclass(kw_only=True)
class Child:
    """A training, as its launcher sees it."""

    path: Path
    """Its run directory."""
    state: State = "waiting"
    exit_code: int | None = None
    seconds: float = 0.0
    """How long it has been running, or ran."""

    @property
    def log(self) -> Path:
        """What the child printed."""
        return self.path.with_name(f"{self.path.name}.log")

    @property
    def progress_file(self) -> Path:
        return self.path / "progress.json"

    @property
    def progress(self) -> Progress | None:
        """What the child said last; None before its first iteration."""
        from genelab.rl.monitor import Progress

        with contextlib.suppress(OSError, ValueError, TypeError):
            return Progress(**json.loads(self.progress_file.read_text()))
        return None

    @property
    def final_return(self) -> float | None:
        """Mean return of its last evaluation, once it is completed; None without one."""
        from genelab.rl.eval_callback import EVALUATIONS_FILE

        with contextlib.suppress(UsageError, TypeError, LookupError, ValueError):
            if self.state == "completed":
                return float(read_json(self.path / EVALUATIONS_FILE)[-1]["return_mean"])
        return None

    @property
    def last_words(self) -> str:
        """The last line of the log, which says why a run failed."""
        try:
            lines = self.log.read_text(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


class Launcher(Protocol):
    """Where the children run."""

    def threads(self, parallel: int) -> int | None:
        """Threads for each child when so many run at once; None: whatever a run alone would use."""

    def start(self, words: Sequence[str], *, env: dict[str, str], log: Path) -> Job:
        """Start Python with these words."""


class LocalLauncher:
    """Children are processes of this machine."""

    def threads(self, parallel: int) -> int | None:
        return None if parallel == 1 else share(available_threads(), parallel)

    def start(self, words: Sequence[str], *, env: dict[str, str], log: Path) -> Job:
        return Process(python_command(words), env=env, log=log)


class Nursery:
    """Starts children on a launcher, each with its share of the threads."""

    def __init__(self, launcher: Launcher, parallel: int) -> None:
        self._launcher = launcher
        self._threads = launcher.threads(parallel)
        self._env = {} if self._threads is None else {"OMP_NUM_THREADS": str(self._threads)}

    def thread_words(self, asked: int) -> list[str]:
        """What to add to a child's command line, if its task asks for so many threads of the physics; 0: for all."""
        return [] if self._threads is None or asked else [f"--env.simulation.threads={self._threads}"]

    def start(self, child: Child, words: Sequence[str]) -> Job:
        """Start Python with these words."""
        with contextlib.suppress(OSError):
            child.progress_file.unlink()  # of an earlier run
        return self._launcher.start(words, env={**self._env, PROGRESS_FILE: str(child.progress_file)}, log=child.log)


@contextlib.contextmanager
def open_launcher(ray: bool, ray_address: str | None, parallel: int, *, gpu: bool) -> Iterator[Nursery]:
    """Where `parallel` children can run at a time: on this machine, or as tasks of Ray."""
    where: AbstractContextManager[Launcher] = contextlib.nullcontext(LocalLauncher())
    if ray:
        where = ray_launcher(ray_address, parallel, gpu=gpu)
    with where as launcher:
        yield Nursery(launcher, parallel)


def tell_launcher(report: Callable[[Progress], None]) -> Callable[[Progress], None]:
    """In a child of a launcher: the report, told to it as well."""
    file = os.environ.get(PROGRESS_FILE)
    if file is None:
        return report

    def both(progress: Progress) -> None:
        report(progress)
        with contextlib.suppress(OSError):  # the run itself says that its directory is gone
            atomic_write_text(file, json.dumps(dataclasses.asdict(progress)), parents=False)

    return both


def make_parent(parent: Path) -> None:
    """Make the directory that the runs go into."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"`log_dir`: cannot write to {parent}: {error.strerror}") from error
