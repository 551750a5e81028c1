"""From a config or a task's id to an environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from genelab.config import TASKS, apply_override
from genelab.envs.manager_based_env import ManagerBasedEnv, ManagerBasedEnvCfg
from genelab.envs.manager_based_rl_env import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.errors import UsageError


def make_env(cfg: ManagerBasedEnvCfg, *, notify: Callable[[str], None] | None = None) -> ManagerBasedEnv:
    """The environment a config describes: with rewards if it has them."""
    if isinstance(cfg, ManagerBasedRlEnvCfg):
        return ManagerBasedRlEnv(cfg, notify=notify)
    return ManagerBasedEnv(cfg, notify=notify)


def make_vec(
    task: str,
    num_envs: int,
    *,
    play: bool = False,
    seed: int | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> ManagerBasedRlEnv:
    """The environment behind `gymnasium.make_vec(task, num_envs=...)`.

    `play` takes the config for watching and judging, `overrides` are dotted: `{"env.simulation.dt": 0.002}`.
    """
    task_cfg = TASKS.get(task)
    cfg = task_cfg.play_env if play and task_cfg.play_env is not None else task_cfg.env
    for path, value in (overrides or {}).items():
        apply_override({"env": cfg}, path, value)
    if not isinstance(cfg, ManagerBasedRlEnvCfg):
        raise UsageError(f"{task!r} is a scene to play, not a task to learn: it has no rewards")
    cfg.scene.num_envs = num_envs
    cfg.seed = seed if seed is not None else cfg.seed
    return ManagerBasedRlEnv(cfg)
