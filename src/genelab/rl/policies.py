"""Where actions come from: a file, or nothing that was learned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv
from genelab.errors import UsageError, refusing
from genelab.rl.backends.base import InferenceSetup, select_backend
from genelab.rl.exported import is_exported, load_exported

Policy = Callable[[dict[str, Tensor]], Tensor]
"""From observations by group to actions `(num_envs, action_dim)`."""


def load_policy(
    env: ManagerBasedRlEnv, agent_cfg: Any, checkpoint: Path, *, deterministic: bool = True
) -> InferenceSetup:
    """The policy in a file, for an environment: a checkpoint of the agent's library, or an exported policy."""
    if is_exported(checkpoint):
        if not deterministic:
            raise UsageError(
                f"{checkpoint}: an exported policy is deterministic; `deterministic=False` needs a checkpoint"
            )
        return load_exported(env, checkpoint)
    backend = select_backend(agent_cfg)
    with refusing(checkpoint, "a damaged checkpoint"):
        return backend.load(env, agent_cfg, checkpoint, deterministic=deterministic)


def zero_policy(env: ManagerBasedEnv) -> Policy:
    """Zero actions: for joint positions, the default pose."""
    action = torch.zeros(env.num_envs, env.action_dim, device=env.device, dtype=env.dtype)
    return lambda observations: action


def random_policy(env: ManagerBasedEnv) -> Policy:
    """Uniform actions in [−1, 1], from the environment's seed but not from its random numbers."""
    rng = torch.Generator(device=env.device)
    rng.manual_seed(env.seed)
    shape = (env.num_envs, env.action_dim)

    def act(observations: dict[str, Tensor]) -> Tensor:
        return 2.0 * torch.rand(shape, generator=rng, device=env.device, dtype=env.dtype) - 1.0

    return act
