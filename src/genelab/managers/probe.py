"""How a command says whether it is followed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import Tensor


class Probe(ABC):
    """Judges how well a policy follows a command, in an environment of its own: a mean return hides a great deal.

    An evaluation asks `num_envs`, builds an environment of that size, calls `begin`, resets it, calls `start`, and then
    `step` after every control step for `seconds`.
    """

    name: ClassVar[str]
    """What it judges; its report is the section `<name>_probe` of the evaluation's."""
    seconds: float
    """How long it lasts."""

    @property
    @abstractmethod
    def num_envs(self) -> int:
        """How many environments it should have."""

    @abstractmethod
    def begin(self) -> None:
        """Ask for what is judged; the environment is reset next."""

    def start(self, observations: dict[str, Tensor]) -> dict[str, Tensor]:
        """Change where episodes start, after the reset; returns the observations from there."""
        return observations

    @abstractmethod
    def step(self, step: int, terminated: Tensor, truncated: Tensor) -> None:
        """Measure after a control step, which are counted from 0; where episodes ended the state is a new one's."""

    @abstractmethod
    def report(self) -> dict[str, Any]:
        """What came out, in plain values."""
