"""rl_games: PPO."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv
from genelab.envs.manager_based_env import one_thread
from genelab.errors import ConfigError
from genelab.rl.backends.base import (
    Actor,
    Backend,
    FlatPolicy,
    InferenceSetup,
    Learner,
    Observations,
    TrainContext,
    group_spaces,
    in_32_bits,
    need_library,
)
from genelab.rl.checkpoint import check_network, load_checkpoint, save_atomically, schema_of
from genelab.rl.config import RlGamesAgentCfg
from genelab.rl.monitor import TrainMonitor

try:
    from rl_games.algos_torch.a2c_continuous import A2CAgent
    from rl_games.algos_torch.model_builder import ModelBuilder
    from rl_games.algos_torch.running_mean_std import RunningMeanStd
    from rl_games.common.algo_observer import AlgoObserver
    from rl_games.common.ivecenv import IVecEnv
    from rl_games.common.tr_helpers import DefaultRewardsShaper
except ImportError:
    need_library("rl_games", "rl-games")
    raise

MAX_ACTION = 100.0
"""Actions are cut to ± this before the environment sees them."""


class RlGamesBackend(Backend):
    """Trains with rl_games' agent, epoch by epoch."""

    name = "rl_games"
    unit = "timesteps"

    def budget(self, agent: RlGamesAgentCfg) -> int:
        return agent.timesteps

    def set_budget(self, agent: RlGamesAgentCfg, budget: int) -> None:
        agent.timesteps = budget

    def algorithm(self, agent: RlGamesAgentCfg) -> str:
        return "PPO"

    def train(self, context: TrainContext) -> None:
        env = GenelabRlGamesVecEnv(context.env, context.monitor)
        context.monitor.learner = learner = RlGamesLearner(_make_agent(env, context.agent), env, context)
        if context.checkpoint is not None:
            learner.load_weights(
                load_checkpoint(context.checkpoint, self.name, context.env, to_learn=True), context.checkpoint
            )
        if context.resume is not None:
            learner.resume(context.resume)
        else:
            context.stagger_episodes()
        context.on_ready()
        learner.learn(context.budget, context.monitor)

    def load(
        self, env: ManagerBasedRlEnv, agent: RlGamesAgentCfg, checkpoint: Path, *, deterministic: bool = True
    ) -> InferenceSetup:
        content = load_checkpoint(checkpoint, self.name, env)
        agent = dataclasses.replace(agent, **content["network"])  # whatever the config says now
        model = _make_model(env, agent)
        model.load_state_dict(content["model"])
        return _inference(model, deterministic=deterministic)


class GenelabRlGamesVecEnv(IVecEnv):
    """A task as rl_games wants to see it: one flag for an episode's end, `critic` observations as states."""

    def __init__(self, env: ManagerBasedRlEnv, monitor: TrainMonitor | None = None) -> None:
        self.env = env
        self._monitor = monitor
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
        observations, reward, terminated, truncated, info = self.env.step(actions)
        self.observations, reward = in_32_bits(observations), reward.float()
        done = terminated | truncated
        if self._monitor is not None:
            self._monitor.step(reward, done, info)
        return self.seen(), reward, done, {"time_outs": truncated & ~terminated}


