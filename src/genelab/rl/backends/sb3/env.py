"""A task as Stable-Baselines3 sees it, and a policy of Stable-Baselines3 as the lab sees it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from torch import Tensor, nn

from genelab.envs import ManagerBasedRlEnv
from genelab.errors import UsageError
from genelab.rl.backends.base import Actor, FlatPolicy, InferenceSetup, Observations
from genelab.rl.backends.sb3.config import Sb3HerCfg

GOAL_GROUPS = ("observation", "achieved_goal", "desired_goal")
"""Observation groups of a task with goals, which has no group `policy`."""

Statistics = dict[str, dict[str, Any]]
"""Mean, variance and count of every observation group and what is added to the variance, as plain numbers."""

_RAW = "raw_terminal_observation"
_CLIP = 10.0
_EPSILON = 1e-4
"""Added to a variance: what hardly moves at first, a cube that lies, is not blown up when it does."""
_OLD_EPSILON = 1e-8
"""The same in statistics that do not tell."""


def groups_of(env: ManagerBasedRlEnv, *, goals: bool) -> tuple[str, ...]:
    """The observation groups that the policy sees."""
    groups = env.observation_manager.groups
    wanted = GOAL_GROUPS if goals or "policy" not in groups else ("policy",)
    missing = [name for name in wanted if name not in groups]
    if missing:
        raise UsageError(f"this task has no observation group {missing[0]!r}, only {', '.join(groups)}")
    return wanted


def observation_space(env: ManagerBasedRlEnv, groups: Sequence[str]) -> spaces.Space[Any]:
    """A vector, or a dict of three for a task with goals."""
    widths = {name: env.observation_manager.groups[name].dim for name in groups}
    boxes: dict[str, spaces.Space[Any]] = {
        name: spaces.Box(-np.inf, np.inf, (width,), np.float32) for name, width in widths.items()
    }
    return boxes["policy"] if "policy" in boxes else spaces.Dict(boxes)


def action_space(env: ManagerBasedRlEnv, bound: float) -> spaces.Box:
    """Actions within ± the bound, which is also where random ones are drawn from."""
    return spaces.Box(-bound, bound, (env.action_dim,), np.float32)


class GenelabSb3VecEnv(VecEnv):
    """A task as SB3's vector environment: arrays in host memory, copied in every step."""

    def __init__(
        self,
        env: ManagerBasedRlEnv,
        *,
        action_bound: float = 1.0,
        her: Sb3HerCfg | None = None,
    ) -> None:
        self.env = env
        self.groups = groups_of(env, goals=her is not None)
        self._her = her
        self._nothing: list[dict[str, Any]] = [{}] * env.num_envs  # SB3 writes only into infos of episodes that ended
        self._actions = torch.zeros(env.num_envs, env.action_dim, device=env.device, dtype=env.dtype)
        super().__init__(env.num_envs, observation_space(env, self.groups), action_space(env, action_bound))

    @property
    def has_goals(self) -> bool:
        """Whether the observation is a dict with goals."""
        return self.groups == GOAL_GROUPS

    def reset(self) -> Any:
        """Start all environments anew, from the seed if one was given since the last time."""
        observations, _ = self.env.reset(seed=self._seeds[0])
        self._reset_seeds()
        self._reset_options()
        return self._seen(observations)

    def step_async(self, actions: np.ndarray) -> None:
        """Take the actions of the next step."""
        self._actions = torch.as_tensor(actions, device=self.env.device, dtype=self.env.dtype)

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """One control step."""
        observations, reward, terminated, truncated, extras = self.env.step(self._actions)
        dones = _array(terminated | truncated)
        infos = self._infos(dones, _array(truncated & ~terminated), extras) if dones.any() else self._nothing
        # SB3 adds the value of a time-out to the rewards, so they must be its own.
        return self._seen(observations), _array(reward, torch.float32), dones, infos

    def _infos(self, dones: np.ndarray, time_outs: np.ndarray, extras: dict[str, Any]) -> list[dict[str, Any]]:
        """What SB3 has to know of the episodes that ended: their last observation, whether and how well they ended."""
        infos = list(self._nothing)
        last = self._seen(extras["final_obs"])
        success = _array(extras["is_success"]) if "is_success" in extras else None
        for i in np.flatnonzero(dones):
            row = {name: value[i] for name, value in last.items()} if isinstance(last, dict) else last[i]
            infos[i] = {"terminal_observation": row, "TimeLimit.truncated": bool(time_outs[i]), _RAW: row}
            if success is not None:
                infos[i]["is_success"] = bool(success[i])
        return infos

    def _seen(self, observations: Observations) -> Any:
        arrays = {name: _array(observations[name], torch.float32) for name in self.groups}
        return arrays if self.has_goals else arrays["policy"]

    def compute_reward(self, achieved: np.ndarray, desired: np.ndarray, infos: Any) -> np.ndarray:
        """Rewards that transitions would have had for other goals."""
        if self._her is None:
            raise UsageError("compute_reward is for hindsight experience replay: set agent.her")
        rewards = np.asarray(self._her.compute_reward(achieved, desired, infos))
        if rewards.shape != (len(achieved),):
            raise UsageError(f"agent.her.compute_reward must return shape ({len(achieved)},), got {rewards.shape}")
        return rewards

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Call a method; all environments are one, so it is called once and the answer repeated."""
        owner = self if method_name == "compute_reward" else self.env
        return [getattr(owner, method_name)(*args, **kwargs)] * self._count(indices)

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of the task, once for each environment."""
        return [getattr(self.env, attr_name)] * self._count(indices)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of the task, for all environments."""
        setattr(self.env, attr_name, value)

    def env_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper], indices: Any = None) -> list[bool]:
        """Never: there are no single environments to wrap."""
        return [False] * self._count(indices)

    def close(self) -> None:
        """Free the engine."""
        self.env.close()

    def _count(self, indices: int | Iterable[int] | None) -> int:
        return len(list(self._get_indices(indices)))


class _ReplayNormalize(VecNormalize):
    """A normaliser for learners that store observations as they were, and normalise what they draw from the store.

    SB3 itself would store an episode's last observation normalised, clipped and taken back: a cube that was lifted
    for the first time would be stored where the clip is.
    """

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        observations, rewards, dones, infos = super().step_wait()
        for i in np.flatnonzero(dones):
            infos[i]["terminal_observation"] = infos[i][_RAW]
        return observations, rewards, dones, infos

    def unnormalize_obs(self, obs: Any) -> Any:
        """What SB3 asks it of are terminal observations, which are as they were."""
        return obs


def normalized(env: GenelabSb3VecEnv, *, replay: bool) -> VecNormalize:
    """The environment with observations normalised by their running mean and variance; rewards as they are.

    Goals that were reached and goals that were asked for are the same kind of thing, and one is put for the other in
    hindsight: they have one mean and variance.
    """
    kind = _ReplayNormalize if replay else VecNormalize
    normalizer = kind(env, norm_reward=False, clip_obs=_CLIP, epsilon=_EPSILON)
    running = _running(normalizer)
    if env.has_goals and running["achieved_goal"].mean.shape == running["desired_goal"].mean.shape:
        running["desired_goal"] = running["achieved_goal"]
    return normalizer


def show_observations(normalizer: VecNormalize, observations: Mapping[str, np.ndarray]) -> None:
    """Let a normaliser learn from observations by group, `(…, width)`, that no step gave."""
    for name, rms in _running(normalizer).items():
        values = observations[name]
        rms.update(values.reshape(-1, values.shape[-1]))


def get_statistics(normalizer: VecNormalize | None) -> Statistics | None:
    """What a normaliser has learned; None for no normaliser."""
    if normalizer is None:
        return None
    return {
        name: {
            "mean": rms.mean.tolist(),
            "var": rms.var.tolist(),
            "count": float(rms.count),
            "epsilon": normalizer.epsilon,
        }
        for name, rms in _running(normalizer).items()
    }


def set_statistics(normalizer: VecNormalize, statistics: Statistics) -> None:
    """Put back what `get_statistics` gave."""
    running = _running(normalizer)
    if statistics.get("achieved_goal") != statistics.get("desired_goal"):
        running["desired_goal"] = running["desired_goal"].copy()  # the two were learned apart
    for name, rms in running.items():
        saved = statistics[name]
        rms.mean, rms.var, rms.count = np.array(saved["mean"]), np.array(saved["var"]), saved["count"]
        normalizer.epsilon = saved.get("epsilon", _OLD_EPSILON)


def _running(normalizer: VecNormalize) -> dict[str, Any]:
    return normalizer.obs_rms if isinstance(normalizer.obs_rms, dict) else {"policy": normalizer.obs_rms}


class Sb3Actor(nn.Module):
    """From observations by group to actions, number by number what SB3's `predict` gives on normalised observations.

    With `own=True` it acts with a copy of the policy's network as it is now.
    """

    def __init__(
        self, policy: Any, statistics: Statistics | None, *, deterministic: bool = True, own: bool = False
    ) -> None:
        super().__init__()
        network = getattr(policy, "actor", policy)
        space = policy.observation_space
        self.network = _copy_of(network) if own else network
        self.groups = GOAL_GROUPS if isinstance(space, spaces.Dict) else ("policy",)
        boxes = space.spaces if isinstance(space, spaces.Dict) else {"policy": space}
        self.widths = {name: spaces.flatdim(boxes[name]) for name in self.groups}
        self.squash: bool = policy.squash_output
        self.bound = float(policy.action_space.high[0])
        self.deterministic = deterministic
        self.normalizes = statistics is not None
        for name, numbers in (statistics or {}).items():
            mean, var = (torch.tensor(numbers[key], dtype=torch.float64) for key in ("mean", "var"))
            self.register_buffer(f"{name}_mean", mean)
            self.register_buffer(f"{name}_std", (var + numbers.get("epsilon", _OLD_EPSILON)).sqrt())

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Actions `(num_envs, action_dim)`."""
        seen = {name: self._normalize(name, observations[name]) for name in self.groups}
        action = self.network._predict(seen if len(seen) > 1 else seen["policy"], deterministic=self.deterministic)
        if self.squash:
            return -self.bound + 0.5 * (action + 1.0) * (2.0 * self.bound)  # as SB3 rounds it
        return action.clamp(-self.bound, self.bound)

    def _normalize(self, name: str, value: Tensor) -> Tensor:
        if self.normalizes:
            value = (value.double() - self.get_buffer(f"{name}_mean")) / self.get_buffer(f"{name}_std")
            value = value.clamp(-_CLIP, _CLIP)
        return value.float()

    def setup(self, device: torch.device, algorithm: str) -> InferenceSetup:
        """Ready to act on this device."""
        policy = self.to(device).eval().requires_grad_(False)
        if not self.deterministic:
            return InferenceSetup(policy=policy)
        actor = Actor(
            network=FlatPolicy(policy, self.widths, policy),
            algorithm=algorithm,
            normalizes=self.normalizes,
            action_range=(-self.bound, self.bound),
            groups=self.groups,
        )
        return InferenceSetup(policy=policy, actor=actor)


def _copy_of(network: Any) -> Any:
    """A network as it is now, while the original goes on learning; nothing random is drawn."""
    memo: dict[int, Any] = {id(network.optimizer): None}
    if hasattr(network, "action_dist"):  # it holds tensors of the last gradient step, which cannot be copied deeply
        memo[id(network.action_dist)] = copy.copy(network.action_dist)
    return copy.deepcopy(network, memo)


def _array(values: Tensor, dtype: torch.dtype | None = None) -> np.ndarray:
    """A copy in host memory."""
    return values.to("cpu", dtype, copy=True).numpy()
