"""RL libraries, chosen by the type of the agent config."""

from genelab.rl.backends.base import (
    Actor,
    Backend,
    FlatPolicy,
    InferenceSetup,
    Learner,
    Memory,
    TrainContext,
    register_backend,
    select_backend,
)
from genelab.rl.config import RlGamesAgentCfg, RslRlOnPolicyRunnerCfg, Sb3AgentCfg, SkrlAgentCfg

register_backend(RslRlOnPolicyRunnerCfg, "genelab.rl.backends.rsl_rl:RslRlBackend")
register_backend(SkrlAgentCfg, "genelab.rl.backends.skrl:SkrlBackend")
register_backend(RlGamesAgentCfg, "genelab.rl.backends.rl_games:RlGamesBackend")
register_backend(Sb3AgentCfg, "genelab.rl.backends.sb3:Sb3Backend")

__all__ = [
    "Actor",
    "Backend",
    "FlatPolicy",
    "InferenceSetup",
    "Learner",
    "Memory",
    "TrainContext",
    "register_backend",
    "select_backend",
]
