"""Environments."""

from genelab.envs.factory import make_env, rl_cfg
from genelab.envs.finite_guard import LOOK_STEPS, FiniteGuard, NotFiniteError
from genelab.envs.judging import play_cfg
from genelab.envs.manager_based_env import ManagerBasedEnv, ManagerBasedEnvCfg
from genelab.envs.manager_based_rl_env import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.envs.physics import Physics, describe_physics, physics_changes, with_physics
from genelab.envs.watch import StepResult, Watcher

__all__ = [
    "LOOK_STEPS",
    "FiniteGuard",
    "ManagerBasedEnv",
    "ManagerBasedEnvCfg",
    "ManagerBasedRlEnv",
    "ManagerBasedRlEnvCfg",
    "NotFiniteError",
    "Physics",
    "StepResult",
    "Watcher",
    "describe_physics",
    "make_env",
    "physics_changes",
    "play_cfg",
    "rl_cfg",
    "with_physics",
]
