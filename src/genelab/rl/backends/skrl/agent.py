"""skrl's agents and their memories from an agent config."""

from __future__ import annotations

import sys
from typing import Any

from skrl.agents.torch.a2c import A2C
from skrl.agents.torch.ddpg import DDPG
from skrl.agents.torch.ppo import PPO
from skrl.agents.torch.sac import SAC
from skrl.agents.torch.td3 import TD3
from skrl.memories.torch import RandomMemory
from skrl.resources.noises.torch import GaussianNoise
from skrl.resources.preprocessors.torch import RunningStandardScaler
from skrl.resources.schedulers.torch import KLAdaptiveLR

from genelab.rl.backends.skrl.config import SkrlAgentCfg
from genelab.rl.backends.skrl.models import ON_POLICY, make_models
from genelab.rl.backends.skrl.wrapper import GenelabSkrlWrapper

AGENTS = {"PPO": PPO, "A2C": A2C, "SAC": SAC, "TD3": TD3, "DDPG": DDPG}


def make_agent(env: GenelabSkrlWrapper, cfg: SkrlAgentCfg) -> Any:
    """The agent of an agent config, with its networks and its memory."""
    on_policy = cfg.algorithm in ON_POLICY
    memory = RandomMemory(
        memory_size=cfg.rollouts if on_policy else max(cfg.memory_size // env.num_envs, 1),
        num_envs=env.num_envs,
        device=env.device,
        replacement=not on_policy,  # a permutation of a large memory takes longer than learning from it
    )
    agent = AGENTS[cfg.algorithm](
        models=make_models(env.env, cfg),
        memory=memory,
        observation_space=env.observation_space,
        state_space=env.state_space,
        action_space=env.action_space,
        device=env.device,
        cfg={
            "discount_factor": cfg.discount_factor,
            "learning_rate": cfg.learning_rate,
            "experiment": {"write_interval": 0, "checkpoint_interval": 0},
            **_normalisers(env, cfg),
            **(_on_policy_cfg(cfg) if on_policy else _off_policy_cfg(env, cfg)),
        },
    )
    agent.init()
    if cfg.algorithm == "SAC":
        agent.write_interval = sys.maxsize  # it keeps its losses only if it believes that it will write them
    return agent


def _normalisers(env: GenelabSkrlWrapper, cfg: SkrlAgentCfg) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    if cfg.normalize_observations:
        sizes |= {"observation": env.observation_space, "state": env.state_space}
    if cfg.normalize_values and cfg.algorithm in ON_POLICY:
        sizes["value"] = 1
    keys: dict[str, Any] = {}
    for name, size in sizes.items():
        if size is not None:
            keys[f"{name}_preprocessor"] = RunningStandardScaler
            keys[f"{name}_preprocessor_kwargs"] = {"size": size, "device": env.device}
    return keys


def _on_policy_cfg(cfg: SkrlAgentCfg) -> dict[str, Any]:
    keys: dict[str, Any] = {
        "rollouts": cfg.rollouts,
        "mini_batches": cfg.mini_batches,
        "gae_lambda": cfg.gae_lambda,
        "entropy_loss_scale": cfg.entropy_loss_scale,
        "grad_norm_clip": cfg.grad_norm_clip,
        "time_limit_bootstrap": True,
    }
    if cfg.algorithm == "PPO":
        keys |= {
            "learning_epochs": cfg.learning_epochs,
            "ratio_clip": cfg.ratio_clip,
            "value_loss_scale": cfg.value_loss_scale,
        }
        if cfg.kl_threshold > 0:
            keys["learning_rate_scheduler"] = KLAdaptiveLR
            keys["learning_rate_scheduler_kwargs"] = {"kl_threshold": cfg.kl_threshold}
    return keys


def _off_policy_cfg(env: GenelabSkrlWrapper, cfg: SkrlAgentCfg) -> dict[str, Any]:
    keys: dict[str, Any] = {
        "batch_size": cfg.batch_size,
        "gradient_steps": cfg.gradient_steps,
        "polyak": cfg.polyak,
        "random_timesteps": cfg.learning_starts,
        "learning_starts": cfg.learning_starts,
    }
    if cfg.algorithm == "SAC":
        return keys | {
            "initial_entropy_value": cfg.entropy_coefficient,
            "learn_entropy": cfg.learn_entropy,
            "target_entropy": cfg.target_entropy,
        }
    noises = {"exploration_noise": cfg.exploration_noise}
    if cfg.algorithm == "TD3":
        keys["policy_delay"] = cfg.policy_delay
        noises["smooth_regularization_noise"] = cfg.target_noise
    for name, std in noises.items():
        keys |= {name: GaussianNoise, f"{name}_kwargs": {"mean": 0.0, "std": std, "device": env.device}}
    return keys
