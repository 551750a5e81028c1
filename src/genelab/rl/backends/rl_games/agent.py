"""rl_games' agent from an agent config."""

from __future__ import annotations

import contextlib
import io
import tempfile
from typing import Any

import torch
from rl_games.algos_torch.a2c_continuous import A2CAgent
from rl_games.common.algo_observer import AlgoObserver
from rl_games.common.tr_helpers import DefaultRewardsShaper

from genelab.envs.manager_based_env import one_thread
from genelab.errors import ConfigError
from genelab.rl.backends.base import group_spaces
from genelab.rl.backends.rl_games.config import RlGamesAgentCfg
from genelab.rl.backends.rl_games.env import GenelabRlGamesVecEnv
from genelab.rl.backends.rl_games.models import layers, model_params


class _Agent(A2CAgent):
    """rl_games' PPO agent, without its files."""

    writer: Any

    def __init__(self, params: dict[str, Any]) -> None:
        self.central_value_losses: dict[str, float] = {}
        with tempfile.TemporaryDirectory() as path, contextlib.redirect_stdout(io.StringIO()):
            params["config"]["train_dir"] = path
            super().__init__("genelab", params)
            self.writer.close()
        self.writer = None
        if self.has_central_value:
            self.central_value_net.writter = None

    def play_steps(self) -> dict[str, Any]:
        with one_thread(torch.device(self.ppo_device)):
            return super().play_steps()

    def train_central_value(self) -> float:
        loss = super().train_central_value()
        self.central_value_losses = {"Loss/value": loss}
        return loss


def make_agent(env: GenelabRlGamesVecEnv, cfg: RlGamesAgentCfg) -> Any:
    """The agent of an agent config, with its networks."""
    device, num_envs = str(env.env.device), env.env.num_envs
    batch_size = cfg.horizon_length * num_envs
    if batch_size % cfg.num_minibatches:
        raise ConfigError(
            f"agent.num_minibatches: {cfg.num_minibatches} equal parts cannot be made of the {batch_size} steps"
            f" of an iteration (agent.horizon_length {cfg.horizon_length} × {num_envs} environments)"
        )
    learning = {
        "learning_rate": cfg.learning_rate,
        "minibatch_size": batch_size // cfg.num_minibatches,
        "mini_epochs": cfg.mini_epochs,
        "normalize_input": cfg.normalize_input,
        "clip_value": True,
        "e_clip": cfg.e_clip,
        "truncate_grads": True,
        "grad_norm": cfg.grad_norm,
    }
    params = model_params(env.env, cfg)
    params["config"] = {
        **learning,
        "name": "genelab",
        "env_name": "genelab",
        "vec_env": env,
        "env_info": env.get_env_info(),
        "features": {"observer": AlgoObserver()},
        "device": device,
        "num_actors": num_envs,
        "horizon_length": cfg.horizon_length,
        "seq_length": 1,  # of a recurrent policy; the batch must be divisible by it nevertheless
        "lr_schedule": cfg.lr_schedule,
        "schedule_type": "standard",
        "kl_threshold": cfg.kl_threshold,
        "gamma": cfg.gamma,
        "tau": cfg.tau,
        "entropy_coef": cfg.entropy_coef,
        "critic_coef": cfg.critic_coef,
        "bounds_loss_coef": 0.0,  # without one, rl_games fails
        "normalize_advantage": True,
        "normalize_value": cfg.normalize_value,
        "reward_shaper": DefaultRewardsShaper(),
        "value_bootstrap": True,
        "clip_actions": False,
        "use_experimental_cv": False,
    }
    if "critic" in group_spaces(env.env):
        params["config"]["central_value_config"] = {**learning, "network": layers(cfg, central_value=True)}
    return _Agent(params)
