"""Whether two environments go on alike."""

from __future__ import annotations

import io
from typing import Any

import torch

from genelab.envs import ManagerBasedRlEnv


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    """Saved and loaded again, without running any code."""
    file = io.BytesIO()
    torch.save(state, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=True)


def assert_same_future(first: ManagerBasedRlEnv, second: ManagerBasedRlEnv, steps: int) -> int:
    """Both do the same, to the last bit; returns how many episodes ended."""
    ended = 0
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        action = 2 * torch.rand(first.num_envs, first.action_dim, generator=generator) - 1
        (seen, *outcome, info), (seen_too, *outcome_too, info_too) = first.step(action), second.step(action)
        pairs = [(seen[name], seen_too[name]) for name in seen] + list(zip(outcome, outcome_too, strict=True))
        final = info.get("final_obs", {})
        pairs += [(final[name], info_too["final_obs"][name]) for name in final]
        assert all(torch.equal(a, b) for a, b in pairs)
        ended += int((outcome[1] | outcome[2]).sum())
    return ended


def make_far(cfg: Any) -> tuple[ManagerBasedRlEnv, ManagerBasedRlEnv]:
    """Two environments of a task, the first in the middle of four episodes of 0.3 s."""
    cfg.scene.num_envs, cfg.seed, cfg.episode_length_s = 4, 3, 0.3
    first, second = ManagerBasedRlEnv(cfg), ManagerBasedRlEnv(cfg)
    first.reset()
    first.episode_length_buf = torch.tensor([0, 1, 2, 4], device=first.device)
    generator = torch.Generator().manual_seed(0)
    for _ in range(8):
        first.step(2 * torch.rand(4, first.action_dim, generator=generator) - 1)
    return first, second
