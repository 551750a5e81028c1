"""Stable-Baselines3: PPO, A2C, SAC, TD3, DDPG, with hindsight experience replay and demonstrations.

Importing this package imports neither torch nor the library.
"""

from genelab.rl.backends.registry import register_backend
from genelab.rl.backends.sb3.config import Sb3AgentCfg

register_backend(Sb3AgentCfg, f"{__name__}.backend:Sb3Backend", name="sb3", extra="sb3", packages=["stable-baselines3"])
