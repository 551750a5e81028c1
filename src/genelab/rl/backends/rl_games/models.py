"""Networks for rl_games' agent."""

from __future__ import annotations

import contextlib
import io
import math
from typing import Any

import torch
from rl_games.algos_torch.model_builder import ModelBuilder
from rl_games.algos_torch.running_mean_std import RunningMeanStd
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv
from genelab.rl.backends.base import Actor, FlatPolicy, InferenceSetup, Observations, group_spaces
from genelab.rl.backends.rl_games.config import RlGamesAgentCfg

MAX_ACTION = 100.0
"""Actions are cut to ± this before the environment sees them."""


def network_of(cfg: RlGamesAgentCfg) -> dict[str, Any]:
    """The part of the config that the weights of a checkpoint are for."""
    keys = ("activation", "normalize_input", "normalize_value")
    return {"hidden_dims": tuple(cfg.hidden_dims), **{key: getattr(cfg, key) for key in keys}}


def layers(cfg: RlGamesAgentCfg, **kind: Any) -> dict[str, Any]:
    """A network as rl_games' dict."""
    mlp = {"units": list(cfg.hidden_dims), "activation": cfg.activation, "initializer": {"name": "default"}}
    return {"name": "actor_critic", "mlp": mlp, **kind}


def model_params(env: ManagerBasedRlEnv, cfg: RlGamesAgentCfg) -> dict[str, Any]:
    """The actor, and the critic if it has no observations of its own."""
    actions = {
        "mu_activation": "None",
        "sigma_activation": "None",
        "mu_init": {"name": "default"},
        "sigma_init": {"name": "const_initializer", "val": math.log(cfg.initial_std)},
        "fixed_sigma": True,
    }
    network = layers(cfg, separate="critic" not in group_spaces(env), space={"continuous": actions})
    return {"model": {"name": "continuous_a2c_logstd"}, "network": network}


def make_model(env: ManagerBasedRlEnv, cfg: RlGamesAgentCfg) -> Any:
    """The network alone, as the agent builds it."""
    shape = group_spaces(env)["policy"].shape
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its layers
        model = (
            ModelBuilder()
            .load(model_params(env, cfg))
            .build(
                {
                    "actions_num": env.action_dim,
                    "input_shape": shape,
                    "num_seqs": env.num_envs,
                    "value_size": 1,
                    "normalize_value": cfg.normalize_value,
                    "normalize_input": cfg.normalize_input,
                }
            )
        )
        if cfg.normalize_input:
            model.running_mean_std = RunningMeanStd(shape)  # the agent's is a script, which cannot be exported
    return model.to(env.device)


def inference_of(model: Any, *, deterministic: bool = True) -> InferenceSetup:
    model.eval().requires_grad_(False)

    def act(observations: Observations) -> Tensor:
        mean, log_std, _, _ = model.a2c_network({"obs": model.norm_obs(observations["policy"].float())})
        actions = mean if deterministic else torch.normal(mean, log_std.exp())
        return actions.clamp(-MAX_ACTION, MAX_ACTION)

    if not deterministic:
        return InferenceSetup(policy=act)
    actor = Actor(
        network=FlatPolicy(act, {"policy": model.obs_shape[0]}, model),
        algorithm="PPO",
        normalizes=model.normalize_input,
        action_range=(-MAX_ACTION, MAX_ACTION),
    )
    return InferenceSetup(policy=act, actor=actor)
