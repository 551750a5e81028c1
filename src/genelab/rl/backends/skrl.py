"""skrl: PPO, A2C, SAC, TD3, DDPG."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn

from genelab.envs import ManagerBasedRlEnv
from genelab.envs.manager_based_env import one_thread
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
from genelab.rl.config import SkrlAgentCfg
from genelab.rl.monitor import TrainMonitor

try:
    from skrl.agents.torch.a2c import A2C
    from skrl.agents.torch.ddpg import DDPG
    from skrl.agents.torch.ppo import PPO
    from skrl.agents.torch.sac import SAC
    from skrl.agents.torch.td3 import TD3
    from skrl.envs.wrappers.torch import Wrapper
    from skrl.memories.torch import RandomMemory
    from skrl.resources.noises.torch import GaussianNoise
    from skrl.resources.preprocessors.torch import RunningStandardScaler
    from skrl.resources.schedulers.torch import KLAdaptiveLR

    from genelab.rl.backends.skrl_models import MAX_ACTION, ON_POLICY, make_models, make_policy, make_scaler
except ImportError:
    need_library("skrl", "skrl")
    raise

AGENTS = {"PPO": PPO, "A2C": A2C, "SAC": SAC, "TD3": TD3, "DDPG": DDPG}
SCALARS = {
    "Loss / Policy loss": "Loss/policy",
    "Loss / Value loss": "Loss/value",
    "Loss / Critic loss": "Loss/critic",
    "Loss / Entropy loss": "Loss/entropy",
    "Policy / Standard deviation": "Policy/mean_std",
    "Coefficient / Entropy coefficient": "Policy/entropy_coefficient",
}
"""What skrl's agents report, and what it is called here."""


class SkrlBackend(Backend):
    """Trains with skrl's agents and memories, in a loop of its own."""

    name = "skrl"
    unit = "timesteps"

    def budget(self, agent: SkrlAgentCfg) -> int:
        return agent.timesteps

    def set_budget(self, agent: SkrlAgentCfg, budget: int) -> None:
        agent.timesteps = budget

    def train(self, context: TrainContext) -> None:
        cfg = context.agent
        env = GenelabSkrlWrapper(context.env, MAX_ACTION if cfg.algorithm in ON_POLICY else 1.0, context.monitor)
        context.monitor.learner = learner = SkrlLearner(_make_agent(env, cfg), env, context)
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
        self, env: ManagerBasedRlEnv, agent: SkrlAgentCfg, checkpoint: Path, *, deterministic: bool = True
    ) -> InferenceSetup:
        content = load_checkpoint(checkpoint, self.name, env)
        agent = dataclasses.replace(agent, **content["network"])  # whatever the config says now
        policy, scaler = make_policy(env, agent), make_scaler(env, agent)
        policy.load_state_dict(content["policy"])
        if scaler is not None:
            scaler.load_state_dict(content["observation_preprocessor"])
        return _inference(policy, scaler, agent, deterministic=deterministic)


class GenelabSkrlWrapper(Wrapper):
    """A task as skrl wants to see it: `policy` observations, `critic` observations as states, columns for the rest."""

    def __init__(self, env: ManagerBasedRlEnv, clip_actions: float, monitor: TrainMonitor | None = None) -> None:
        super().__init__(env)
        self.env = env
        self._clip = clip_actions
        self._monitor = monitor
        self.reset()

    @property
    def observation_space(self) -> gymnasium.Space:
        """What the actor sees."""
        return group_spaces(self.env)["policy"]

    @property
    def state_space(self) -> gymnasium.Space | None:
        """What the critic sees; None: the same."""
        return group_spaces(self.env).get("critic")

    @property
    def action_space(self) -> gymnasium.Space:
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
        if self._monitor is not None:
            self._monitor.step(reward, terminated | truncated, info)
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


