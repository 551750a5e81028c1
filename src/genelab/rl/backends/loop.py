"""For libraries whose agents are driven from outside: one order of training, a loop of the learner's own."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

from genelab.rl.backends.base import Backend, Cfg, Learner, TrainContext
from genelab.rl.checkpoint import load_checkpoint
from genelab.rl.monitor import TrainMonitor


class LoopLearner(Learner):
    """A learner that is told to begin from weights or from a state, and then to learn."""

    @abstractmethod
    def load_weights(self, content: dict[str, Any], path: Path) -> None:
        """Start from the networks and normalisers of a checkpoint, whose content fits the environment."""

    @abstractmethod
    def resume(self, state: dict[str, Any]) -> None:
        """Go on where an interrupted run stopped: put back what `state` gave."""

    @abstractmethod
    def learn(self, budget: int, monitor: TrainMonitor) -> None:
        """Collect and learn until the budget is spent, and tell the monitor of every iteration."""


class LoopBackend(Backend[Cfg]):
    """A library with such a learner."""

    @abstractmethod
    def learner(self, context: TrainContext[Cfg]) -> LoopLearner:
        """The learner, complete, with its environment reset."""

    def train(self, context: TrainContext[Cfg]) -> None:
        context.monitor.learner = learner = self.learner(context)
        if context.checkpoint is not None:
            content = load_checkpoint(context.checkpoint, self.name, context.env, to_learn=True)
            learner.load_weights(content, context.checkpoint)
        if context.resume is not None:
            learner.resume(context.resume)
        else:
            context.stagger_episodes()
        context.on_ready()
        learner.learn(context.budget, context.monitor)
