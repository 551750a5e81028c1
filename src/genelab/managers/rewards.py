"""Rewards: what the policy is paid for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from genelab import math as gm
from genelab.managers.base import Manager, Table, TermCfg, _name
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv


@dataclass(kw_only=True)
class RewardTermCfg(TermCfg):
    """A quantity, one number per environment, and its price."""

    weight: float
    """Multiplies the term, and the control step's duration unless the env says otherwise. 0 switches it off: it is
    called once, and from then on only if it published something in `env.extras`, `is_success` for one. A curriculum
    changes it in `env.reward_manager.weights`."""
    schedule: str | None = None
    """Name of the schedule that says what share of the weight counts; None: all of it. A penalty that is there in full
    from the start can teach to end the episode."""


class RewardManager(Manager[RewardTermCfg]):
    """The weighted sum of its terms."""

    kind = "reward"
    env: ManagerBasedRlEnv
    not_state = ("_active", "_paid", "_factors", "overflowed")

    def __init__(self, cfgs: Mapping[str, RewardTermCfg], env: ManagerBasedRlEnv) -> None:
        super().__init__(cfgs, env)
        shape = (len(self.terms), env.num_envs)
        self.step_reward = torch.zeros(shape, device=env.device, dtype=env.dtype)
        """Contribution of each term to the last step's reward, `(terms, N)`."""
        self.episode_sum = torch.zeros_like(self.step_reward)
        self.finished = torch.zeros_like(self.step_reward)
        """What each term paid in each environment's last finished episode, `(terms, N)`."""
        self.weights: dict[str, float] = {}
        """The weight of each term, before its schedule."""
        self.restart()
        self._publishes: dict[str, bool] = {}  # of the terms without weight that were called
        self.overflowed: Tensor | None = None
        """Where the last step's reward was not a finite number, and counts as zero, `(N,)`; only if a diverged
        environment is reset."""
        self._active: list[tuple[int, Any]] = []
        self._paid: tuple[float, ...] = ()
        self._factors: Tensor | None = None

    def compute(self, resting: Tensor | None = None) -> Tensor:
        """Return the reward of the step that ended, `(N,)`.

        Args:
            resting: Environments that took no part in the step, `(N,)`; they are not paid.
        """
        self.overflowed = None
        share = self.env.schedules.share
        weights = tuple(self.weights[name] * share(cfg.schedule) for name, cfg in self.cfgs.items())
        if weights != self._paid:  # schedules and curricula change them
            self._set_weights(weights)
        self._let_publish(weights)
        if self._factors is None or not self._active:
            self.step_reward = torch.zeros_like(self.step_reward)
            return torch.zeros(self.env.num_envs, device=self.env.device, dtype=self.env.dtype)
        values = torch.stack([term.vector() for _, term in self._active])
        weighted = values * self._factors
        if self.env.cfg.simulation.on_divergence == "reset":
            self.overflowed = ~weighted.sum(dim=0).isfinite()
            weighted = weighted.masked_fill(self.overflowed, 0.0)
        if resting is not None:
            weighted = weighted.masked_fill(resting, 0.0)
        if len(self._active) == len(self.terms):
            self.step_reward = weighted
        else:
            self.step_reward = torch.zeros_like(self.step_reward)
            self.step_reward[[i for i, _ in self._active]] = weighted
        self.episode_sum += self.step_reward
        return weighted.sum(dim=0)

    def _set_weights(self, weights: tuple[float, ...]) -> None:
        self._paid = weights
        terms = list(self.terms.values())
        self._active = [(i, terms[i]) for i, weight in enumerate(weights) if weight != 0.0]
        factor = self.env.step_dt if self.env.cfg.scale_rewards_by_dt else 1.0
        factors = [weights[i] * factor for i, _ in self._active]
        self._factors = torch.tensor(factors, device=self.env.device, dtype=self.env.dtype)[:, None]

    def _let_publish(self, weights: tuple[float, ...]) -> None:
        """Call the terms that are not paid for, if they have something to say besides."""
        extras = self.env.extras
        for (name, term), weight in zip(self.terms.items(), weights, strict=True):
            if weight == 0.0 and self._publishes.get(name, True):
                before = len(extras)
                term.vector()
                self._publishes.setdefault(name, len(extras) > before)

    def restart(self) -> None:
        """Forget what past episodes changed: weights are the configured ones."""
        self.weights = {name: cfg.weight for name, cfg in self.cfgs.items()}

    def reset(self, env_ids: EnvIds) -> dict[str, Any]:
        """Log each term's mean rate over the finished episodes, per second of a full episode."""
        super().reset(env_ids)
        rows = slice(None) if env_ids is None else env_ids
        sums = self.episode_sum[:, rows]
        means = sums.mean(dim=1) / self.env.max_episode_length_s
        self.finished[:, rows] = sums
        gm.fill(self.episode_sum, env_ids, dim=1)
        return {f"Episode_Reward/{name}": value for name, value in zip(self.terms, means.unbind(), strict=True)}

    def table(self) -> Table:
        rows = [(name, f"{cfg.weight:g}", cfg.schedule or "", _name(cfg.func)) for name, cfg in self.cfgs.items()]
        return Table("rewards", ("term", "weight", "schedule", "function"), rows)