class SkrlLearner(Learner):
    """A skrl agent while it learns."""

    def __init__(self, agent: Any, env: GenelabSkrlWrapper, context: TrainContext) -> None:
        self.agent = agent
        self.env = env
        self.timestep = 0
        self._cfg: SkrlAgentCfg = context.agent
        self._task_id = context.task_id

    def learn(self, budget: int, monitor: TrainMonitor) -> None:
        """Collect and learn until the budget is spent."""
        self.agent.enable_training_mode(True)
        on_policy = self._cfg.algorithm in ON_POLICY
        steps, collect, learn = 0, 0.0, 0.0
        while self.timestep < budget:
            start = time.perf_counter()
            with one_thread(self.env.device):
                self._collect(budget)
            middle = time.perf_counter()
            with contextlib.nullcontext() if on_policy else one_thread(self.env.device):  # a small batch, often
                self.agent.post_interaction(timestep=self.timestep, timesteps=budget)
            self.timestep += 1
            steps, collect, learn = steps + 1, collect + middle - start, learn + time.perf_counter() - middle
            if self.timestep % self._cfg.rollouts == 0 or self.timestep == budget:
                monitor.iteration(
                    self,
                    done=self.timestep,
                    env_steps=steps * self.env.num_envs,
                    collect_seconds=collect,
                    learn_seconds=learn,
                    scalars=self._scalars(),
                )
                steps, collect, learn = 0, 0.0, 0.0

    @torch.no_grad()
    def _collect(self, budget: int) -> None:
        clock = {"timestep": self.timestep, "timesteps": budget}
        observations, states = self.env.observations["policy"], self.env.state()
        actions, _ = self.agent.act(observations, states, **clock)
        _, rewards, terminated, truncated, info = self.env.step(actions)
        self.agent.record_transition(
            observations=observations,
            states=states,
            actions=actions,
            rewards=rewards.clone(),  # skrl adds the value of a time-out to it
            next_observations=self.env.outcome["policy"],
            next_states=self.env.outcome.get("critic"),
            terminated=terminated,
            truncated=truncated,
            infos=info,
            **clock,
        )

    def _scalars(self) -> dict[str, float]:
        found = {name: self.agent.tracking_data.get(key) for key, name in SCALARS.items()}
        self.agent.tracking_data.clear()
        optimizer = self.agent.optimizer if self._cfg.algorithm in ON_POLICY else self.agent.policy_optimizer
        rate = {"Loss/learning_rate": optimizer.param_groups[0]["lr"]}
        return {name: sum(values) / len(values) for name, values in found.items() if values} | rate

    def save(self, path: Path) -> None:
        meta = {"backend": SkrlBackend.name, "task": self._task_id, "schema": schema_of(self.env.env)}
        save_atomically({**self._modules(), "network": _network_of(self._cfg), "genelab": meta}, path)

    def inference(self) -> InferenceSetup:
        with torch.random.fork_rng():  # a network is born with random weights; the learner must not notice
            policy, scaler = make_policy(self.env.env, self._cfg), make_scaler(self.env.env, self._cfg)
        policy.load_state_dict(self.agent.policy.state_dict())
        if scaler is not None:
            scaler.load_state_dict(self.agent.checkpoint_modules["observation_preprocessor"].state_dict())
        return _inference(policy, scaler, self._cfg)

    def weights(self) -> dict[str, Tensor]:
        modules = self.agent.checkpoint_modules.items()
        states = {name: module.state_dict() for name, module in modules if isinstance(module, nn.Module)}
        return {f"{name}.{key}": value for name, state in states.items() for key, value in state.items()}

    def _modules(self) -> dict[str, Any]:
        """Networks, normalisers and optimizers."""
        return {name: module.state_dict() for name, module in self.agent.checkpoint_modules.items()}

    def load_weights(self, content: dict[str, Any], path: Path) -> None:
        """Start from the networks and normalisers of a checkpoint."""
        check_network(content["network"], _network_of(self._cfg), path)
        for name, module in self.agent.checkpoint_modules.items():
            if isinstance(module, nn.Module):
                module.load_state_dict(content[name])

    def state(self) -> dict[str, Any]:
        memory = self.agent.memory
        # An on-policy memory is empty after an update, although its rows are still there.
        full = memory.filled and self._cfg.algorithm not in ON_POLICY
        rows = memory.memory_size if full else memory.memory_index
        entropy = getattr(self.agent, "log_entropy_coefficient", None)
        return {
            "timestep": self.timestep,
            "updates": getattr(self.agent, "_update_counter", 0),
            "modules": self._modules(),
            "log_entropy_coefficient": None if entropy is None else entropy.detach().cpu(),
            "observations": {name: value.cpu() for name, value in self.env.observations.items()},
            "memory": {name: values[:rows].to("cpu", copy=True) for name, values in memory.tensors.items()},
            "memory_index": memory.memory_index,
            "memory_filled": memory.filled,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Go on where an interrupted run stopped."""
        agent, memory = self.agent, self.agent.memory
        self.timestep = agent._rollout = state["timestep"]
        agent._update_counter = state["updates"]
        for name, module in agent.checkpoint_modules.items():
            module.load_state_dict(state["modules"][name])
        if state["log_entropy_coefficient"] is not None:
            agent.log_entropy_coefficient.data.copy_(state["log_entropy_coefficient"])
            agent._entropy_coefficient = agent.log_entropy_coefficient.detach().exp()
        self.env.observations = {name: value.to(self.env.device) for name, value in state["observations"].items()}
        for name, values in state["memory"].items():
            memory.tensors[name][: len(values)] = values.to(memory.device)
        memory.memory_index, memory.filled = state["memory_index"], state["memory_filled"]


def _network_of(cfg: SkrlAgentCfg) -> dict[str, Any]:
    """The part of the config that the weights of a checkpoint are for."""
    keys = ("algorithm", "activation", "normalize_observations", "normalize_values")
    return {"hidden_dims": tuple(cfg.hidden_dims), **{key: getattr(cfg, key) for key in keys}}


def _make_agent(env: GenelabSkrlWrapper, cfg: SkrlAgentCfg) -> Any:
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


def _inference(policy: Any, scaler: Any, cfg: SkrlAgentCfg, *, deterministic: bool = True) -> InferenceSetup:
    policy.eval().requires_grad_(False)
    choose = policy.mode if deterministic else policy.sample

    def act(observations: Observations) -> Tensor:
        seen = observations["policy"].float()
        return choose(seen if scaler is None else scaler(seen))

    if not deterministic:
        return InferenceSetup(policy=act)
    parts = (policy,) if scaler is None else (policy, scaler)
    bound = MAX_ACTION if cfg.algorithm in ON_POLICY else 1.0
    actor = Actor(
        network=FlatPolicy(act, {"policy": policy.num_observations}, *parts),
        algorithm=cfg.algorithm,
        normalizes=scaler is not None,
        action_range=(-bound, bound),
    )
    return InferenceSetup(policy=act, actor=actor)
