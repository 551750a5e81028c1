"""Progress on a terminal, as one live line, and elsewhere, as plain lines now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from genelab.rl import Progress

PLAIN_SECONDS = 10.0
"""Time between two plain lines."""


@contextmanager
def train_progress(*, quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """A function that shows progress."""
    if quiet:
        yield lambda progress: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live

        with Live("", console=Console(stderr=True), refresh_per_second=4) as live:
            yield lambda progress: live.update(line(progress))
    else:
        yield _plain()


def _plain() -> Callable[[Progress], None]:
    last = float("-inf")

    def report(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PLAIN_SECONDS or progress.done >= progress.total:
            last = now
            click.echo(line(progress), err=True)

    return report


def line(progress: Progress) -> str:
    """One line: how far, how long, how good, how fast."""
    parts = [f"{progress.unit.removesuffix('s')} {progress.done:,}/{progress.total:,}"]
    parts.append(f"{progress.done / progress.total:.0%}")
    parts.append(f"ETA {duration(progress.eta)}")
    if progress.return_mean is not None and progress.length_mean is not None:
        parts.append(f"return {progress.return_mean:.2f}")
        parts.append(f"length {progress.length_mean:.0f}")
    parts.append(f"{progress.total_fps:,.0f} steps/s (collecting {progress.collect_fps:,.0f}, ")
    return " · ".join(parts) + f"learning {progress.learn_share:.0%} of the time)"


def duration(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
