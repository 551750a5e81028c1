"""A model of Stable-Baselines3 while it learns."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

from genelab.errors import UsageError
from genelab.rl.backends.base import InferenceSetup, Learner, TrainContext
from genelab.rl.backends.sb3.archive import load_weights, read_archive, write_archive
from genelab.rl.backends.sb3.config import Sb3AgentCfg
from genelab.rl.backends.sb3.demos import fill_buffer
from genelab.rl.backends.sb3.env import (
    GenelabSb3VecEnv,
    Sb3Actor,
    get_statistics,
    set_statistics,
    show_observations,
)
from genelab.rl.backends.sb3.state import get_model_state, set_model_state
from genelab.rl.demos import load_demos
from genelab.rl.monitor import TrainMonitor

_OF_THE_POLICY = ("algorithm", "hidden_dims", "activation", "action_bound")


class Sb3Learner(Learner):
    """A model of SB3 while it learns."""

    def __init__(self, model: Any, env: GenelabSb3VecEnv, context: TrainContext[Sb3AgentCfg]) -> None:
        self.model = model
        self._env = env
        self._context = context
        self._agent = context.agent

    def save(self, path: Path) -> None:
        meta = {
            **self._context.meta(),
            "agent": {name: getattr(self._agent, name) for name in _OF_THE_POLICY},
            "goals": self._env.has_goals,
            "normalizer": get_statistics(self.model.get_vec_normalize_env()),
        }
        write_archive(self.model, meta, path)

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
        meta, weights = read_archive(checkpoint, self._context.backend, self._env.env, to_learn=True)
        there, here = meta["agent"]["algorithm"], self._agent.algorithm
        if there != here:
            raise UsageError(f"{checkpoint}: trained with {there}, but this task's agent is {here}")
        load_weights(self.model.policy, weights, checkpoint)
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


class MonitorCallback(BaseCallback):
    """Tells the monitor of an iteration when SB3 has learned from what it collected.

    An iteration is a rollout for PPO and A2C, and `iteration_steps` control steps for the others, which learn every
    `train_freq` steps. It is told at the start of the next rollout, where nothing of the learner is half done.
    """

    def __init__(self, learner: Sb3Learner, monitor: TrainMonitor, agent: Sb3AgentCfg) -> None:
        super().__init__()
        self._learner = learner
        self._monitor = monitor
        self._length = agent.steps_per_iteration
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
