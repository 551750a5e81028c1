"""rsl_rl: PPO, with or without memory."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from genelab.envs import ManagerBasedRlEnv
from genelab.errors import UsageError
from genelab.rl.backends.base import (
    Actor,
    Backend,
    InferenceSetup,
    Learner,
    Memory,
    Observations,
    TrainContext,
    in_32_bits,
)
from genelab.rl.backends.rsl_rl_normalizer import accept_counts, meet_new_columns, widen_count
from genelab.rl.backends.rsl_rl_precision import MixedPrecision, computes_bfloat16
from genelab.rl.backends.rsl_rl_symmetry import Tied, images
from genelab.rl.checkpoint import (
    check_network,
    columns_in,
    load_checkpoint,
    save_atomically,
    schema_of,
    widen,
)
from genelab.rl.config import RslRlDistributionCfg, RslRlModelCfg, RslRlOnPolicyRunnerCfg, RslRlSymmetryCfg
from genelab.rl.launch.ranks import Rank
from genelab.rl.monitor import TrainMonitor


class RslRlBackend(Backend):
    """Trains with rsl_rl's on-policy runner."""

    name = "rsl_rl"

    def budget(self, agent: RslRlOnPolicyRunnerCfg) -> int:
        return agent.max_iterations

    def set_budget(self, agent: RslRlOnPolicyRunnerCfg, budget: int) -> None:
        agent.max_iterations = budget

    def algorithm(self, agent: RslRlOnPolicyRunnerCfg) -> str:
        return "PPO"

    def train(self, context: TrainContext) -> None:
        env = RslRlVecEnvWrapper(context.env, context.agent.clip_actions, context.monitor)
        with Rank.current().process_group(context.env.device):
            runner = _make_runner(env, context.agent)
            context.monitor.learner = learner = RslRlLearner(runner, env, context)
            if context.checkpoint is not None:
                content = load_checkpoint(context.checkpoint, self.name, context.env, to_learn=True, may_grow=True)
                if (saved := content["genelab"].get("agent")) is not None:
                    check_network(
                        _layers(_with_networks(context.agent, saved)), _layers(context.agent), context.checkpoint
                    )
                with _naming_the_network(context.checkpoint, "agent.actor and agent.critic describe"):
                    content |= _widened(content, context.env, runner.alg)
                    runner.alg.load(content, {"actor": True, "critic": True}, strict=True)
                if not all(network.symmetric() for network in runner.alg.tied):
                    raise UsageError(
                        f"{context.checkpoint}: its networks are not their own mirror image, "
                        "as agent.algorithm.symmetry_cfg.equivariant wants them"
                    )
            if context.resume is not None:
                learner.resume(context.resume)
            runner.logger = _MonitorLogger(learner, context)
            context.on_ready()
            learner.aim_after(runner.current_learning_iteration)
            remaining = context.budget - runner.current_learning_iteration
            random_ages = context.agent.random_episode_ages and context.resume is None
            runner.learn(remaining, init_at_random_ep_len=random_ages)
            models = (runner.alg.actor, runner.alg.critic)
            Rank.current().check_equal(tensor for model in models for tensor in model.state_dict().values())

    def load(
        self, env: ManagerBasedRlEnv, agent: RslRlOnPolicyRunnerCfg, checkpoint: Path, *, deterministic: bool = True
    ) -> InferenceSetup:
        content = load_checkpoint(checkpoint, self.name, env)
        if (saved := content["genelab"].get("agent")) is not None:
            agent = _with_networks(agent, saved)  # whatever the config says now
        actor = _make_actor(env, agent)
        with _naming_the_network(checkpoint, "agent.actor describes"):
            actor.load_state_dict(content["actor_state_dict"])
        return _inference(actor, agent, deterministic=deterministic)


