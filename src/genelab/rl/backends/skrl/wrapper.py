"""A task as skrl sees it."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from skrl.envs.wrappers.torch import Wrapper
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv
from genelab.rl.backends.base import Observations, group_spaces, in_32_bits


class GenelabSkrlWrapper(Wrapper):
    """A task as skrl wants to see it: `policy` observations, `critic` observations as states, columns for the rest."""

    def __init__(self, env: ManagerBasedRlEnv, clip_actions: float) -> None:
        super().__init__(env)
        self.env = env
        self._clip = clip_actions
        self.reset()

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """What the actor sees."""
        return group_spaces(self.env)["policy"]

    @property
    def state_space(self) -> gymnasium.Space[Any] | None:
        """What the critic sees; None: the same."""
        return group_spaces(self.env).get("critic")

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        return self.env.single_action_space

    def reset(self) -> tuple[Tensor, dict[str, Any]]:
        """Start all environments anew."""
        self.observations: Observations = in_32_bits(self.env.reset()[0])
        self.outcome = self.observations
        return self.observations["policy"], {}

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        """One control step. An episode that failed in its last moment has not timed out."""
        actions = actions.clamp(-self._clip, self._clip)
        observations, reward, terminated, truncated, info = self.env.step(actions)
        self.observations, reward = in_32_bits(observations), reward.float()
        self.outcome = self.observations
        if "final_obs" in info:
            ended = info["_final_obs"][:, None]
            final = in_32_bits(info["final_obs"])
            self.outcome = {name: torch.where(ended, final[name], now) for name, now in self.observations.items()}
        timed_out = (truncated & ~terminated)[:, None]
        return self.observations["policy"], reward[:, None], terminated[:, None], timed_out, info

    def state(self) -> Tensor | None:
        """What the critic sees now."""
        return self.observations.get("critic")

    def render(self, *args: Any, **kwargs: Any) -> None:
        """The lab has viewers of its own."""

    def close(self) -> None:
        """Free the engine."""
        self.env.close()
