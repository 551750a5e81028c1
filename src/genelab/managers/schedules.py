"""Shares that change while a policy learns, and then stay: of a penalty, of a push, of a helping hand.

A schedule has a name, and whatever it rules names it: a reward's `schedule`, a push's, a helping wrench's. Several may
follow one. What is left when it has ended is the task as it is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from genelab.errors import ConfigError, did_you_mean
from genelab.managers.base import Table, Term, TermCfg, _name
from genelab.sim import EnvIds
from genelab.state import Stateful

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv

_LOOK_EVERY = 25
"""Control steps between two looks at what the robots achieve: a look waits for the device."""


@dataclass(kw_only=True)
class GateCfg(TermCfg):
    """What robots must achieve for a schedule to go on: a reward-like function, averaged over all of them."""

    above: float
    """The schedule goes on while the average is above this."""
    below: float = -torch.inf
    """And back while it is below this."""


@dataclass(kw_only=True)
class ScheduleCfg:
    """A share over control steps."""

    start: float
    """Share at the beginning."""
    end: float = 1.0
    """Share when it has changed; it stays."""
    steps: int
    """Control steps from one to the other."""
    begin: int = 0
    """Control steps before it starts to change."""
    until: int | None = None
    """Control steps after which nothing is left of it; None: it stays. Help that is given up slowly is unlearned on the
    way; given up in the last moment, what it taught is kept."""
    curve: Literal["linear", "geometric"] = "linear"
    """By the same amount with every step, or by the same factor."""
    gate: GateCfg | None = None
    """It moves only as the robots get on; None: by control steps alone."""

    def validate(self, where: str) -> None:
        """Refuse what has no meaning."""
        if self.steps < 1:
            raise ConfigError(f"{where}.steps: at least 1, got {self.steps}")
        if self.until is not None and self.until < self.begin + self.steps:
            raise ConfigError(f"{where}.until: {self.until} is before it has changed, {self.begin} + {self.steps}")
        if self.curve == "geometric" and not (self.start > 0 and self.end > 0):
            raise ConfigError(f"{where}: a geometric schedule has no zero; it goes from {self.start} to {self.end}")

    @property
    def over_after(self) -> int:
        """Control steps after which it changes no more, if its gate never holds it up."""
        return self.begin + self.steps if self.until is None else self.until

    @property
    def left(self) -> float:
        """Share in the end."""
        return self.end if self.until is None else 0.0

    def at(self, progress: float) -> float:
        """The share at a progress between 0 and 1."""
        if self.curve == "geometric":
            return self.start ** (1.0 - progress) * self.end**progress
        return self.start + (self.end - self.start) * progress


class Schedule(Stateful):
    """A share, and how far it has come."""

    def __init__(self, name: str, cfg: ScheduleCfg, env: ManagerBasedRlEnv) -> None:
        cfg.validate(f"env.schedules.{name}")
        self.cfg = cfg
        self.env = env
        self.gate = None if cfg.gate is None else Term(name, cfg.gate, env, "gate of the schedule")
        self.achieved = torch.zeros((), device=env.device, dtype=env.dtype)
        """The gate's average over the last hundreds of control steps."""
        self.restart()

    def restart(self) -> None:
        """Begin anew."""
        self.made = 0
        self.gained = -self.cfg.begin
        self.achieved.zero_()
        self.value = self.cfg.at(0.0)

    def advance(self) -> None:
        """A control step has been made."""
        self.made += 1
        if self.cfg.until is not None and self.made >= self.cfg.until:
            self.value = 0.0
        elif self.cfg.gate is None or self.gate is None:
            self._gain(1)
        elif self.made % _LOOK_EVERY == 0:
            self.achieved += (self.gate.vector().mean() - self.achieved) / 8
            achieved = self.achieved.item()
            up, down = achieved > self.cfg.gate.above, achieved < self.cfg.gate.below
            self._gain(_LOOK_EVERY * (up - down))

    def _gain(self, steps: int) -> None:
        self.gained = max(min(self.gained + steps, self.cfg.steps), -self.cfg.begin)
        self.value = self.cfg.at(max(self.gained, 0) / self.cfg.steps)


class ScheduleManager(Stateful):
    """All schedules, by name."""

    kind = "schedule"
    parts = ("terms",)

    def __init__(self, cfgs: Mapping[str, ScheduleCfg], env: ManagerBasedRlEnv) -> None:
        self.terms = {name: Schedule(name, cfg, env) for name, cfg in cfgs.items()}

    def share(self, name: str | None) -> float:
        """What a schedule lets count now; all of it where there is none."""
        if name is None:
            return 1.0
        try:
            return self.terms[name].value
        except KeyError:
            raise ConfigError(f"no schedule is called {name!r}.{did_you_mean(name, self.terms)}") from None

    def end(self, name: str | None) -> float:
        """What a schedule lets count in the end; all of it where there is none."""
        return 1.0 if name is None or name not in self.terms else self.terms[name].cfg.left

    def advance(self) -> None:
        """A control step has been made."""
        for term in self.terms.values():
            term.advance()

    def restart(self) -> None:
        """Begin anew."""
        for term in self.terms.values():
            term.restart()

    def reset(self, env_ids: EnvIds) -> dict[str, Any]:
        """What to log."""
        return {f"Schedule/{name}": term.value for name, term in self.terms.items()}

    def table(self) -> Table:
        """All schedules, to print."""
        rows = []
        for name, term in self.terms.items():
            cfg = term.cfg
            when = f"{cfg.steps:,} control steps" + (f" after {cfg.begin:,}" if cfg.begin else "")
            gate = "" if cfg.gate is None else f"{_name(cfg.gate.func)} > {cfg.gate.above:g}"
            share = f"{cfg.start:g} → {cfg.end:g}" + ("" if cfg.until is None else f", 0 after {cfg.until:,}")
            rows.append((name, share, cfg.curve, when, gate))
        return Table("schedules", ("name", "share", "curve", "over", "while"), rows)

    def __str__(self) -> str:
        return str(self.table())
