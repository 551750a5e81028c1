"""The four RL libraries, for any task, whichever of them its own agent config asks for."""

from __future__ import annotations

import math
from typing import Any

from genelab.rl.config import BackendConfig, RlGamesAgentCfg, RslRlOnPolicyRunnerCfg, Sb3AgentCfg, SkrlAgentCfg

DEFAULT_ITERATIONS = 100
"""Budget of an agent that the task did not bring."""

_KINDS: dict[str, type[BackendConfig]] = {
    "rsl_rl": RslRlOnPolicyRunnerCfg,
    "rl_games": RlGamesAgentCfg,
    "skrl": SkrlAgentCfg,
    "sb3": Sb3AgentCfg,
}
LIBRARIES = tuple(_KINDS)


def default_agent(library: str, num_envs: int) -> BackendConfig:
    """An agent of a library, with the library's defaults."""
    kind: Any = _KINDS[library]
    budget = "max_iterations" if kind is RslRlOnPolicyRunnerCfg else "timesteps"
    agent = kind(**{budget: 1})
    setattr(agent, budget, budget_of(agent, DEFAULT_ITERATIONS, num_envs))
    return agent


def is_of(agent: Any, library: str) -> bool:
    """Whether an agent config asks for this library; tells without importing it."""
    return isinstance(agent, _KINDS[library])


def budget_of(agent: Any, iterations: int, num_envs: int) -> int:
    """So many iterations in the unit of the agent's own budget; of a library from elsewhere, the number itself."""
    match agent:
        case SkrlAgentCfg():
            return iterations * agent.rollouts
        case RlGamesAgentCfg():
            return iterations * agent.horizon_length
        case Sb3AgentCfg():
            steps = agent.on_policy.n_steps if agent.is_on_policy else agent.off_policy.iteration_steps
            return iterations * steps * num_envs
    return iterations


def iterations_in(agent: Any, budget: int, num_envs: int) -> int:
    """The iterations that a budget lasts for."""
    return math.ceil(budget / budget_of(agent, 1, num_envs))
