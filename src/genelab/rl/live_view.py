"""A training while it learns, in a window or on a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from genelab.envs import ManagerBasedRlEnv, StepResult, Watcher
from genelab.errors import GenelabError
from genelab.viewer import Onlooker, ViewerCfg, open_viewer


class LiveView(Watcher):
    """Shows the environments that a learner collects from, at the learner's pace.

    It may be looked at and not steered: a command or a reset from outside would be learned from. What is learned, and
    with which random numbers, does not depend on whether somebody looks.
    """

    steerable = False
    environment = 0
    policy = "the learner"
    checkpoints: Mapping[str, Path] = {}

    def __init__(self, env: ManagerBasedRlEnv, viewer: ViewerCfg, notify: Callable[[str], None]) -> None:
        self.env = env
        self.steps = 0
        self.reward: Tensor | None = None
        self._notify = notify
        self._viewer: Onlooker | None = open_viewer(self, viewer, notify)

    def before_step(self, action: Tensor) -> None:
        if self._viewer is not None and not self._viewer.before_step():
            self.close()
            self._notify("the window is closed; the training goes on")

    def after_step(self, step: StepResult) -> None:
        self.steps += 1
        self.reward = step.reward
        if self._viewer is not None:
            self._viewer.after_step()

    def restart(self) -> None:
        """Not while something is learned."""
        raise GenelabError("a training is not started anew by whoever looks on")

    def load(self, name: str) -> None:
        """Not while something is learned."""
        raise GenelabError("it is the learner who acts in a training")

    def close(self) -> None:
        """Nobody looks any more."""
        viewer, self._viewer = self._viewer, None
        if viewer is not None:
            viewer.close()