class RslRlVecEnvWrapper:
    """A task as rsl_rl wants to see it: observations in a TensorDict, one flag for an episode's end."""

    def __init__(self, env: ManagerBasedRlEnv, clip_actions: float | None, monitor: TrainMonitor | None = None) -> None:
        self.env = env
        self.cfg = env.cfg
        self.num_envs = env.num_envs
        self.num_actions = env.action_dim
        self.max_episode_length = env.max_episode_length
        self.device = env.device
        self._clip = clip_actions
        self._monitor = monitor
        env.shows_final_obs = False  # rsl_rl takes the value of the state before instead
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
        return _tensordict(self._observations, self.num_envs)

    def set_observations(self, observations: Observations) -> None:
        """Go on from the observations of an interrupted run."""
        self._observations = {name: value.to(self.device) for name, value in observations.items()}

    def step(self, actions: Tensor) -> tuple[Any, Tensor, Tensor, dict[str, Any]]:
        """One control step. An episode that failed in its last moment has not timed out."""
        if self._clip is not None:
            actions = actions.clamp(-self._clip, self._clip)
        self._observations, reward, terminated, truncated, extras = self.env.step(actions)
        done = terminated | truncated
        if self._monitor is not None:
            self._monitor.step(reward, done, extras)
            self._monitor.env_steps += (Rank.current().world_size - 1) * self.num_envs  # the other ranks step as many
        return self.get_observations(), reward, done.long(), extras


class RslRlLearner(Learner):
    """rsl_rl's runner while it learns."""

    def __init__(self, runner: Any, env: RslRlVecEnvWrapper, context: TrainContext) -> None:
        self._runner = runner
        self._env = env
        self._agent = context.agent
        self._budget = context.budget
        self._task_id = context.task_id

    def save(self, path: Path) -> None:
        meta = {
            "backend": RslRlBackend.name,
            "task": self._task_id,
            "schema": schema_of(self._env.env),
            "agent": _networks_of(self._agent),
        }
        save_atomically({**self._runner.alg.save(), "genelab": meta}, path)

    def aim_after(self, iterations: int) -> None:
        """How far the next iteration may go."""
        self._runner.alg.desired_kl = kl_at(self._agent, iterations / self._budget)

    def inference(self) -> InferenceSetup:
        # A second network has a recurrent state of its own, and the learner's mode and buffers stay as they are.
        actor = _make_actor(self._env.env, self._agent)
        actor.load_state_dict(self._runner.alg.get_policy().state_dict())
        return _inference(actor, self._agent)

    def state(self) -> dict[str, Any]:
        alg = self._runner.alg
        return {
            "iteration": self._runner.current_learning_iteration + 1,
            "learning_rate": alg.learning_rate,
            "observations": {name: value.cpu() for name, value in self._env.get_observations().items()},
            "hidden": [_to_cpu(model.get_hidden_state()) for model in (alg.actor, alg.critic)],
            "alg": alg.save(),
            "rnd": None if alg.rnd is None else _rnd_state(alg.rnd),
        }

    def weights(self) -> dict[str, Tensor]:
        models = {"actor": self._runner.alg.actor, "critic": self._runner.alg.critic}
        return {f"{name}.{key}": value for name, model in models.items() for key, value in model.state_dict().items()}

    def resume(self, state: dict[str, Any]) -> None:
        """Go on where an interrupted run stopped."""
        alg = self._runner.alg
        alg.load(state["alg"], None, strict=True)
        alg.learning_rate = state["learning_rate"]
        self._runner.current_learning_iteration = state["iteration"]
        self._env.set_observations(state["observations"])
        for model, hidden in zip((alg.actor, alg.critic), state["hidden"], strict=True):
            if hidden is not None:
                model.reset(hidden_state=hidden)
        if alg.rnd is not None:
            _set_rnd_state(alg.rnd, state["rnd"])


class _MonitorLogger:
    """Stands where rsl_rl's own logger does and tells the monitor."""

    writer = None  # so that the runner does not write checkpoints of its own

    def __init__(self, learner: RslRlLearner, context: TrainContext) -> None:
        self._learner = learner
        self._monitor = context.monitor
        self._device = context.env.device
        self._rank = Rank.current()
        self._env_steps = context.agent.num_steps_per_env * context.env.num_envs * self._rank.world_size

    def init_logging_writer(self) -> None:
        """The monitor has the writer."""

    def process_env_step(self, *args: Any) -> None:
        """The wrapper has told the monitor already."""

    def log(
        self,
        it: int,
        collect_time: float,
        learn_time: float,
        loss_dict: dict[str, float],
        learning_rate: float,
        action_std: Tensor,
        rnd_weight: float | None,
        **rest: Any,
    ) -> None:
        """An iteration has ended."""
        self._learner.aim_after(it + 1)
        if not self._rank.alone:
            self._monitor.stop_requested = self._rank.any_stop_requested(self._device)
        losses = {f"Loss/{name}": float(value) for name, value in loss_dict.items()}
        self._monitor.iteration(
            self._learner,
            done=it + 1,
            env_steps=self._env_steps,
            collect_seconds=collect_time,
            learn_seconds=learn_time,
            scalars={
                **losses,
                "Loss/learning_rate": learning_rate,
                "Policy/mean_std": float(action_std.detach().mean()),
                **({} if rnd_weight is None else {"Rnd/weight": rnd_weight}),
            },
        )


