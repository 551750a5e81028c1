"""What a sweep looks for, from the evaluations of a training while it learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from genelab.errors import UsageError

Goal = Literal["return", "success", "length", "iterations", "steps", "seconds"]
GOALS: tuple[Goal, ...] = get_args(Goal)
_METRIC = {"return": "return_mean", "success": "success_rate", "length": "length_mean"}
_SPENT = {"iterations": "iteration", "steps": "env_steps", "seconds": "seconds"}
_SAID = {
    "return": "mean return of the last evaluation",
    "success": "success rate of the last evaluation",
    "length": "mean episode length of the last evaluation, control steps",
    "iterations": "iterations until an evaluation's mean return is {target:g}",
    "steps": "control steps until an evaluation's mean return is {target:g}",
    "seconds": "seconds of collecting and learning until an evaluation's mean return is {target:g}",
}
NEVER = float("inf")
"""The value of a trial that spent its budget and did not reach the target."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """One number of a training, and whether more of it is better."""

    goal: Goal = "return"
    """The last evaluation's mean return, success rate or episode length; or what was spent, in iterations, control
    steps or seconds of collecting and learning, until an evaluation's mean return first was at least `target`."""
    target: float | None = None

    def __post_init__(self) -> None:
        if self.is_race and self.target is None:
            raise UsageError(f"`objective`: {self.goal} until which return? give `target`")
        if not self.is_race and self.target is not None:
            races = ", ".join(_SPENT)
            raise UsageError(f"`target` goes with an `objective` that is spent until it is reached: {races}")

    @property
    def is_race(self) -> bool:
        """Whether it counts what is spent until a target is reached."""
        return self.goal in _SPENT

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        return "minimize" if self.is_race else "maximize"

    def __str__(self) -> str:
        return _SAID[self.goal].format(target=self.target)

    def is_better(self, first: float, second: float) -> bool:
        return first < second if self.is_race else first > second

    def value(self, evaluations: Sequence[Mapping[str, Any]]) -> float | None:
        """The objective of a training with these evaluations; None if it has none."""
        if not self.is_race:
            return evaluations[-1][_METRIC[self.goal]] if evaluations else None
        reached = (one for one in evaluations if self.is_reached(one))
        return next((float(one[_SPENT[self.goal]]) for one in reached), NEVER if evaluations else None)

    def is_reached(self, evaluation: Mapping[str, Any]) -> bool:
        """Whether the race is over."""
        return self.target is not None and evaluation["return_mean"] >= self.target

    def on_the_way(self, evaluation: Mapping[str, Any]) -> float | None:
        """What tells a hopeless trial early, better in the direction of the objective; None if it is not known."""
        if self.is_race:
            return -evaluation["return_mean"]
        return evaluation[_METRIC[self.goal]]


def told(value: float | None) -> str:
    """An objective as text."""
    return "–" if value is None else "not reached" if value == NEVER else f"{value:.6g}"
