"""A task as rl_games sees it."""

from __future__ import annotations

from typing import Any

from rl_games.common.ivecenv import IVecEnv
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv
from genelab.rl.backends.base import Observations, group_spaces, in_32_bits
from genelab.rl.backends.rl_games.models import MAX_ACTION


class GenelabRlGamesVecEnv(IVecEnv):
    """A task as rl_games wants to see it: one flag for an episode's end, `critic` observations as states."""

    def __init__(self, env: ManagerBasedRlEnv) -> None:
        self.env = env
        self.observations: Observations = in_32_bits(env.reset()[0])

    def get_env_info(self) -> dict[str, Any]:
        """The spaces of one environment."""
        spaces = group_spaces(self.env)
        return {
            "observation_space": spaces["policy"],
            "state_space": spaces.get("critic"),
            "action_space": self.env.single_action_space,
            "agents": 1,
            "value_size": 1,
        }

    def seen(self) -> dict[str, Tensor]:
        """What actor and critic see now."""
        names = {"policy": "obs", "critic": "states"}
        return {names[group]: value for group, value in self.observations.items() if group in names}

    def reset(self) -> dict[str, Tensor]:
        """Start all environments anew."""
        self.observations = in_32_bits(self.env.reset()[0])
        return self.seen()

    def step(self, actions: Tensor) -> tuple[dict[str, Tensor], Tensor, Tensor, dict[str, Any]]:
        """One control step. An episode that failed in its last moment has not timed out."""
        actions = actions.clamp(-MAX_ACTION, MAX_ACTION)
        observations, reward, terminated, truncated, _ = self.env.step(actions)
        self.observations, reward = in_32_bits(observations), reward.float()
        return self.seen(), reward, terminated | truncated, {"time_outs": truncated & ~terminated}