def _make_runner(env: RslRlVecEnvWrapper, agent: RslRlOnPolicyRunnerCfg) -> Any:
    from rsl_rl import algorithms, runners

    class Algorithm(algorithms.PPO):
        """Does not learn from observations that nothing has normalised, where others are."""

        tied: tuple[Tied, ...] = ()
        """Networks that are kept their own mirror image."""

        def update(self) -> dict[str, float]:
            for model in (self.actor, self.critic):
                meet_new_columns(model, self.storage.observations)
            losses = super().update()
            for network in self.tied:
                network.normalize_both_sides()
            return losses

    class Runner(runners.OnPolicyRunner):
        """Takes its rank from the lab, on any device; what the ranks' group is, the lab has decided already."""

        def _configure_multi_gpu(self) -> None:
            rank = Rank.current()
            self.is_distributed = False  # or `learn` synchronises the weights itself, and prints that it does
            self.gpu_world_size, self.gpu_global_rank, self.gpu_local_rank = rank.world_size, rank.index, rank.index
            multi_gpu = {"global_rank": rank.index, "local_rank": rank.index, "world_size": rank.world_size}
            self.cfg["multi_gpu"] = None if rank.alone else multi_gpu

        def learn(self, *args: Any, **options: Any) -> None:
            if self.alg.is_multi_gpu:
                self.alg.broadcast_parameters()
            super().learn(*args, **options)

    with contextlib.redirect_stdout(io.StringIO()):  # it prints its networks
        runner = Runner(env, _runner_cfg(env, agent, Algorithm), log_dir=None, device=str(env.device))
    symmetry = runner.alg.symmetry
    if symmetry is not None and symmetry.use_data_augmentation and not symmetry.use_mirror_loss:
        symmetry.compute_loss = functools.partial(_asymmetry, symmetry)
    for model, cfg in ((runner.alg.actor, agent.actor), (runner.alg.critic, agent.critic)):
        accept_counts(model)
        if cfg.rnn_type is not None and cfg.rnn_memory_steps is not None:
            remember(model.rnn.rnn, cfg.rnn_memory_steps)
        if agent.algorithm.use_mixed_precision and computes_bfloat16(env.device):
            model.mlp = MixedPrecision(*model.mlp)
    if agent.algorithm.symmetry_cfg is not None and agent.algorithm.symmetry_cfg.equivariant:
        runner.alg.tied = _tie(runner.alg, env, agent.algorithm.symmetry_cfg)
    return runner


def _tie(alg: Any, env: RslRlVecEnvWrapper, cfg: RslRlSymmetryCfg) -> tuple[Tied, ...]:
    of_groups, of_actions = images(cfg.data_augmentation_func, env, env.get_observations(), env.num_actions)
    networks = ((alg.actor, of_actions), (alg.critic, None))
    tied = tuple(Tied(model, [of_groups[name] for name in model.obs_groups], image) for model, image in networks)
    for network in tied:
        network.begin()
    return tied


def kl_at(agent: RslRlOnPolicyRunnerCfg, share: float) -> float:
    """The KL divergence to aim at after a share of the run."""
    first, last = agent.algorithm.desired_kl, agent.algorithm.final_kl
    return first if last is None else first ** (1.0 - share) * last**share


@torch.no_grad()
def _asymmetry(symmetry: Any, actor: Any, batch: Any, size: int) -> Tensor:
    """The mirror loss where it is only logged: the actor has just seen the mirror images, and need not see them again.

    rsl_rl would, which takes a seventh of the time that learning takes.
    """
    means = actor.output_mean
    _, mirrored = symmetry.data_augmentation_func(env=symmetry.env, obs=None, actions=means[:size])
    return nn.functional.mse_loss(means[size:], mirrored[size:])


