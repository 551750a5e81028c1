"""How a command says whether it is followed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class BlockScore:
    """What became of a command in one block of environments."""

    share: float
    """How much of what was asked for was done; 1 is all of it."""
    falls: int
    """Environments whose episode failed."""
    robots: int
    """Of so many."""
    trials: int | None = None
    """In how many of them something else happened; None: in all."""
    details: dict[str, Any]
    """What else to report, in plain values."""


class Probe(ABC):
    """Judges how well a policy follows a command, where it is evaluated: a mean return hides a great deal.

    The environment is as large as the evaluation asks for, and a probe that has more to try has several rounds. For
    each of them an evaluation calls `begin`, resets the environment, calls `start`, and then `step` after every control
    step for `seconds`; at last it calls `end`.
    """

    name: ClassVar[str]
    """What it judges; its report is the section `<name>_probe` of the evaluation's."""
    seconds: float
    """How long a round lasts."""
    varies_models: ClassVar[bool] = False
    """Whether an evaluation gives its robots models of their own, as the task's training does."""

    @property
    def rounds(self) -> int:
        """How many rounds it has."""
        return 1

    @abstractmethod
    def begin(self, turn: int) -> None:
        """Ask for what is judged in a round, which are counted from 0; the environment is reset next."""

    def start(self, observations: dict[str, Tensor]) -> dict[str, Tensor]:
        """Change where episodes start, after the reset; returns the observations from there."""
        return observations

    @abstractmethod
    def step(self, step: int, terminated: Tensor, truncated: Tensor) -> None:
        """Measure after a control step, which are counted from 0; where episodes ended the state is a new one's."""

    @abstractmethod
    def end(self) -> None:
        """Ask for it no longer: others may be judged after this."""

    @abstractmethod
    def report(self) -> dict[str, Any]:
        """What came out, in plain values."""

    def block_size(self, about: int) -> int | None:
        """How many environments, about so many, judge a world if several worlds are judged side by side, each in a
        block of environments; None: it cannot do that."""
        return None

    def in_blocks(self, size: int) -> Probe:
        """The same probe for blocks of so many environments, one after the other; it has one round."""
        raise NotImplementedError

    def scores(self) -> list[BlockScore]:
        """What came out, by block."""
        raise NotImplementedError
