"""Models of Stable-Baselines3 from an agent config."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any

import numpy as np
import stable_baselines3 as sb3
from gymnasium import spaces
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.noise import NormalActionNoise
from torch import nn

from genelab.rl.backends.sb3.config import Sb3AgentCfg
from genelab.rl.backends.sb3.env import GenelabSb3VecEnv, normalized

_ACTIVATIONS = {"elu": nn.ELU, "relu": nn.ReLU, "tanh": nn.Tanh, "silu": nn.SiLU, "leaky_relu": nn.LeakyReLU}
_WORTH_SHARING = 50_000_000
"""Multiplications per layer and gradient step from which on several threads are faster than one."""


def make_model(env: GenelabSb3VecEnv, agent: Sb3AgentCfg) -> Any:
    """The algorithm, complete but for its first observation; it writes nothing by itself."""
    normalize = agent.is_on_policy if agent.obs_normalization is None else agent.obs_normalization
    cfg = _on_policy_cfg(agent, env.num_envs) if agent.is_on_policy else _off_policy_cfg(agent, env)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a last batch that is smaller, and memory that is not used yet
        model = getattr(sb3, agent.algorithm)(
            _policy_name(env.observation_space),
            normalized(env, replay=not agent.is_on_policy) if normalize else env,
            learning_rate=agent.learning_rate,
            gamma=agent.gamma,
            policy_kwargs=_policy_cfg(agent),
            seed=agent.seed,
            device="cpu" if agent.is_on_policy else env.env.device,  # as SB3 recommends
            **cfg,
        )
    if agent.her is not None:
        model.replay_buffer.infos = np.empty(0)  # a dict for every transition, 72 MB of them for a million; never read
    model.set_logger(Logger(folder=None, output_formats=[]))
    return model


def is_small(model: Any) -> bool:
    """Whether a gradient step is too little work to share between threads: on a busy machine that takes far longer."""
    widest = max(model.policy_kwargs["net_arch"], default=1)
    batch = getattr(model, "batch_size", model.n_envs * getattr(model, "n_steps", 1))  # A2C has no mini-batches
    return batch * widest**2 < _WORTH_SHARING


def make_policy(agent: Sb3AgentCfg, observations: spaces.Space[Any], actions: spaces.Box) -> Any:
    """The networks alone."""
    make = getattr(sb3, agent.algorithm).policy_aliases[_policy_name(observations)]
    return make(observations, actions, lambda progress: 0.0, **_policy_cfg(agent))


def _policy_name(observations: spaces.Space[Any]) -> str:
    return "MultiInputPolicy" if isinstance(observations, spaces.Dict) else "MlpPolicy"


def _policy_cfg(agent: Sb3AgentCfg) -> dict[str, Any]:
    cfg: dict[str, Any] = {
        "net_arch": list(agent.hidden_dims),
        "activation_fn": _ACTIVATIONS[agent.activation],
    }
    if agent.is_on_policy:
        cfg["log_std_init"] = math.log(agent.on_policy.init_std)
    else:
        cfg["optimizer_kwargs"] = {"fused": True}  # Adam's step is a tenth of a small gradient step on a CPU, or a 40th
    if agent.algorithm == "DDPG":
        cfg["n_critics"] = 1
    return cfg


def _on_policy_cfg(agent: Sb3AgentCfg, num_envs: int) -> dict[str, Any]:
    cfg = dataclasses.asdict(agent.on_policy)
    del cfg["init_std"]
    if agent.algorithm == "A2C":
        return {name: value for name, value in cfg.items() if name not in ("n_epochs", "batch_size", "clip_range")}
    cfg["batch_size"] = cfg["batch_size"] or max(2, agent.on_policy.n_steps * num_envs // 4)
    return cfg


def _off_policy_cfg(agent: Sb3AgentCfg, env: GenelabSb3VecEnv) -> dict[str, Any]:
    cfg = dataclasses.asdict(agent.off_policy)
    del cfg["iteration_steps"]
    std, init_ent_coef = cfg.pop("action_noise"), cfg.pop("init_ent_coef")
    if cfg["ent_coef"] == "auto":
        cfg["ent_coef"] = f"auto_{init_ent_coef}"
    if agent.algorithm != "SAC":
        del cfg["ent_coef"]
        std = 0.1 if std is None else std
    if std:
        dim = env.env.action_dim
        cfg["action_noise"] = NormalActionNoise(np.zeros(dim), np.full(dim, std))
    if agent.her is not None:
        cfg["replay_buffer_class"] = sb3.HerReplayBuffer
        cfg["replay_buffer_kwargs"] = {
            "n_sampled_goal": agent.her.n_sampled_goal,
            "goal_selection_strategy": agent.her.goal_selection_strategy,
        }
    return cfg
