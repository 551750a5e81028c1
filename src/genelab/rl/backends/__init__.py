"""RL libraries, chosen by the type of the agent config."""

from genelab.rl.backends.base import (
    Backend,
    InferenceSetup,
    Learner,
    TrainContext,
    register_backend,
    select_backend,
)
from genelab.rl.config import RslRlOnPolicyRunnerCfg

register_backend(RslRlOnPolicyRunnerCfg, "genelab.rl.backends.rsl_rl:RslRlBackend")

__all__ = ["Backend", "InferenceSetup", "Learner", "TrainContext", "register_backend", "select_backend"]
