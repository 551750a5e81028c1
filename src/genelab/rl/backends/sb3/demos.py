"""Demonstrations for learners of Stable-Baselines3 that have a replay buffer."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from genelab.envs import ManagerBasedRlEnv
from genelab.errors import UsageError
from genelab.rl.backends.sb3.config import Sb3AgentCfg
from genelab.rl.demos import Demos

DEMO_PATH_VARIABLE = "GENELAB_SB3_DEMO_PATH"
"""Names a file of demonstrations, whatever the agent config says."""


def demo_path(agent: Sb3AgentCfg) -> str | None:
    """Where demonstrations are, if any; refuses what on-policy algorithms cannot use."""
    named = {DEMO_PATH_VARIABLE: os.environ.get(DEMO_PATH_VARIABLE) or None, "agent.demo_path": agent.demo_path}
    if agent.is_on_policy:
        for what, value in {**named, "agent.her": agent.her}.items():
            if value is not None:
                raise UsageError(f"{what}: {agent.algorithm} has no replay buffer; choose SAC, TD3 or DDPG")
    return next((path for path in named.values() if path is not None), None)


def fill_buffer(buffer: Any, demos: Demos, action_bound: float) -> None:
    """Put demonstrations into a replay buffer of SB3, step by step, as the learner's own transitions go in."""
    if len(demos) > buffer.buffer_size:
        raise UsageError(
            f"agent.off_policy.buffer_size: {buffer.buffer_size * buffer.n_envs} is too small for "
            f"{len(demos) * buffer.n_envs} transitions of demonstrations"
        )
    flat = list(demos.observations) == ["policy"]

    def row(values: dict[str, np.ndarray], step: int) -> Any:
        return values["policy"][step] if flat else {name: value[step] for name, value in values.items()}

    for step in range(len(demos)):
        buffer.add(
            row(demos.observations, step),
            row(demos.next_observations, step),
            np.clip(demos.actions[step] / action_bound, -1.0, 1.0),  # SB3 keeps actions as they leave the network
            demos.rewards[step],
            demos.dones[step],
            [{"TimeLimit.truncated": bool(cut)} for cut in demos.truncateds[step]],
        )


def check_learning_starts(agent: Sb3AgentCfg, env: ManagerBasedRlEnv) -> None:
    """Goals are relabelled within whole episodes, so there must be some; demonstrations bring theirs."""
    least = env.num_envs * (env.max_episode_length + 1)
    if agent.off_policy.learning_starts < least:
        raise UsageError(
            f"agent.off_policy.learning_starts: {agent.off_policy.learning_starts} is before the first episodes end; "
            f"hindsight replay of {env.num_envs} environments needs at least {least}"
        )
