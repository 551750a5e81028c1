"""Terminations: what ends an episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from genelab.errors import ConfigError
from genelab.managers.base import Manager, Table, TermCfg, _name
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv


@dataclass(kw_only=True)
class TerminationTermCfg(TermCfg):
    """A condition, one boolean per environment."""

    time_out: bool = False
    """The episode is cut off, not lost: learners go on valuing the state it ended in, or the one before it if their
    library does not read final observations."""


class TerminationManager(Manager[TerminationTermCfg]):
    """Whether an episode ended, and by which term."""

    kind = "termination"
    env: ManagerBasedRlEnv
    not_state = ("_failures", "_time_outs")

    def __init__(self, cfgs: Mapping[str, TerminationTermCfg], env: ManagerBasedRlEnv) -> None:
        super().__init__(cfgs, env)
        self.terminated = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)
        self.truncated = torch.zeros_like(self.terminated)
        self.values = torch.zeros(len(self.terms), env.num_envs, dtype=torch.bool, device=env.device)
        """What each term said in the last step, `(terms, N)`."""
        cuts = [cfg.time_out for cfg in self.cfgs.values()]
        self._failures = [i for i, cut in enumerate(cuts) if not cut]
        self._time_outs = [i for i, cut in enumerate(cuts) if cut]

    def compute(self, resting: Tensor | None = None) -> Tensor:
        """Return which episodes end with this step, `(N,)`.

        Args:
            resting: Environments that took no part in the step, `(N,)`; their `values` stay those of their last one.
        """
        if not self.terms:
            return self.terminated | self.truncated
        values = []
        for term in self.terms.values():
            value = term.vector()
            if value.dtype != torch.bool:
                raise ConfigError(f"{term.where} must return booleans, got {value.dtype}")
            values.append(value)
        # A copy: what a term returns may be its own memory, which the coming reset wipes.
        said = torch.stack(values)
        self.values = said if resting is None else torch.where(resting, self.values, said)
        self.terminated = self._any_of(self._failures)
        self.truncated = self._any_of(self._time_outs)
        if resting is not None:
            self.terminated, self.truncated = self.terminated & ~resting, self.truncated & ~resting
        return self.terminated | self.truncated

    def _any_of(self, terms: list[int]) -> Tensor:
        ends = self.values[terms[0]] if terms else torch.zeros_like(self.values[0])
        for i in terms[1:]:
            ends = ends | self.values[i]
        return ends

    def cut_off(self, which: Tensor) -> Tensor:
        """End the episodes of some environments, `(N,)`, as cut off, whatever the terms said; all that end."""
        self.terminated, self.truncated = self.terminated & ~which, self.truncated | which
        return self.terminated | self.truncated

    def reset(self, env_ids: EnvIds) -> dict[str, Any]:
        """Log what share of these episodes each term ended."""
        super().reset(env_ids)
        rows = slice(None) if env_ids is None else env_ids
        shares = self.values[:, rows].to(self.env.dtype).mean(dim=1)
        return {f"Episode_Termination/{name}": share for name, share in zip(self.terms, shares.unbind(), strict=True)}

    def table(self) -> Table:
        rows = [(n, "time-out" if c.time_out else "failure", _name(c.func)) for n, c in self.cfgs.items()]
        return Table("terminations", ("term", "kind", "function"), rows)
