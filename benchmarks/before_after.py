"""Two checkouts held against each other in one run: `python -m benchmarks.before_after OLD_SRC NEW_SRC`.

    git worktree add /tmp/old REVISION
    python -m benchmarks.before_after /tmp/old/src src

Each has a process of its own, and they take turns of a part of a second, one stepping while the other waits, so that
whatever else the machine does hits both. What counts is the ratio within a pair of turns: its median, and between which
values that lies with 95 %.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.overhead import median_interval
from benchmarks.throughput import TASK_SIZES

WORKER = Path(__file__).with_name("turns.py")
WHAT = ("step", "training")
COLD = 2
"""Turns at the beginning that do not count."""


class Checkout:
    """A process that runs one of them."""

    def __init__(self, source: Path, what: str, task: str, num_envs: int, steps: int) -> None:
        if not (source / "genelab").is_dir():
            raise SystemExit(f"{source}: no genelab in it; give the directory that the package is in")
        command = [sys.executable, "-P", str(WORKER), what, task, str(num_envs), str(steps)]
        paths = {"PYTHONPATH": str(source.resolve())}
        self._process = subprocess.Popen(
            command, env={**os.environ, **paths}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        found = self._answer()
        if Path(found).resolve() != source.resolve():
            self._process.kill()
            raise SystemExit(f"{source}: its genelab is not used, but that of {found}")

    def turn(self) -> float:
        """Control steps per second of one turn."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        work, seconds = self._answer()
        return work / seconds

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a side ended with exit code {self._process.wait()}; what it said is above")
        return json.loads(line)

    def __enter__(self) -> Checkout:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A line of the table."""

    what: str
    before: Sequence[float]
    """Control steps per second, by pair of turns."""
    after: Sequence[float]

    def line(self) -> str:
        """In Markdown."""
        ratios = [new / old for old, new in zip(self.before, self.after, strict=True)]
        low, high = median_interval(ratios)
        speeds = " | ".join(f"{statistics.median(side):,.0f}" for side in (self.before, self.after))
        return f"| {self.what} | {speeds} | {statistics.median(ratios):.3f} | {low:.3f} … {high:.3f} |"


def compare(before: Checkout, after: Checkout, rounds: int, what: str) -> Compared:
    """Let both take turns, each of them first in every second pair."""
    speeds: dict[Checkout, list[float]] = {before: [], after: []}
    for turn in range(rounds + COLD):
        for side in (before, after) if turn % 2 else (after, before):
            speeds[side].append(side.turn())
    return Compared(what=what, before=speeds[before][COLD:], after=speeds[after][COLD:])


def main(words: Sequence[str] | None = None) -> None:
    """Print one line per task and kind of work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, metavar="OLD_SRC", help="Directory with the package genelab in it.")
    parser.add_argument("after", type=Path, metavar="NEW_SRC")
    parser.add_argument("--task", action="append", help="Task; may be given more than once.")
    parser.add_argument("--what", choices=WHAT, help="`env.step` alone, or iterations of a training; without it, both.")
    parser.add_argument("--num-envs", type=int, help="Environments, instead of each task's own number.")
    parser.add_argument("--steps", type=int, default=10, help="Control steps in a turn of `env.step`.")
    parser.add_argument("--rounds", type=int, default=30, help="Pairs of turns.")
    args = parser.parse_args(words)
    print("| what | before, steps/s | after, steps/s | after / before | 95 % interval |\n|---|---|---|---|---|")
    for task in args.task or TASK_SIZES:
        num_envs = args.num_envs or TASK_SIZES.get(task, 1024)
        for what in [args.what] if args.what else WHAT:
            with ExitStack() as stack:
                before, after = (
                    stack.enter_context(Checkout(source, what, task, num_envs, args.steps))
                    for source in (args.before, args.after)
                )
                print(compare(before, after, args.rounds, f"{task}, {num_envs} envs: {what}").line(), flush=True)


if __name__ == "__main__":
    main()
