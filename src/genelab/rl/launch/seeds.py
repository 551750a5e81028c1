"""The same training with many seeds, each in a process of its own: `genelab train TASK --seeds 1,2,3`."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from genelab.errors import UsageError
from genelab.rl.launch.children import POLL_SECONDS, Child, Nursery, make_parent, open_launcher
from genelab.rl.launch.process import Job, Stop
from genelab.rl.launch.task import load_cfg
from genelab.rl.run import RunDirectory
from genelab.sim.engine import remark_on_idle_gpu


@dataclass(kw_only=True)
class SeedRun(Child):
    """The training of one seed, as its launcher sees it."""

    seed: int


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
    remark_on_idle_gpu(cfg.env.simulation, overrides, notify)
    parallel = min(parallel, len(seeds))
    # Absolute, since a child of Ray has a working directory of its own.
    parent = (log_dir or RunDirectory.default_path("multi-seed", task_id)).absolute()
    runs = [SeedRun(seed=seed, path=parent / f"seed_{seed}") for seed in seeds]
    _refuse_taken(runs)
    with open_launcher(ray, ray_address, parallel, gpu=cfg.env.simulation.gpu) as launcher:
        make_parent(parent)
        words = [*words, *launcher.thread_words(cfg.env.simulation.threads)]
        _Batch(runs, words, launcher, parallel, report, Stop(notify)).run()
    return runs


class _Batch:
    """Starts runs as others end, until none is left."""

    def __init__(
        self,
        runs: list[SeedRun],
        words: list[str],
        launcher: Nursery,
        parallel: int,
        report: Callable[[Sequence[SeedRun]], None],
        stop: Stop,
    ) -> None:
        self._runs = runs
        self._words = words
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
        return self._launcher.start(run, [*self._words, "--seed", str(run.seed), "--log-dir", str(run.path)])

    def _state(self, exit_code: int) -> Literal["completed", "interrupted", "failed"]:
        if exit_code == 0:
            return "completed"
        return "interrupted" if exit_code == 130 or self._stop.requested else "failed"


def _refuse_taken(runs: Sequence[SeedRun]) -> None:
    """Refuse to go over runs that are there, before anything of theirs is touched."""
    taken = [run for run in runs if (run.path / "run.json").exists()]
    if taken:
        names = ", ".join(run.path.name for run in taken)
        raise UsageError(
            f"`log_dir`: {taken[0].path.parent} already holds runs of these seeds: {names}; choose another, leave them "
            f"out of `seeds`, or go on with one by `resume_task('{taken[0].path}')`"
        )
