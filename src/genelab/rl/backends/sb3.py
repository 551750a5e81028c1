"""Stable-Baselines3: PPO, A2C, SAC, TD3, DDPG, with hindsight experience replay and demonstrations.

A checkpoint is SB3's own ZIP archive with one more entry, `genelab.json`, that says what made it and holds the
statistics of the observation normaliser. The archive also has an entry `data` with pickled objects, which can run
code when it is read. The lab reads the weights only and never `data`; SB3's own `load` does read it, so use that only
on archives from people you trust.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from genelab.config import check_memory, expect, parse_json
from genelab.envs import ManagerBasedRlEnv
from genelab.envs.manager_based_env import one_thread
from genelab.errors import MAX_REASON, UsageError, summary
from genelab.rl.backends.base import Backend, InferenceSetup, Learner, TrainContext, need_library
from genelab.rl.checkpoint import check_archive, check_meta, schema_of, write_atomically
from genelab.rl.config import Sb3AgentCfg
from genelab.rl.demos import fill_buffer, load_demos
from genelab.rl.monitor import TrainMonitor

try:
    from stable_baselines3.common.callbacks import BaseCallback
except ImportError:
    need_library("stable_baselines3", "sb3")

from stable_baselines3.common.save_util import load_from_zip_file

from genelab.rl.backends.sb3_env import (
    GenelabSb3VecEnv,
    Sb3Actor,
    action_space,
    get_statistics,
    groups_of,
    observation_space,
    set_statistics,
    show_observations,
)
from genelab.rl.backends.sb3_model import is_small, make_model, make_policy
from genelab.rl.backends.sb3_state import buffer_bytes, get_model_state, set_model_state

DEMO_PATH_VARIABLE = "GENELAB_SB3_DEMO_PATH"
"""Names a file of demonstrations, whatever the agent config says."""

_META = "genelab.json"
_OF_THE_POLICY = ("algorithm", "hidden_dims", "activation", "action_bound")
_MOST_META = 2**22
"""Bytes of metadata that are read at most; they are some kB."""


class Sb3Backend(Backend):
    """Trains with the algorithms of Stable-Baselines3."""

    name = "sb3"
    suffix = ".zip"
    final_name = "model"
    unit = "timesteps"

    def budget(self, agent: Sb3AgentCfg) -> int:
        return agent.timesteps

    def set_budget(self, agent: Sb3AgentCfg, budget: int) -> None:
        agent.timesteps = budget

    def settle(self, agent: Sb3AgentCfg) -> None:
        agent.demo_path = _demo_path(agent)

    def train(self, context: TrainContext) -> None:
        agent: Sb3AgentCfg = context.agent
        env = GenelabSb3VecEnv(context.env, action_bound=agent.action_bound, her=agent.her, monitor=context.monitor)
        model = make_model(env, agent)
        context.monitor.learner = learner = Sb3Learner(model, env, context)
        if (buffer := getattr(model, "replay_buffer", None)) is not None:
            kept = buffer.buffer_size * buffer.n_envs
            context.notify(
                f"replay buffer: the last {kept:,} transitions, {buffer_bytes(buffer) / 1e6:,.0f} MB when full"
            )
        if context.checkpoint is not None:
            learner.warm_start(context.checkpoint)
        if context.resume is not None:
            learner.resume(context.resume)
        else:
            if agent.demo_path is not None:
                count = learner.fill_with_demos(Path(agent.demo_path))
                context.notify(f"{count:,} transitions of demonstrations from {agent.demo_path}")
            elif agent.her is not None:
                _check_learning_starts(agent, context.env)
                context.notify("no demonstrations; agent.demo_path names a file of them")
            learner.start()
        context.on_ready()
        with one_thread(context.env.device) if is_small(model) else contextlib.nullcontext():
            model.learn(
                context.budget - model.num_timesteps,
                callback=_MonitorCallback(learner, context.monitor, agent),
                log_interval=None,
                reset_num_timesteps=False,
            )

    def load(
        self, env: ManagerBasedRlEnv, agent: Sb3AgentCfg, checkpoint: Path, *, deterministic: bool = True
    ) -> InferenceSetup:
        """The policy of an archive, of whose content only the metadata and the weights are read.

        The algorithm and the networks are the archive's, whatever the agent config says now.
        """
        meta, weights = read_archive(checkpoint, env)
        saved = Sb3AgentCfg(timesteps=0, **meta["agent"])
        groups = groups_of(env, goals=meta["goals"])
        policy = make_policy(saved, observation_space(env, groups), action_space(env, saved.action_bound))
        _load_weights(policy, weights, checkpoint)
        return Sb3Actor(policy, meta["normalizer"], deterministic=deterministic).setup(env.device, saved.algorithm)


class Sb3Learner(Learner):
    """A model of SB3 while it learns."""

    def __init__(self, model: Any, env: GenelabSb3VecEnv, context: TrainContext) -> None:
        self.model = model
        self._env = env
        self._agent: Sb3AgentCfg = context.agent
        self._task_id = context.task_id

    def save(self, path: Path) -> None:
        meta = {
            "backend": Sb3Backend.name,
            "task": self._task_id,
            "schema": schema_of(self._env.env),
            "agent": {name: getattr(self._agent, name) for name in _OF_THE_POLICY},
            "goals": self._env.has_goals,
            "normalizer": get_statistics(self.model.get_vec_normalize_env()),
        }
        buffer = io.BytesIO()
        self.model.save(buffer)
        with zipfile.ZipFile(buffer, "a") as archive:
            archive.writestr(_META, json.dumps(meta, indent=2))
        write_atomically(buffer.getvalue(), path)

    def inference(self) -> InferenceSetup:
        statistics = get_statistics(self.model.get_vec_normalize_env())
        actor = Sb3Actor(self.model.policy, statistics, own=True)
        return actor.setup(self._env.env.device, self._agent.algorithm)

    def state(self) -> dict[str, Any]:
        return get_model_state(self.model)

    def weights(self) -> dict[str, torch.Tensor]:
        return self.model.policy.state_dict()

    def resume(self, state: dict[str, Any]) -> None:
        """Go on where an interrupted run stopped."""
        set_model_state(self.model, state)

    def start(self) -> None:
        """Begin, with episodes of all ages, so that they do not all time out in the same step."""
        env = self._env.env
        self.model._last_obs = self.model.env.reset()
        self.model._last_episode_starts = np.ones(env.num_envs, dtype=bool)
        normalizer = self.model.get_vec_normalize_env()
        if normalizer is not None:
            self.model._last_original_obs = normalizer.get_original_obs()
        env.episode_length_buf = torch.randint_like(env.episode_length_buf, env.max_episode_length)

    def warm_start(self, checkpoint: Path) -> None:
        """Take over the networks and the normaliser of a checkpoint."""
        meta, weights = read_archive(checkpoint, self._env.env, to_learn=True)
        there, here = meta["agent"]["algorithm"], self._agent.algorithm
        if there != here:
            raise UsageError(f"{checkpoint}: trained with {there}, but this task's agent is {here}")
        _load_weights(self.model.policy, weights, checkpoint)
        normalizer = self.model.get_vec_normalize_env()
        if normalizer is not None and meta["normalizer"] is not None:
            set_statistics(normalizer, meta["normalizer"])

    def fill_with_demos(self, path: Path) -> int:
        """Put demonstrations into the replay buffer, and show them to the normaliser; returns how many transitions."""
        env, bound = self._env.env, self._agent.action_bound
        groups = {name: env.observation_manager.groups[name].dim for name in self._env.groups}
        demos = load_demos(path, env.num_envs, groups, env.action_dim, bound)
        fill_buffer(self.model.replay_buffer, demos, bound)
        if (normalizer := self.model.get_vec_normalize_env()) is not None:
            show_observations(normalizer, demos.observations)
        return demos.rewards.size


class _MonitorCallback(BaseCallback):
    """Tells the monitor of an iteration when SB3 has learned from what it collected.

    An iteration is a rollout for PPO and A2C, and `iteration_steps` control steps for the others, which learn every
    `train_freq` steps. It is told at the start of the next rollout, where nothing of the learner is half done.
    """

    def __init__(self, learner: Sb3Learner, monitor: TrainMonitor, agent: Sb3AgentCfg) -> None:
        super().__init__()
        self._learner = learner
        self._monitor = monitor
        self._length = agent.on_policy.n_steps if agent.is_on_policy else agent.off_policy.iteration_steps
        self._start()

    def _start(self) -> None:
        self._steps = 0
        self._collecting = self._learning = 0.0
        self._mark = time.perf_counter()

    def _lap(self) -> float:
        now = time.perf_counter()
        seconds, self._mark = now - self._mark, now
        return seconds

    def _on_rollout_start(self) -> None:
        self._learning += self._lap()
        if self._steps >= self._length:
            self._tell()

    def _on_step(self) -> bool:
        self._steps += 1
        return True

    def _on_rollout_end(self) -> None:
        self._collecting += self._lap()

    def _on_training_end(self) -> None:
        self._learning += self._lap()
        self._tell()

    def _tell(self) -> None:
        model = self._learner.model
        scalars = {_log_key(name): float(value) for name, value in model.logger.name_to_value.items()}
        if math.isnan(scalars.get("Loss/explained_variance", 0.0)):
            del scalars["Loss/explained_variance"]  # the returns were all the same: there is nothing to explain
        if model.ep_success_buffer:
            scalars["Train/success_rate"] = float(np.mean(model.ep_success_buffer))
        self._monitor.iteration(
            self._learner,
            done=model.num_timesteps,
            env_steps=self._steps * model.n_envs,
            collect_seconds=self._collecting,
            learn_seconds=self._learning,
            scalars=scalars,
        )
        self._start()


def _log_key(name: str) -> str:
    name = name.removeprefix("train/")
    return "Policy/mean_std" if name == "std" else f"Loss/{name}"


def read_archive(
    path: Path, env: ManagerBasedRlEnv, *, to_learn: bool = False
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Metadata and policy weights of a checkpoint that fits the environment; runs no code of the archive's."""
    check_archive(path)
    try:
        with zipfile.ZipFile(path) as archive:
            if _META not in archive.namelist():  # what remains of half an archive may look like another archive
                raise UsageError(f"{path}: not a checkpoint made with sb3, or a damaged one")
            with archive.open(_META) as file:
                meta = parse_json(file.read(_MOST_META), f"{path}: {_META}")
        check_meta(meta, path, Sb3Backend.name, env, to_learn=to_learn)
        expect(meta, {"agent": {"algorithm": str}, "goals": bool, "normalizer": dict | None}, path)
        _check_sizes(path)
        _, parameters, _ = load_from_zip_file(path, load_data=False, device="cpu")
        return meta, parameters["policy"]
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{path}: a damaged checkpoint: {summary(error)[:MAX_REASON]}") from error


