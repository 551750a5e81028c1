"""Numbers that are none: found where they are born, and named by who gave them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv
from genelab.errors import GenelabError


class NotFiniteError(GenelabError):
    """The environment, the policy or the learner gave a NaN or an infinity."""


class Diverged(Exception):
    """A learner that cannot go on; says which of its numbers is none."""


class FiniteGuard:
    """Looks at every step, and stops at the first number that is none: `env.watcher = FiniteGuard(env)`.

    Physics, rewards and observations are the environment's; an action that is none although the observations are fine
    is the policy's.
    """

    def __init__(self, env: ManagerBasedRlEnv) -> None:
        self._env = env

    def before_step(self, action: Tensor) -> None:
        """Stop if the policy does not know what to do."""
        if torch.isfinite(action.sum()):
            return
        found = (~action.isfinite().all(dim=1)).nonzero().flatten().tolist()
        if not found:
            return  # the sum overflowed, the numbers did not
        sources = self._sources(found[0], self._env.observation_manager.compute(keep=False))
        blamed = ", ".join(sources) or "the action. What the policy saw is finite: it diverged, not the physics"
        raise self._error(f"{_where(found)}: {blamed}", found[0])

    def after_step(self, observations: dict[str, Tensor], reward: Tensor) -> None:
        """Stop if anything is not a number."""
        total = reward.sum() + sum(values.sum() for values in observations.values())
        if not torch.isfinite(total):
            self._check(observations, reward)

    def _check(self, observations: dict[str, Tensor], reward: Tensor) -> None:
        bad = ~reward.isfinite()
        for values in observations.values():
            bad |= ~values.isfinite().all(dim=1)
        if found := bad.nonzero().flatten().tolist():
            raise self._error(f"{_where(found)}: {', '.join(self._sources(found[0], observations))}", found[0])

    def _error(self, message: str, env_id: int) -> NotFiniteError:
        """What to raise; the environment is the one to look at."""
        return NotFiniteError(message)

    def _sources(self, env_id: int, observations: dict[str, Tensor]) -> list[str]:
        """Where the environment's bad numbers are: physics first, for the rest follows from it."""
        engine = self._env.scene.engine
        sources = []
        if not (engine.qpos[env_id].isfinite().all() and engine.qvel[env_id].isfinite().all()):
            sources.append("the physics")
        rewards = self._env.reward_manager.step_reward[:, env_id].isfinite().tolist()
        names = list(self._env.reward_manager.terms)
        sources += [f"reward {name!r}" for name, fine in zip(names, rewards, strict=True) if not fine]
        for name, group in self._env.observation_manager.groups.items():
            frame = observations[name][env_id, -group.frame_dim :]
            for term in group.layout:
                if not frame[term.start : term.start + term.dim].isfinite().all():
                    sources.append(f"observation '{name}/{term.name}'")
        return sources


def _where(found: list[int]) -> str:
    others = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"not a finite number in environment {found[0]}{others}"


class LateGuard:
    """Tells after a loop that is measured whether its numbers were none; in it, it only adds up what was paid."""

    def __init__(self, env: ManagerBasedRlEnv) -> None:
        self._env = env
        self._paid = env.reward_manager.step_reward.sum(dim=1)  # (terms,)
        self._last: tuple[dict[str, Tensor], Tensor] | None = None

    def add(self, step: tuple[dict[str, Tensor], Tensor, Tensor, Tensor, dict[str, Any]]) -> None:
        """Take what a step answered."""
        self._paid = self._paid + self._env.reward_manager.step_reward.sum(dim=1)
        self._last = step[0], step[1]

    def check(self) -> None:
        """Stop if anything was not a number: a reward in any step, or an observation in the last."""
        if self._last is not None:
            FiniteGuard(self._env).after_step(*self._last)
        for name, fine in zip(self._env.reward_manager.terms, self._paid.isfinite().tolist(), strict=True):
            if not fine:
                raise NotFiniteError(f"not a finite number in some step: reward {name!r}")


def first_not_finite(numbers: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor that has a NaN or an infinity in it; the device is asked once if none has."""
    if not numbers or torch.stack([values.sum().double() for values in numbers.values()]).isfinite().all():
        return None
    return next((name for name, values in numbers.items() if not values.isfinite().all()), None)
