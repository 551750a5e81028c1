"""The one loop in which a policy acts: evaluation, probes, films, export, playback and benchmarks go through it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torch import Tensor

from genelab.envs import StepResult
from genelab.rl.backends.base import InferenceSetup, Observations


class Steppable(Protocol):
    """An environment to act in."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, Any]:
        """Start all environments anew."""
        ...

    def step(self, action: Any) -> Any:
        """One control step; the first of the answer are the observations."""
        ...


class Rollout:
    """A policy acting in an environment, a control step at a time. Whoever holds it may change the policy meanwhile."""

    def __init__(self, env: Steppable, setup: InferenceSetup) -> None:
        self.env = env
        self.setup = setup
        self.steps = 0
        """Control steps so far."""
        self.observations: Observations = {}
        """What the policy sees next."""

    def restart(self, *, seed: int | None = None) -> None:
        """Start all environments anew."""
        self.observations, _ = self.env.reset(seed=seed)
        self.setup.reset(None)

    def act(self) -> Tensor:
        """The next action."""
        return self.setup.policy(self.observations)

    def step(self) -> Any:
        """Act once; the memory of those whose episode ended is wiped. Returns what the environment answered."""
        answer = self.env.step(self.act())
        self.observations = answer[0]
        self.steps += 1
        if isinstance(answer, StepResult):  # a scene has no episodes
            self.setup.reset(answer.done)
        return answer


def rollout(
    env: Steppable,
    setup: InferenceSetup,
    *,
    steps: int | None = None,
    seed: int | None = None,
    start: Callable[[Observations], Observations] = lambda observations: observations,
) -> Iterator[StepResult]:
    """Let a policy act after a reset, for so many control steps or as long as somebody asks for the next.

    `start` may put the environments elsewhere after the reset; it returns what is seen there.
    """
    loop = Rollout(env, setup)
    loop.restart(seed=seed)
    loop.observations = start(loop.observations)
    for _ in itertools.count() if steps is None else range(steps):
        yield loop.step()
