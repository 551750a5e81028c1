"""skrl: PPO, A2C, SAC, TD3, DDPG. Importing this package imports neither torch nor the library."""

from genelab.rl.backends.registry import register_backend
from genelab.rl.backends.skrl.config import SkrlAgentCfg

register_backend(SkrlAgentCfg, f"{__name__}.backend:SkrlBackend", name="skrl", extra="skrl", packages=["skrl"])
