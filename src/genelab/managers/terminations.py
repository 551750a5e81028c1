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

    def __init__(self, cfgs: Mapping[str, TerminationTermCfg], env: ManagerBasedRlEnv) -> None:
        super().__init__(cfgs, env)
        self.terminated = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)
        self.truncated = torch.zeros_like(self.terminated)
        self.values = torch.zeros(len(self.terms), env.num_envs, dtype=torch.bool, device=env.device)
        """What each term said in the last step, `(terms, N)`."""

    def compute(self) -> Tensor:
        """Which episodes end with this step, `(N,)`."""
        values = []
        # New tensors: what a term returns may be its own memory, which the coming reset wipes.
        self.terminated, self.truncated = torch.zeros_like(self.terminated), torch.zeros_like(self.truncated)
        for name, term in self.terms.items():
            value = term.vector()
            if value.dtype != torch.bool:
                raise ConfigError(f"{term.where} must return booleans, got {value.dtype}")
            values.append(value)
            ends = self.truncated if self.cfgs[name].time_out else self.terminated
            ends |= value
        if values:
            self.values = torch.stack(values)
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