@torch.no_grad()
def remember(rnn: torch.nn.LSTM | torch.nn.GRU, steps: int) -> None:
    """Set the gates' biases so that units remember for times spread over `steps` (Tallec and Ollivier, 2018)."""
    if steps < 3:
        raise UsageError(f"rnn_memory_steps: at least 3, got {steps}")
    size = rnn.hidden_size
    for layer in range(rnn.num_layers):
        inputs, hidden = getattr(rnn, f"bias_ih_l{layer}"), getattr(rnn, f"bias_hh_l{layer}")
        keep = torch.log(1.0 + (steps - 2.0) * torch.rand(size, device=inputs.device))
        hidden[: 2 * size] = 0.0
        inputs[size : 2 * size] = keep  # an LSTM's forget gate, a GRU's update gate: open
        if isinstance(rnn, torch.nn.LSTM):
            inputs[:size] = -keep  # and its input gate closed


def _runner_cfg(env: RslRlVecEnvWrapper, agent: RslRlOnPolicyRunnerCfg, algorithm: type) -> dict[str, Any]:
    """The config as rsl_rl's dict."""
    groups = env.env.observation_manager.groups
    symmetry = agent.algorithm.symmetry_cfg
    if symmetry is not None and not symmetry.equivariant and (agent.actor.rnn_type or agent.critic.rnn_type):
        raise UsageError(
            "agent.algorithm.symmetry_cfg: networks with memory cannot learn from mirror images; "
            "with equivariant=true they are their own"
        )
    return {
        "num_steps_per_env": agent.num_steps_per_env,
        "save_interval": agent.save_interval,
        "check_for_nan": False,  # the lab has a guard of its own, which names the term
        "obs_groups": {
            "actor": ["policy"],
            "critic": ["critic" if "critic" in groups else "policy"],
            "rnd_state": ["rnd_state" if "rnd_state" in groups else "policy"],
        },
        "actor": _model_cfg(agent.actor),
        "critic": _model_cfg(agent.critic),
        "algorithm": {"class_name": algorithm, **_algorithm_cfg(env, agent)},
    }


def _algorithm_cfg(env: RslRlVecEnvWrapper, agent: RslRlOnPolicyRunnerCfg) -> dict[str, Any]:
    cfg = dataclasses.asdict(agent.algorithm)
    del cfg["final_kl"], cfg["use_mixed_precision"]  # the lab's own
    if cfg["symmetry_cfg"] is not None and cfg["symmetry_cfg"].pop("equivariant"):
        cfg["symmetry_cfg"] = None
    if cfg["rnd_cfg"] is not None and cfg["rnd_cfg"]["weight_schedule"] is not None:
        cfg["rnd_cfg"]["weight_schedule"]["final_value"] *= env.env.step_dt  # rsl_rl does so with the first weight only
    return cfg


def _make_actor(env: ManagerBasedRlEnv, agent: RslRlOnPolicyRunnerCfg) -> Any:
    """The policy network alone."""
    from rsl_rl import models

    cfg = _model_cfg(agent.actor)
    observations = {name: torch.zeros(1, group.dim) for name, group in env.observation_manager.groups.items()}
    make = getattr(models, cfg.pop("class_name"))
    actor = make(_tensordict(observations, 1), {"actor": ["policy"]}, "actor", env.action_dim, **cfg).to(env.device)
    accept_counts(actor)
    return actor


def _model_cfg(model: RslRlModelCfg) -> dict[str, Any]:
    cfg: dict[str, Any] = {
        "class_name": "MLPModel" if model.rnn_type is None else "RNNModel",
        "hidden_dims": list(model.hidden_dims),
        "activation": model.activation,
        "obs_normalization": model.obs_normalization,
    }
    if model.distribution is not None:
        cfg["distribution_cfg"] = dataclasses.asdict(model.distribution)
    if model.rnn_type is not None:
        cfg |= {
            "rnn_type": model.rnn_type,
            "rnn_hidden_dim": model.rnn_hidden_dim,
            "rnn_num_layers": model.rnn_num_layers,
        }
    return cfg


def _networks_of(agent: RslRlOnPolicyRunnerCfg) -> dict[str, Any]:
    """The part of the config that the weights of a checkpoint are for, in plain values."""
    models = {name: dataclasses.asdict(model) for name, model in (("actor", agent.actor), ("critic", agent.critic))}
    return {**models, "clip_actions": agent.clip_actions}


def _with_networks(agent: RslRlOnPolicyRunnerCfg, saved: dict[str, Any]) -> RslRlOnPolicyRunnerCfg:
    """The config with the networks of a checkpoint."""

    def model(values: dict[str, Any]) -> RslRlModelCfg:
        noise = values["distribution"]
        return RslRlModelCfg(**{**values, "distribution": None if noise is None else RslRlDistributionCfg(**noise)})

    actor, critic = model(saved["actor"]), model(saved["critic"])
    return dataclasses.replace(agent, actor=actor, critic=critic, clip_actions=saved["clip_actions"])