def _check_sizes(path: Path) -> None:
    """Refuse an archive that would unpack to more than the machine holds."""
    with zipfile.ZipFile(path) as archive:
        check_memory(str(path), "its content", sum(member.file_size for member in archive.infolist()))


def _load_weights(policy: Any, weights: dict[str, torch.Tensor], path: Path) -> None:
    try:
        policy.load_state_dict(weights)
    except RuntimeError as error:
        raise UsageError(f"{path}: its networks have other layers than this agent's hidden_dims") from error


def _demo_path(agent: Sb3AgentCfg) -> str | None:
    """Where demonstrations are, if any; refuses what on-policy algorithms cannot use."""
    named = {DEMO_PATH_VARIABLE: os.environ.get(DEMO_PATH_VARIABLE) or None, "agent.demo_path": agent.demo_path}
    if agent.is_on_policy:
        for what, value in {**named, "agent.her": agent.her}.items():
            if value is not None:
                raise UsageError(f"{what}: {agent.algorithm} has no replay buffer; choose SAC, TD3 or DDPG")
    return next((path for path in named.values() if path is not None), None)


def _check_learning_starts(agent: Sb3AgentCfg, env: ManagerBasedRlEnv) -> None:
    """Goals are relabelled within whole episodes, so there must be some; demonstrations bring theirs."""
    least = env.num_envs * (env.max_episode_length + 1)
    if agent.off_policy.learning_starts < least:
        raise UsageError(
            f"agent.off_policy.learning_starts: {agent.off_policy.learning_starts} is before the first episodes end; "
            f"hindsight replay of {env.num_envs} environments needs at least {least}"
        )
