"""Who looks on while an environment is stepped."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor


class StepResult(NamedTuple):
    """What a control step answers, the five of Gymnasium."""

    observations: dict[str, Tensor]
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    info: dict[str, Any]

    @property
    def done(self) -> Tensor:
        """Whose episode ended, `(N,)`."""
        return self.terminated | self.truncated


class Watcher:
    """An entry of `env.watchers`; it overrides what it wants to be told of.

    Watchers nest: the first of the list hears of a beginning first and of an end last, so that a clock measures those
    after it and not those before it.
    """

    def before_step(self, action: Tensor) -> None:
        """A control step is about to be made."""

    def before_physics(self) -> None:
        """The engine is about to advance, once or more often in a control step."""

    def after_physics(self) -> None:
        """The engine has advanced."""

    def after_step(self, step: StepResult) -> None:
        """A control step was made."""
