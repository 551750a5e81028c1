"""The four RL libraries, for any task, whichever of them its own agent config asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from genelab.rl.config import (
    BackendConfig,
    RlGamesAgentCfg,
    RslRlOnPolicyRunnerCfg,
    Sb3AgentCfg,
    SkrlAgentCfg,
)

DEFAULT_ITERATIONS = 100
"""Budget of an agent that the task did not bring."""

_DEFAULTS: dict[str, Callable[[], BackendConfig]] = {
    "rsl_rl": lambda: RslRlOnPolicyRunnerCfg(max_iterations=DEFAULT_ITERATIONS),
    "rl_games": lambda: RlGamesAgentCfg(timesteps=DEFAULT_ITERATIONS * RlGamesAgentCfg.horizon_length),
    "skrl": lambda: SkrlAgentCfg(timesteps=DEFAULT_ITERATIONS * SkrlAgentCfg.rollouts),
    "sb3": lambda: Sb3AgentCfg(timesteps=DEFAULT_ITERATIONS * 24 * 512),
}
LIBRARIES = tuple(_DEFAULTS)


def default_agent(library: str) -> BackendConfig:
    """An agent of a library, with the library's defaults."""
    return _DEFAULTS[library]()


def is_of(agent: Any, library: str) -> bool:
    """Whether an agent config asks for this library; tells without importing it."""
    return isinstance(agent, type(default_agent(library)))


def library_of(agent: Any) -> str:
    """Name of the library that an agent config asks for; it must be installed."""
    from genelab.rl.backends import select_backend

    return select_backend(agent).name


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
