"""Hooks on an iteration: in which order, what they are told, and what they may do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from genelab.rl import Iteration, IterationHook, Progress, train_task
from tests.rl.helpers import PENDULUM

pytestmark = pytest.mark.usefixtures("alone")


class Counter(IterationHook):
    """Counts, keeps the count in `resume.pt`, and stops a run."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.seen: list[tuple[int, int, bool]] = []
        self.count = 0

    def after_iteration(self, iteration: Iteration) -> None:
        self.count += 1
        self.seen.append((iteration.number, iteration.progress.env_steps, iteration.last))
        iteration.monitor.stop_requested = iteration.number == self.stop_at

    def state(self) -> dict[str, Any]:
        return {"count": self.count}

    def load(self, state: Mapping[str, Any]) -> None:
        self.count = state["count"]


def test_a_hook_of_ones_own_is_told_of_every_iteration_after_the_report() -> None:
    """Iterations of 24 steps in 4 environments."""
    counter, order = Counter(), list[str]()

    def report(progress: Progress) -> None:
        order.append(f"report {len(counter.seen)}")

    train_task(PENDULUM, num_envs=4, max_iterations=2, log_dir=Path("run"), report=report, hooks=[counter])
    assert counter.seen == [(1, 96, False), (2, 192, True)]
    assert order == ["report 0", "report 1"]


def test_a_hook_may_stop_the_run_and_is_kept_with_it() -> None:
    counter = Counter(stop_at=1)
    result = train_task(PENDULUM, num_envs=4, max_iterations=3, log_dir=Path("run"), hooks=[counter])
    assert (result.status, len(counter.seen)) == ("interrupted", 1)
    state = torch.load("run/resume.pt", weights_only=True)["monitor"]
    assert (state["count"], state["best"], state["env_steps"]) == (1, None, 96)
    other = Counter()
    other.load(state)
    assert other.count == 1
