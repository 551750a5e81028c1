"""Any RL library for any task, whichever of them its own agent config asks for."""

from __future__ import annotations

import math

from genelab.rl.backends.registry import BACKENDS, select_backend
from genelab.rl.config import BackendConfig

DEFAULT_ITERATIONS = 100
"""Budget of an agent that the task did not bring."""


def agent_of(library: str | None, own: BackendConfig | None, num_envs: int) -> BackendConfig | None:
    """The task's own agent config, if it is of this library or none is asked for; else one with the library's defaults.

    The library is imported only for its defaults.
    """
    if library is None or (own is not None and BACKENDS.of(own).name == library):
        return own
    backend = BACKENDS.entry(library).load()
    agent = backend.default_agent()
    backend.set_budget(agent, budget_of(agent, DEFAULT_ITERATIONS, num_envs))
    return agent


def budget_of(agent: BackendConfig, iterations: int, num_envs: int) -> int:
    """So many iterations in the unit of the agent's own budget."""
    return iterations * select_backend(agent).budget_per_iteration(agent, num_envs)


def iterations_in(agent: BackendConfig, budget: int, num_envs: int) -> int:
    """The iterations that a budget lasts for."""
    return math.ceil(budget / budget_of(agent, 1, num_envs))
