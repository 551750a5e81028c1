"""From a config or a task's id to an environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from genelab.config import TASKS, apply_overrides
from genelab.envs.manager_based_env import ManagerBasedEnv, ManagerBasedEnvCfg
from genelab.envs.manager_based_rl_env import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.errors import UsageError


def make_env(cfg: ManagerBasedEnvCfg, *, notify: Callable[[str], None] | None = None) -> ManagerBasedEnv:
    """The environment a config describes: with rewards if it has them."""
    if isinstance(cfg, ManagerBasedRlEnvCfg):
        return ManagerBasedRlEnv(cfg, notify=notify)
    return ManagerBasedEnv(cfg, notify=notify)


def rl_cfg(task: str, *, play: bool = False) -> ManagerBasedRlEnvCfg:
    """The config that a task is trained or, with `play`, judged in; a scene to play is refused."""
    known = TASKS.get(task)
    cfg = known.playing if play else known.env
    if not isinstance(cfg, ManagerBasedRlEnvCfg):
        raise UsageError(f"{TASKS.entry(task).id} is a scene to play, not a task to learn: it has no rewards")
    return cfg


def make_vec(
    task: str,
    num_envs: int,
    *,
    play: bool = False,
    seed: int | None = None,
    overrides: Mapping[str, Any] = {},
) -> ManagerBasedRlEnv:
    """The environment behind `gymnasium.make_vec(task, num_envs=...)`.

    `play` takes the config for watching and judging, `overrides` are dotted: `{"env.simulation.dt": 0.002}`.
    """
    cfg = rl_cfg(task, play=play)
    apply_overrides({"env": cfg}, overrides)
    cfg.scene.num_envs = num_envs
    cfg.seed = seed if seed is not None else cfg.seed
    return ManagerBasedRlEnv(cfg)
