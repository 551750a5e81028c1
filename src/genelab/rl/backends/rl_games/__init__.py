"""rl_games: PPO. Importing this package imports neither torch nor the library."""

from genelab.rl.backends.registry import register_backend
from genelab.rl.backends.rl_games.config import RlGamesAgentCfg

register_backend(
    RlGamesAgentCfg, f"{__name__}.backend:RlGamesBackend", name="rl_games", extra="rl-games", packages=["rl-games"]
)
