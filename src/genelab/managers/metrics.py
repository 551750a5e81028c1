"""What is worth knowing about a policy besides its reward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from genelab import math as gm
from genelab.managers.base import Manager, TermCfg
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv


@dataclass(kw_only=True)
class MetricTermCfg(TermCfg):
    """A quantity, one number per environment and step; one number per episode is logged."""

    reduce: Literal["mean", "last", "max"] = "mean"
    """What is kept of an episode: the mean over its steps, the value of its last step, or the largest."""


class MetricsManager(Manager[MetricTermCfg]):
    """Makes one number per episode of each term."""

    kind = "metric"
    env: ManagerBasedRlEnv
    not_state = ("_wants_max",)

    def __init__(self, cfgs: Mapping[str, MetricTermCfg], env: ManagerBasedRlEnv) -> None:
        super().__init__(cfgs, env)
        shape = (len(self.terms), env.num_envs)
        self.episode_sum = torch.zeros(shape, device=env.device, dtype=env.dtype)
        self.finished = torch.zeros_like(self.episode_sum)
        """Value of each environment's last finished episode, `(terms, N)`."""
        self._last = torch.zeros_like(self.episode_sum)
        self._max = torch.full_like(self.episode_sum, -torch.inf)
        self._wants_max = any(cfg.reduce == "max" for cfg in self.cfgs.values())
        self._steps = torch.zeros(env.num_envs, device=env.device, dtype=env.dtype)

    def compute(self, resting: Tensor | None = None) -> None:
        """Take this step's values, but not of resting environments, `(N,)`."""
        if self.terms:
            values = torch.stack([term.vector() for term in self.terms.values()])
            if values.dtype != self.env.dtype:
                values = values.to(self.env.dtype)
            counted = values
            if resting is not None:  # the values of its last step stay, and count once
                values = torch.where(resting, self._last, values)
                counted = values.masked_fill(resting, 0.0)
            self.episode_sum += counted
            self._last = values
            if self._wants_max:
                self._max = torch.maximum(self._max, values)
            self._steps += 1 if resting is None else ~resting

    def reset(self, env_ids: EnvIds) -> dict[str, Any]:
        """Log the mean over the finished episodes."""
        super().reset(env_ids)
        if not self.terms:
            return {}
        rows = slice(None) if env_ids is None else env_ids
        values = self._episode(rows)
        self.finished[:, rows] = values
        gm.fill(self.episode_sum, env_ids, dim=1)
        gm.fill(self._max, env_ids, -torch.inf, dim=1)
        gm.fill(self._steps, env_ids)
        return {f"Metrics/{name}": value for name, value in zip(self.terms, values.mean(dim=1).unbind(), strict=True)}

    def _episode(self, rows: slice | Tensor) -> Tensor:
        """The episodes so far of these environments, `(terms, rows)`; zero for one without a step."""
        steps = self._steps[rows]
        kinds = {"mean": self.episode_sum, "last": self._last, "max": self._max}
        wanted = [cfg.reduce for cfg in self.cfgs.values()]
        found = {kind: kinds[kind][:, rows] for kind in set(wanted)}
        if "mean" in found:
            found["mean"] = found["mean"] / steps
        mixed = len(found) > 1
        values = torch.stack([found[kind][i] for i, kind in enumerate(wanted)]) if mixed else found[wanted[0]]
        return torch.where(steps > 0, values, 0.0)
