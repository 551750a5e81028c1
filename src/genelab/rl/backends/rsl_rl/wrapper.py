"""A task as rsl_rl sees it."""

from __future__ import annotations

from typing import Any

from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv
from genelab.rl.backends.base import Observations, in_32_bits


class RslRlVecEnvWrapper(VecEnv):
    """A task as rsl_rl wants to see it: observations in a TensorDict, one flag for an episode's end."""

    def __init__(self, env: ManagerBasedRlEnv, clip_actions: float | None) -> None:
        self.env = env
        self.cfg = env.cfg
        self.num_envs = env.num_envs
        self.num_actions = env.action_dim
        self.max_episode_length = env.max_episode_length
        self.device = env.device
        self._clip = clip_actions
        self._observations = env.reset()[0]

    @property
    def unwrapped(self) -> ManagerBasedRlEnv:
        """The task itself."""
        return self.env

    @property
    def episode_length_buf(self) -> Tensor:
        """Age of each environment's episode, in control steps."""
        return self.env.episode_length_buf

    @episode_length_buf.setter
    def episode_length_buf(self, value: Tensor) -> None:
        self.env.episode_length_buf = value

    def get_observations(self) -> Any:
        """The observations of the last step."""
        return tensordict(self._observations, self.num_envs)

    def set_observations(self, observations: Observations) -> None:
        """Go on from the observations of an interrupted run."""
        self._observations = {name: value.to(self.device) for name, value in observations.items()}

    def step(self, actions: Tensor) -> tuple[Any, Tensor, Tensor, dict[str, Any]]:
        """One control step. An episode that failed in its last moment has not timed out."""
        if self._clip is not None:
            actions = actions.clamp(-self._clip, self._clip)
        self._observations, reward, terminated, truncated, extras = self.env.step(actions)
        return self.get_observations(), reward, (terminated | truncated).long(), extras


def tensordict(observations: Observations, count: int) -> TensorDict:
    """Observations by group, as rsl_rl's networks take them."""
    return TensorDict(in_32_bits(observations), batch_size=[count])
