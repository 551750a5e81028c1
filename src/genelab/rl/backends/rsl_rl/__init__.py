"""rsl_rl: PPO, with or without memory. Importing this package imports neither torch nor the library."""

from genelab.rl.backends.registry import register_backend
from genelab.rl.backends.rsl_rl.config import RslRlOnPolicyRunnerCfg

register_backend(RslRlOnPolicyRunnerCfg, f"{__name__}.backend:RslRlBackend", name="rsl_rl", packages=["rsl-rl-lib"])
