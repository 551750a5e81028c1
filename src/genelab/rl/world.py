"""The world that a policy is judged in: the task's play config, made fit for it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from genelab import mdp
from genelab.config import TASKS, TaskCfg, apply_override, reaches
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, Physics, physics_changes, with_physics
from genelab.errors import ConfigError, UsageError
from genelab.managers import TerminationTermCfg
from genelab.rl.backends.base import InferenceSetup
from genelab.rl.config import configure
from genelab.rl.policies import load_policy

MAX_EPISODE_S = 30.0
"""Longer episodes, such as the endless ones of a play config, are cut to this, s."""


def eval_cfg(cfg: ManagerBasedRlEnvCfg, num_envs: int) -> ManagerBasedRlEnvCfg:
    """A play config made fit to be judged with: it resets what ends, and every episode ends."""
    cfg = copy.deepcopy(cfg)
    cfg.scene.num_envs = num_envs
    cfg.simulation.vis = False
    cfg.auto_reset = True
    cfg.episode_length_s = min(cfg.episode_length_s, MAX_EPISODE_S)
    if all(term is None or term.func is not mdp.time_out for term in cfg.terminations.values()):
        cfg.terminations["evaluation_time_out"] = TerminationTermCfg(func=mdp.time_out, time_out=True)
    for group in cfg.observations.values():
        group.enable_noise = False
    cfg.events = {name: event for name, event in cfg.events.items() if event.mode != "interval"}
    return cfg


def world_of_run(task_id: str, overrides: Mapping[str, Any]) -> tuple[ManagerBasedRlEnvCfg, dict[str, Any]]:
    """The config that policies of a run are judged in, and those of the run's overrides that it has a place for.

    A play config has no pushes and no curriculum to change, for example. What makes the physics of training coarse is
    of no concern to it either.
    """
    task = TASKS.get(task_id)
    cfg = judged_cfg(task)
    of_training = physics_changes(cfg, task.env)
    fitting = {}
    for path, value in overrides.items():
        if any(reaches(path, setting) for setting in of_training):
            continue
        with suppress(ConfigError):
            apply_override({"env": cfg, "agent": task.agent}, path, value)
            fitting[path] = value
    return cfg, fitting


def check_control_step(task_id: str, cfg: ManagerBasedRlEnvCfg, overrides: Mapping[str, Any]) -> None:
    """Refuse to train at another control rate than a policy is judged at: physics may differ, the rate may not."""
    judged, _ = world_of_run(task_id, overrides)
    trained_s, judged_s = (one.simulation.dt * one.decimation for one in (cfg, judged))
    if not math.isclose(trained_s, judged_s):
        raise ConfigError(
            f"env.simulation.dt × env.decimation is {trained_s:g} s, but a policy is judged with control steps of "
            f"{judged_s:g} s: change both"
        )


def judged_cfg(task: TaskCfg, physics: Physics = "fine") -> Any:
    """The config that a task is judged in."""
    cfg = task.playing
    return cfg if physics == "fine" else with_physics(cfg, task.env)


@contextmanager
def policy_on_task(
    task_id: str,
    checkpoint: Path,
    *,
    num_envs: int,
    deterministic: bool = True,
    physics: Physics = "fine",
    overrides: Mapping[str, Any] = {},
    notify: Callable[[str], None] = lambda message: None,
    change: Callable[[ManagerBasedRlEnvCfg], None] = lambda cfg: None,
) -> Iterator[tuple[ManagerBasedRlEnv, InferenceSetup]]:
    """A policy and the environment to judge it in, whose config `change` may make another one at last."""
    task = TASKS.get(task_id)
    cfg = judged_cfg(task, physics)
    if not isinstance(cfg, ManagerBasedRlEnvCfg):
        raise UsageError(f"{TASKS.entry(task_id).id} is a scene to play: it has no rewards to judge a policy by")
    configure(cfg, task.agent, overrides)
    cfg = eval_cfg(cfg, num_envs)
    change(cfg)
    env = ManagerBasedRlEnv(cfg, notify=notify)
    try:
        yield env, load_policy(env, task.agent, checkpoint, deterministic=deterministic)
    finally:
        env.close()