class RlGamesLearner(Learner):
    """rl_games' agent while it learns."""

    def __init__(self, agent: Any, env: GenelabRlGamesVecEnv, context: TrainContext) -> None:
        self.agent = agent
        self.env = env
        self._cfg: RlGamesAgentCfg = context.agent
        self._task_id = context.task_id

    def learn(self, budget: int, monitor: TrainMonitor) -> None:
        """Collect and learn until the budget is spent."""
        agent = self.agent
        agent.init_tensors()
        agent.obs = agent.obs_to_tensors(self.env.seen())
        while agent.epoch_num * agent.horizon_length < budget:
            agent.update_epoch()
            _, collect, learn, _, a_losses, c_losses, _, entropies, kls, rate, _ = agent.train_epoch()
            agent.dataset.update_values_dict(None)
            agent.frame += agent.curr_frames
            losses = {"policy": a_losses, "value": c_losses, "entropy": entropies, "kl": kls}
            monitor.iteration(
                self,
                done=agent.epoch_num * agent.horizon_length,
                env_steps=agent.curr_frames,
                collect_seconds=collect,
                learn_seconds=learn,
                scalars={
                    **{f"Loss/{name}": torch.stack(values).mean().item() for name, values in losses.items()},
                    **agent.central_value_losses,
                    "Loss/learning_rate": rate,
                    "Policy/mean_std": agent.model.a2c_network.sigma.detach().exp().mean().item(),
                },
            )

    def save(self, path: Path) -> None:
        meta = {"backend": RlGamesBackend.name, "task": self._task_id, "schema": schema_of(self.env.env)}
        weights = self.agent.get_full_state_weights()
        save_atomically({**weights, "network": _network_of(self._cfg), "genelab": meta}, path)

    def inference(self) -> InferenceSetup:
        with torch.random.fork_rng():  # a network is born with random weights; the learner must not notice
            model = _make_model(self.env.env, self._cfg)
        model.load_state_dict(self.agent.model.state_dict())
        return _inference(model)

    def weights(self) -> dict[str, Tensor]:
        return self.agent.model.state_dict()

    def load_weights(self, content: dict[str, Any], path: Path) -> None:
        """Start from the networks and normalisers of a checkpoint."""
        check_network(content["network"], _network_of(self._cfg), path)
        self.agent.model.load_state_dict(content["model"])
        if self.agent.has_central_value:
            self.agent.central_value_net.load_state_dict(content["assymetric_vf_nets"])

    def state(self) -> dict[str, Any]:
        return {
            "agent": self.agent.get_full_state_weights(),
            "learning_rate": self.agent.last_lr,
            "observations": {name: value.cpu() for name, value in self.env.observations.items()},
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Go on where an interrupted run stopped."""
        self.agent.set_full_state_weights(state["agent"])
        self.agent.last_lr = state["learning_rate"]
        self.env.observations = {name: value.to(self.env.env.device) for name, value in state["observations"].items()}


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


def _make_agent(env: GenelabRlGamesVecEnv, cfg: RlGamesAgentCfg) -> Any:
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
    params = _model_params(env.env, cfg)
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
        params["config"]["central_value_config"] = {**learning, "network": _network(cfg, central_value=True)}
    return _Agent(params)


def _network_of(cfg: RlGamesAgentCfg) -> dict[str, Any]:
    """The part of the config that the weights of a checkpoint are for."""
    keys = ("activation", "normalize_input", "normalize_value")
    return {"hidden_dims": tuple(cfg.hidden_dims), **{key: getattr(cfg, key) for key in keys}}


def _network(cfg: RlGamesAgentCfg, **kind: Any) -> dict[str, Any]:
    mlp = {"units": list(cfg.hidden_dims), "activation": cfg.activation, "initializer": {"name": "default"}}
    return {"name": "actor_critic", "mlp": mlp, **kind}


def _model_params(env: ManagerBasedRlEnv, cfg: RlGamesAgentCfg) -> dict[str, Any]:
    """The actor, and the critic if it has no observations of its own."""
    actions = {
        "mu_activation": "None",
        "sigma_activation": "None",
        "mu_init": {"name": "default"},
        "sigma_init": {"name": "const_initializer", "val": math.log(cfg.initial_std)},
        "fixed_sigma": True,
    }
    network = _network(cfg, separate="critic" not in group_spaces(env), space={"continuous": actions})
    return {"model": {"name": "continuous_a2c_logstd"}, "network": network}


def _make_model(env: ManagerBasedRlEnv, cfg: RlGamesAgentCfg) -> Any:
    """The network alone, as the agent builds it."""
    shape = group_spaces(env)["policy"].shape
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its layers
        model = (
            ModelBuilder()
            .load(_model_params(env, cfg))
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


def _inference(model: Any, *, deterministic: bool = True) -> InferenceSetup:
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
