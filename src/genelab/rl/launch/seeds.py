"""The same training with many seeds, each in a process of its own: `genelab train TASK --seeds 1,2,3`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from genelab.config import atomic_write_text
from genelab.errors import UsageError
from genelab.rl.launch.process import Job, Process, Stop, available_threads, python_command, share
from genelab.rl.launch.ray import ray_launcher
from genelab.rl.launch.task import load_cfg
from genelab.rl.run import RunDirectory

if TYPE_CHECKING:
    from genelab.rl.monitor import Progress

PROGRESS_FILE = "GENELAB_PROGRESS_FILE"
"""Environment variable that names the file in which a child tells its progress."""
POLL_SECONDS = 0.2


@dataclass(kw_only=True)
class SeedRun:
    """The training of one seed, as its launcher sees it."""

    seed: int
    path: Path
    """Its run directory."""
    state: Literal["waiting", "running", "completed", "interrupted", "failed"] = "waiting"
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


def parse_seeds(text: str) -> list[int]:
    """The seeds of `--seeds 1,2,3`."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise UsageError(f"`seeds`: expected whole numbers with commas between them, such as 1,2,3, got {text!r}")
    if any(len(word) > 10 or int(word) >= 2**32 for word in words):
        raise UsageError(f"`seeds`: a seed is at most {2**32 - 1}, got {text!r}")
    seeds = [int(word) for word in words]
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"`seeds`: each seed only once, got {text!r}")
    return seeds


def train_seeds(
    task: str,
    seeds: Sequence[int],
    *,
    words: Sequence[str],
    overrides: Mapping[str, Any] = {},
    log_dir: Path | None = None,
    parallel: int = 1,
    ray: bool = False,
    ray_address: str | None = None,
    report: Callable[[Sequence[SeedRun]], None] = lambda runs: None,
    notify: Callable[[str], None] = lambda message: None,
) -> list[SeedRun]:
    """Train once per seed, `parallel` of them at a time; a seed that fails does not stop the others.

    `words` is what follows `python` in the command line of a child, without its seed and directory; `overrides` is the
    part of it that changes the config. With `ray` the children are tasks of the cluster at `ray_address`, or of one on
    this machine. Ctrl-C stops all of them as it would stop each.
    """
    task_id, cfg = load_cfg(task, overrides)
    parallel = min(parallel, len(seeds))
    where: AbstractContextManager[Launcher] = contextlib.nullcontext(LocalLauncher())
    if ray:
        where = ray_launcher(ray_address, parallel, gpu=cfg.env.simulation.gpu)
    # Absolute, since a child of Ray has a working directory of its own.
    parent = (log_dir or RunDirectory.default_path("multi-seed", task_id)).absolute()
    runs = [SeedRun(seed=seed, path=parent / f"seed_{seed}") for seed in seeds]
    _refuse_taken(runs)
    with where as launcher:
        _make_parent(parent)
        threads = launcher.threads(parallel)
        words, env = list(words), {}
        if threads is not None:
            env["OMP_NUM_THREADS"] = str(threads)
            if cfg.env.simulation.threads == 0:
                words.append(f"--env.simulation.threads={threads}")
        _Batch(runs, words, env, launcher, parallel, report, Stop(notify)).run()
    return runs


class _Batch:
    """Starts runs as others end, until none is left."""

    def __init__(
        self,
        runs: list[SeedRun],
        words: list[str],
        env: dict[str, str],
        launcher: Launcher,
        parallel: int,
        report: Callable[[Sequence[SeedRun]], None],
        stop: Stop,
    ) -> None:
        self._runs = runs
        self._words = words
        self._env = env
        self._launcher = launcher
        self._parallel = parallel
        self._report = report
        self._stop = stop
        self._waiting = list(runs)
        self._running: list[tuple[SeedRun, Job, float]] = []

    def run(self) -> None:
        try:
            with self._stop.on_signals():
                while self._waiting or self._running:
                    self._step()
                    self._report(self._runs)
                    time.sleep(POLL_SECONDS if self._running else 0)
        finally:
            for _, job, _ in self._running:
                job.signal(signal.SIGKILL)

    def _step(self) -> None:
        if self._stop.requested:
            self._waiting.clear()
        while self._waiting and len(self._running) < self._parallel:
            run = self._waiting.pop(0)
            self._running.append((run, self._start(run), time.monotonic()))
            run.state = "running"
        self._stop.apply(job for _, job, _ in self._running)
        for entry in list(self._running):
            run, job, started = entry
            run.seconds = time.monotonic() - started
            run.exit_code = job.poll()
            if run.exit_code is not None:
                self._running.remove(entry)
                run.state = self._state(run.exit_code)

    def _start(self, run: SeedRun) -> Job:
        with contextlib.suppress(OSError):
            run.progress_file.unlink()  # of an earlier run
        words = [*self._words, "--seed", str(run.seed), "--log-dir", str(run.path)]
        return self._launcher.start(words, env={**self._env, PROGRESS_FILE: str(run.progress_file)}, log=run.log)

    def _state(self, exit_code: int) -> Literal["completed", "interrupted", "failed"]:
        if exit_code == 0:
            return "completed"
        return "interrupted" if exit_code == 130 or self._stop.requested else "failed"


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


def _refuse_taken(runs: Sequence[SeedRun]) -> None:
    """Refuse to go over runs that are there, before anything of theirs is touched."""
    taken = [run for run in runs if (run.path / "run.json").exists()]
    if taken:
        names = ", ".join(run.path.name for run in taken)
        raise UsageError(
            f"`log_dir`: {taken[0].path.parent} already holds runs of these seeds: {names}; choose another, leave them "
            f"out of `seeds`, or go on with one by `resume_task('{taken[0].path}')`"
        )


def _make_parent(parent: Path) -> None:
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"`log_dir`: cannot write to {parent}: {error.strerror}") from error
