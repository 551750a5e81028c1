"""The world that a policy is judged in: the task's play config, made fit for it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from genelab import mdp
from genelab.config import TASKS, TaskCfg, apply_override, reaches
from genelab.envs import (
    ManagerBasedEnvCfg,
    ManagerBasedRlEnv,
    ManagerBasedRlEnvCfg,
    Physics,
    physics_changes,
    with_physics,
)
from genelab.errors import ConfigError, UsageError
from genelab.managers import CurriculumTermCfg, TerminationTermCfg
from genelab.rl.backends.base import InferenceSetup
from genelab.rl.config import configure
from genelab.rl.policies import load_policy
from genelab.scene import TerrainGeneratorCfg

Cfg = TypeVar("Cfg", bound=ManagerBasedEnvCfg)
DEALT_CELLS = "evaluation_cells"
"""Name of the curriculum term that places the episodes of an evaluation on generated ground."""
MAX_EPISODE_S = 30.0
"""Longer episodes, such as the endless ones of a play config, are cut to this, s."""


def eval_cfg(cfg: ManagerBasedRlEnvCfg, num_envs: int) -> ManagerBasedRlEnvCfg:
    """Return the config in which a policy is judged, made of a play config: `eval_defaults`, then `eval_needs`."""
    return eval_needs(eval_defaults(cfg), num_envs)


def eval_defaults(cfg: Cfg, noise_of: ManagerBasedEnvCfg | None = None) -> Cfg:
    """Return a copy with the settings of an evaluation that overrides may change.

    Episodes last 30 s at most, nothing happens in intervals, and observations have no noise.

    Args:
        cfg: The play config. A scene without rewards stays as it is.
        noise_of: The training config whose observation noise is left on, group by group.
    """
    cfg = copy.deepcopy(cfg)
    if not isinstance(cfg, ManagerBasedRlEnvCfg):
        return cfg
    cfg.episode_length_s = min(cfg.episode_length_s, MAX_EPISODE_S)
    cfg.events = {name: event for name, event in cfg.events.items() if event.mode != "interval"}
    for group in cfg.observations.values():
        group.enable_noise = False
    for name, trained in ({} if noise_of is None else noise_of.observations).items():
        if trained.enable_noise and name in cfg.observations:
            group = cfg.observations[name]
            group.enable_noise = True
            for key in group.terms.keys() & trained.terms.keys():
                group.terms[key].noise = copy.deepcopy(trained.terms[key].noise)
    return cfg


def eval_needs(cfg: ManagerBasedRlEnvCfg, num_envs: int) -> ManagerBasedRlEnvCfg:
    """Set, in place, what no evaluation can do without, whatever the overrides say; returns the config.

    Ended environments are reset, every episode ends, and on generated ground the episodes are dealt evenly to the
    cells.
    """
    cfg.scene.num_envs = num_envs
    cfg.simulation.vis = False
    cfg.auto_reset = True
    if all(term is None or term.func is not mdp.time_out for term in cfg.terminations.values()):
        cfg.terminations["evaluation_time_out"] = TerminationTermCfg(func=mdp.time_out, time_out=True)
    if isinstance(cfg.scene.terrain, TerrainGeneratorCfg):
        # The last term places the environments, whatever a curriculum of the play config does.
        cfg.curriculum[DEALT_CELLS] = CurriculumTermCfg(func=mdp.DealtCells)
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


def judged_cfg(task: TaskCfg, physics: Physics = "fine", *, noise: bool = False) -> Any:
    """Return the config that a task is judged in, before overrides; with `noise`, that of the training observations."""
    cfg = task.playing if physics == "fine" else with_physics(task.playing, task.env)
    return eval_defaults(cfg, task.env if noise else None)


@contextmanager
def policy_on_task(
    task_id: str,
    checkpoint: Path,
    *,
    num_envs: int,
    deterministic: bool = True,
    physics: Physics = "fine",
    noise: bool = False,
    overrides: Mapping[str, Any] = {},
    notify: Callable[[str], None] = lambda message: None,
    change: Callable[[ManagerBasedRlEnvCfg], None] = lambda cfg: None,
) -> Iterator[tuple[ManagerBasedRlEnv, InferenceSetup]]:
    """Load a policy and make the environment to judge it in.

    Args:
        task_id: The task.
        checkpoint: A checkpoint of the task's library, or an exported policy.
        num_envs: Environments side by side.
        deterministic: Take the policy's mean instead of samples.
        physics: `coarse` is that of the training config.
        noise: Leave the observation noise of the training config on.
        overrides: Settings by path; they change the defaults of an evaluation, too.
        notify: Gets remarks.
        change: Changes the config in place, before the overrides do.
    """
    task = TASKS.get(task_id)
    cfg = judged_cfg(task, physics, noise=noise)
    if not isinstance(cfg, ManagerBasedRlEnvCfg):
        raise UsageError(f"{TASKS.entry(task_id).id} is a scene to play: it has no rewards to judge a policy by")
    change(cfg)
    configure(cfg, task.agent, overrides)
    eval_needs(cfg, num_envs)
    env = ManagerBasedRlEnv(cfg, notify=notify)
    try:
        yield env, load_policy(env, task.agent, checkpoint, deterministic=deterministic)
    finally:
        env.close()
