"""From a config or a task's id to an environment."""

from __future__ import annotations

from collections.abc import Callable

from genelab.config import TASKS
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
