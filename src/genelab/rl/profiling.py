"""Traces of where the time goes, with torch.profiler."""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genelab.errors import GenelabError, UsageError

_NO_LOG = "9"
"""Level of what the profiler's own library prints to the terminal: nothing."""


@dataclass(kw_only=True)
class ProfileCfg:
    """Which steps are traced, and where the traces go."""

    out: Path = Path("logs/prof")
    """Directory of the traces, which TensorBoard and Perfetto open."""
    wait: int = 5
    """Steps before a trace."""
    warmup: int = 5
    """Steps traced and thrown away."""
    active: int = 20
    """Steps in a trace."""
    repeat: int = 1
    """Number of traces."""


@dataclass(kw_only=True)
class Tracer:
    """Is told of every step of a run."""

    step: Callable[[], None] = lambda: None
    files: list[Path] = field(default_factory=list)
    """The traces that were written."""


@contextmanager
def profiler(
    cfg: ProfileCfg | None, notify: Callable[[str], None] = lambda message: None, unit: str = "steps"
) -> Iterator[Tracer]:
    """A tracer, to be told of every step; without a config it does nothing.

    A run that is too short to leave a trace is told of at its end, in the unit that a step of it has.
    """
    if cfg is None:
        yield Tracer()
        return
    os.environ.setdefault("KINETO_LOG_LEVEL", _NO_LOG)
    from torch import profiler as tp

    try:
        cfg.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"`profile.out`: cannot write to {cfg.out}: {error.strerror}") from error
    tracer, steps = Tracer(), 0

    def write(profile: Any) -> None:
        path = cfg.out / f"{socket.gethostname()}_{os.getpid()}.{time.time_ns()}.pt.trace.json"
        profile.export_chrome_trace(str(path))
        if not _is_whole(path):  # its writer only logs what goes wrong
            raise GenelabError(f"`profile.out`: no trace could be written to {cfg.out}: is the disk full?")
        tracer.files.append(path)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Profiler won't be using warmup")  # the user asked for none
        schedule = tp.schedule(wait=cfg.wait, warmup=cfg.warmup, active=cfg.active, repeat=cfg.repeat)
    with _running(tp.profile(schedule=schedule, on_trace_ready=write, record_shapes=False)) as profile:

        def step() -> None:
            nonlocal steps
            steps += 1
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*Profiler clears events")  # each trace is a file of its own
                profile.step()

        tracer.step = step
        yield tracer
    before = cfg.wait + cfg.warmup
    if not tracer.files:
        notify(
            f"`profile` left no trace: the run had {steps} {unit}, and a trace begins after {before}; "
            "pass `profile.wait=0` `profile.warmup=0`, or run longer"
        )
    elif steps < before + cfg.active:
        notify(f"`profile`: the trace has {steps - before} {unit}, not {cfg.active}: the run had only {steps}")


@contextmanager
def _running(profile: Any) -> Iterator[Any]:
    profile.start()
    try:
        yield profile
    except BaseException:
        with suppress(Exception):  # interrupted in the middle of a step, it does not stop cleanly
            profile.stop()
        raise
    profile.stop()


def _is_whole(path: Path) -> bool:
    """Whether a trace is there in full: it is one JSON object."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - 8))
            return file.read().rstrip().endswith(b"}")
    except OSError:
        return False
