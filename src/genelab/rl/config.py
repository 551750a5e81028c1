"""Agent configs. The type of a task's agent config chooses the RL library that trains it.

Importing this module imports neither torch nor an RL library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genelab.config import apply_overrides
from genelab.rl.backends.config import BackendConfig
from genelab.rl.backends.rl_games.config import RlGamesAgentCfg
from genelab.rl.backends.rsl_rl.config import (
    RslRlActivation,
    RslRlDistributionCfg,
    RslRlModelCfg,
    RslRlOnPolicyRunnerCfg,
    RslRlPpoAlgorithmCfg,
    RslRlRndCfg,
    RslRlRndScheduleCfg,
    RslRlSymmetryCfg,
)
from genelab.rl.backends.sb3.config import (
    Sb3AgentCfg,
    Sb3HerCfg,
    Sb3OffPolicyCfg,
    Sb3OnPolicyCfg,
)
from genelab.rl.backends.skrl.config import SkrlAgentCfg

__all__ = [
    "BackendConfig",
    "RlGamesAgentCfg",
    "RslRlActivation",
    "RslRlDistributionCfg",
    "RslRlModelCfg",
    "RslRlOnPolicyRunnerCfg",
    "RslRlPpoAlgorithmCfg",
    "RslRlRndCfg",
    "RslRlRndScheduleCfg",
    "RslRlSymmetryCfg",
    "Sb3AgentCfg",
    "Sb3HerCfg",
    "Sb3OffPolicyCfg",
    "Sb3OnPolicyCfg",
    "SkrlAgentCfg",
    "configure",
]


def configure(env: Any, agent: Any, overrides: Mapping[str, Any] = {}, *, learns: bool = False) -> None:
    """Apply overrides to the configs of a task, and refuse what no run could be made of; a task may have no agent."""
    apply_overrides({"env": env} if agent is None else {"env": env, "agent": agent}, overrides)
    env.validate()
    if isinstance(agent, BackendConfig):
        agent.validate()
        if learns:
            agent.validate_rollouts(env.scene.num_envs)
