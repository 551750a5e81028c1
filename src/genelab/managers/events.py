"""Events, what happens to the world from outside: domain randomisation, resets, pushes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from genelab import math as gm
from genelab.errors import ConfigError
from genelab.managers.base import Manager, Table, TermCfg, _name
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv

Mode = Literal["startup", "reset", "interval", "step"]


@dataclass(kw_only=True)
class EventTermCfg(TermCfg):
    """A function `(env, env_ids, **params)` that changes the world of some environments."""

    mode: Mode
    """When: once when the environment is made (and when it is seeded anew), at every reset, every so often, or in every
    control step."""
    interval_range_s: tuple[float, float] | None = None
    """Shortest and longest time between two events of one environment, s; for `interval` only."""


class EventManager(Manager[EventTermCfg]):
    """Lets events happen when they are due."""

    kind = "event"
    takes_env_ids = True

    def __init__(self, cfgs: Mapping[str, EventTermCfg], env: ManagerBasedEnv) -> None:
        super().__init__(cfgs, env)
        self._time_left = {}
        for name, cfg in self.cfgs.items():
            if (cfg.mode == "interval") != (cfg.interval_range_s is not None):
                raise ConfigError(
                    f"env.events.{name}: `interval_range_s` goes with the mode 'interval', and only with it"
                )
            if cfg.mode == "interval":
                self._time_left[name] = torch.zeros(env.num_envs, device=env.device, dtype=env.dtype)
                self._draw_times(name, None)

    def _draw_times(self, name: str, env_ids: EnvIds) -> None:
        interval = self.cfgs[name].interval_range_s
        assert interval is not None
        rows, count = (slice(None), self.env.num_envs) if env_ids is None else (env_ids, len(env_ids))
        timer = self._time_left[name]
        timer[rows] = gm.uniform(*interval, (count,), self.env.rng, timer.dtype)

    def apply(self, mode: Literal["startup", "reset"], env_ids: EnvIds) -> None:
        """Run the events of a mode."""
        for name, cfg in self.cfgs.items():
            if cfg.mode == mode:
                self.terms[name](env_ids)

    def advance(self, dt: float, fresh: Tensor | None = None) -> None:
        """Let time pass, but not for the environments that were reset just now; run the events that are due."""
        for name, cfg in self.cfgs.items():
            if cfg.mode == "step":
                self.terms[name](None)
        for name, timer in self._time_left.items():
            timer -= dt
            if fresh is not None:
                gm.shift(timer, fresh, dt)
            due = (timer < 0.01 * dt).nonzero()[:, 0]  # less is rounding, and no reason to wait a step
            if len(due):
                self.terms[name](due)
                self._draw_times(name, due)

    def reset(self, env_ids: EnvIds) -> dict[str, object]:
        """Start the timers of these environments anew."""
        super().reset(env_ids)
        for name in self._time_left:
            self._draw_times(name, env_ids)
        return {}

    def table(self) -> Table:
        rows = []
        for name, cfg in self.cfgs.items():
            every = "" if cfg.interval_range_s is None else "{:g} … {:g} s".format(*cfg.interval_range_s)
            rows.append((name, cfg.mode, every, _name(cfg.func)))
        return Table("events", ("term", "mode", "every", "function"), rows)
