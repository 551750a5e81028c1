"""Environments."""

from genelab.envs.factory import make_env, make_vec
from genelab.envs.manager_based_env import ManagerBasedEnv, ManagerBasedEnvCfg
from genelab.envs.manager_based_rl_env import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.envs.play import play_cfg

__all__ = [
    "ManagerBasedEnv",
    "ManagerBasedEnvCfg",
    "ManagerBasedRlEnv",
    "ManagerBasedRlEnvCfg",
    "make_env",
    "make_vec",
    "play_cfg",
]