def _layers(agent: RslRlOnPolicyRunnerCfg) -> dict[str, Any]:
    """What must be the same for weights to mean the same; how they begin is free."""
    found: dict[str, Any] = {}
    for name, model in (("actor", agent.actor), ("critic", agent.critic)):
        keys = ["activation", "obs_normalization", "rnn_type"]
        keys += ["rnn_hidden_dim", "rnn_num_layers"] if model.rnn_type is not None else []
        found[f"{name}.hidden_dims"] = list(model.hidden_dims)
        found |= {f"{name}.{key}": getattr(model, key) for key in keys}
    return found


def _widened(content: dict[str, Any], env: ManagerBasedRlEnv, alg: Any) -> dict[str, Any]:
    """The networks of a checkpoint for an environment that may have more to see than the one they come from."""
    saved, here = content["genelab"]["schema"]["observations"], schema_of(env)["observations"]
    groups = {"actor": "policy", "critic": "critic" if "critic" in here else "policy"}
    found = {}
    for name, model in (("actor", alg.actor), ("critic", alg.critic)):
        columns = columns_in(here[groups[name]], saved[groups[name]])
        state = widen(content[f"{name}_state_dict"], model.state_dict(), columns)
        found[f"{name}_state_dict"] = widen_count(state, model.obs_dim, columns)
    return found


@contextlib.contextmanager
def _naming_the_network(checkpoint: Path, wanted: str) -> Iterator[None]:
    """Weights that do not fit are the user's to mend, in one line."""
    try:
        yield
    except RuntimeError as error:
        raise UsageError(f"{checkpoint}: its network is not the one that {wanted}") from error


def _inference(actor: Any, agent: RslRlOnPolicyRunnerCfg, *, deterministic: bool = True) -> InferenceSetup:
    actor.eval()
    clip = agent.clip_actions

    def policy(observations: Observations) -> Tensor:
        count = len(next(iter(observations.values())))
        action = actor(_tensordict(observations, count), stochastic_output=not deterministic)
        return action if clip is None else action.clamp(-clip, clip)

    def reset(dones: Tensor | None) -> None:
        actor.reset(dones)

    return InferenceSetup(policy=policy, reset=reset, actor=_actor(actor, agent) if deterministic else None)


def _actor(model: Any, agent: RslRlOnPolicyRunnerCfg) -> Actor:
    cfg, clip = agent.actor, agent.clip_actions
    memory = None
    if cfg.rnn_type is not None:
        memory = Memory(rnn_type=cfg.rnn_type, num_layers=cfg.rnn_num_layers, hidden_dim=cfg.rnn_hidden_dim)
    return Actor(
        network=_Network(model, clip),
        algorithm="PPO",
        normalizes=cfg.obs_normalization,
        action_range=None if clip is None else (-clip, clip),
        memory=memory,
    )


class _Network(nn.Module):
    """rsl_rl's own form of a model for export, which has the normaliser inside, and the clip after it."""

    def __init__(self, model: Any, clip: float | None) -> None:
        super().__init__()
        self.model = model.as_onnx(verbose=False)
        self._clip = clip

    def forward(self, obs: Tensor, *state: Tensor) -> Any:
        action, *after = self.model(obs, *state) if state else (self.model(obs),)
        if self._clip is not None:
            action = action.clamp(-self._clip, self._clip)
        return (action, *after[: len(state)]) if state else action


def _tensordict(observations: Observations, count: int) -> Any:
    from tensordict import TensorDict

    return TensorDict(in_32_bits(observations), batch_size=[count])


def _rnd_state(rnd: Any) -> dict[str, Any]:
    """What random network distillation remembers and rsl_rl does not save: control steps, and the discounted sum."""
    average = rnd.reward_normalizer.disc_avg.avg if rnd.reward_normalization else None
    return {"steps": rnd.update_counter, "average": _to_cpu(average)}


def _set_rnd_state(rnd: Any, state: dict[str, Any]) -> None:
    rnd.update_counter = state["steps"]
    if rnd.reward_normalization:
        rnd.reward_normalizer.disc_avg.avg = state["average"].to(rnd.device)


def _to_cpu(hidden: Any) -> Any:
    if isinstance(hidden, tuple):
        return tuple(part.cpu() for part in hidden)
    return hidden if hidden is None else hidden.cpu()
