"""Progress on a terminal, as two live lines, and elsewhere, as plain lines now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

    from genelab.rl import Progress
    from genelab.rl.launch.seeds import SeedRun

PLAIN_SECONDS = 10.0
"""Time between two plain lines."""
_SEPARATOR = " · "


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A function that shows how many of all things of a kind are done: a bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), "{task.description}", TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=None)

        def show(what: str, done: int, total: int) -> None:
            if what != progress.tasks[0].description:
                progress.reset(bar, description=what)
            progress.update(bar, completed=done, total=total)

        yield show


@contextmanager
def train_progress(*, quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """A function that shows progress."""
    if quiet:
        yield lambda progress: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        console = Console(stderr=True)

        def show(progress: Progress) -> None:
            # Cropped as well, for the terminal may become narrower before the next iteration.
            live.update(Text("\n".join(live_lines(progress, console.width)), no_wrap=True, overflow="crop"))

        with Live("", console=console, refresh_per_second=4) as live:
            yield show
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
    speed = f"{_speed(progress)} (collecting {progress.collect_fps:,.0f}, {_learning(progress)})"
    return _SEPARATOR.join([*_how_far(progress), *_how_good(progress), speed])


def live_lines(progress: Progress, width: int) -> list[str]:
    """Two lines of at most `width` characters; what has no room is left out, the last first."""
    first = [*_how_far(progress), _speed(progress)]
    second = [*_how_good(progress), _learning(progress), f"collecting {progress.collect_fps:,.0f} steps/s"]
    return [_fitted(first, width), _fitted(second, width)]


def _fitted(parts: Sequence[str], width: int) -> str:
    count = len(parts)
    while count > 1 and len(_SEPARATOR.join(parts[:count])) > width:
        count -= 1
    return _SEPARATOR.join(parts[:count])[:width]


def _how_far(progress: Progress) -> list[str]:
    share = min(progress.done / progress.total, 1.0)  # a library may end on a whole rollout beyond it
    done = f"{progress.unit.removesuffix('s')} {progress.done:,}/{progress.total:,}"
    return [done, f"{share:.0%}", f"ETA {duration(progress.eta)}"]


def _how_good(progress: Progress) -> list[str]:
    """The return of a policy that explores, in episodes that began with earlier weights: less than it is worth."""
    if progress.return_mean is None or progress.length_mean is None:
        return []
    return [f"return {progress.return_mean:.2f} (exploring)", f"length {progress.length_mean:.0f}"]


def _speed(progress: Progress) -> str:
    return f"{progress.total_fps:,.0f} steps/s"


def _learning(progress: Progress) -> str:
    return f"learning {progress.learn_share:.0%} of the time"


def duration(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def seeds_progress(*, quiet: bool) -> Iterator[Callable[[Sequence[SeedRun]], None]]:
    """A function that shows how far the seeds are: a live table on a terminal, elsewhere lines now and then."""
    if sys.stderr.isatty() and not quiet:
        from rich.console import Console
        from rich.live import Live

        # Without a thread of its own, since this process forks.
        with Live("", console=Console(stderr=True), auto_refresh=False, transient=True) as live:
            yield lambda runs: live.update(seeds_table(runs), refresh=True)
        return
    shown: dict[int, tuple[str, float]] = {}

    def report(runs: Sequence[SeedRun]) -> None:
        for run in runs:
            now = time.monotonic()
            state, last = shown.get(run.seed, ("waiting", now))
            if run.state != state or (run.state == "running" and now - last >= PLAIN_SECONDS):
                shown[run.seed] = (run.state, now)
                how_far = f" · {line(progress)}" if (progress := run.progress) else ""
                click.echo(f"seed {run.seed}: {run.state}{how_far}", err=True)

    yield (lambda runs: None) if quiet else report


def seeds_table(runs: Sequence[SeedRun]) -> Table:
    """How far each seed is."""
    from rich.table import Table

    table = Table("seed", "state", "progress", "return (exploring)", "final return", "ETA", "time")
    for run in runs:
        final = run.final_return
        cells = ["", "", "" if final is None else f"{final:.2f}", ""]
        if (progress := run.progress) is not None:
            cells[0] = f"{progress.done:,}/{progress.total:,} {progress.unit}"
            cells[1] = "" if progress.return_mean is None else f"{progress.return_mean:.2f}"
            cells[3] = duration(progress.eta) if run.state == "running" else ""
        table.add_row(str(run.seed), run.state, *cells, duration(run.seconds))
    return table
