"""What is worth knowing about a policy besides its reward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from genelab.managers.base import Manager, TermCfg
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv


@dataclass(kw_only=True)
class MetricTermCfg(TermCfg):
    """A quantity, one number per environment and step; its mean over the episode is logged."""


class MetricsManager(Manager):
    """Averages its terms over episodes."""

    kind = "metric"
    env: ManagerBasedRlEnv

    def __init__(self, cfgs: Mapping[str, MetricTermCfg | None], env: ManagerBasedRlEnv) -> None:
        super().__init__(cfgs, env)
        self.episode_sum = torch.zeros(len(self.terms), env.num_envs, device=env.device, dtype=env.dtype)

    def compute(self) -> None:
        """Add this step's values."""
        if self.terms:
            self.episode_sum += torch.stack([term.vector() for term in self.terms.values()])

    def reset(self, env_ids: EnvIds) -> dict[str, Any]:
        """Log the mean over the finished episodes."""
        super().reset(env_ids)
        if not self.terms:
            return {}
        rows = slice(None) if env_ids is None else env_ids
        steps = self.env.episode_length_buf[rows].clamp(min=1)
        means = (self.episode_sum[:, rows] / steps).mean(dim=1)
        self.episode_sum[:, rows] = 0.0
        return {f"Metrics/{name}": value for name, value in zip(self.terms, means.unbind(), strict=True)}
