"""What the robot is asked to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from genelab import math as gm
from genelab.errors import ConfigError, did_you_mean
from genelab.managers.base import Table
from genelab.managers.marks import GOAL, Ball, Control, Mark
from genelab.managers.meaning import Meaning
from genelab.managers.probe import Probe
from genelab.sim import EnvIds
from genelab.state import Stateful

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv

Range = tuple[float, float]
Stage = dict[str, dict[str, tuple[Range, Range]]]
"""How far a curriculum has come: by command and field, the range as configured and as reached."""


@dataclass(kw_only=True)
class CommandTermCfg:
    """A goal that is drawn anew from time to time."""

    resampling_time_range: tuple[float, float] = (1e9, 1e9)
    """Shortest and longest time a command lasts, s; always drawn at a reset."""

    def build(self, name: str, env: ManagerBasedRlEnv) -> CommandTerm:
        """The running term."""
        raise NotImplementedError


class CommandTerm(Stateful):
    """Keeps a command for each environment."""

    command: Tensor
    """The command, `(N, d)`."""
    drawn_from: ClassVar[tuple[str, ...]] = ()
    """Fields of the config that are ranges `(low, high)` which the commands are drawn from."""
    goal_radius: float | None = None
    """For a command that is a place in the world, `(N, 3)`: how near is near enough, m. Pictures show it as a ball."""
    fixed: Tensor | None = None
    """Where somebody steers, `(N,)`."""

    def __init__(self, name: str, cfg: CommandTermCfg, env: ManagerBasedRlEnv) -> None:
        self.name = name
        self.cfg = cfg
        self.env = env
        self.ranges: dict[str, Range] = {}
        """The ranges in force, by their fields in the config; a curriculum changes them."""
        self._start: dict[str, Range] = {}
        self.begin_with({})
        self.time_left = torch.zeros(env.num_envs, device=env.device, dtype=env.dtype)

    def begin_with(self, ranges: Mapping[str, Range]) -> None:
        """Take these ranges, and for the others the configured ones, now and after every `restart`."""
        self._start = {name: ranges.get(name, getattr(self.cfg, name)) for name in self.drawn_from}
        self.restart()

    def cfg_in_force(self) -> CommandTermCfg:
        """The config with the ranges as they are now."""
        return dataclasses.replace(self.cfg, **self.ranges)

    def meaning(self) -> Meaning:
        """What its columns are."""
        return Meaning()

    def metadata(self) -> dict[str, Any]:
        """What it is, for whoever rebuilds it on a robot: what its config says, with the ranges as they are now."""
        return dict(vars(self.cfg_in_force()))

    def tables(self) -> dict[str, np.ndarray]:
        """Numbers that are too many for the metadata, by name; asked for at the start of an episode.

        An export for plain MuJoCo has them in `tables.npz`.
        """
        return {}

    def marks(self, i: int, top: float) -> list[Mark]:
        """What pictures show of environment `i`, always as many marks and in the same order.

        The robot reaches `top` metres above its root.
        """
        if self.goal_radius is None:
            return []
        return [Ball(self.command[i].cpu().double().numpy(), self.goal_radius, GOAL)]

    def controls(self) -> list[Control]:
        """What a viewer offers to steer it with, one for each column: its ranges, if every column has one."""
        if len(self.ranges) != self.command.shape[1]:
            return []
        told = self.meaning()
        units = [told.unit] * len(self.ranges) if isinstance(told.unit, str) else told.unit
        labels = [", ".join(filter(None, pair)) for pair in zip(told.columns or self.ranges, units, strict=True)]
        return [Control(label, *ends) for label, ends in zip(labels, self.ranges.values(), strict=True)]

    def fix(self, command: Tensor, env_ids: EnvIds = None) -> None:
        """Ask for this from now on, `(len(env_ids), d)`: where somebody steers, no more commands are drawn."""
        if self.fixed is None:
            self.fixed = torch.zeros(self.env.num_envs, dtype=torch.bool, device=self.env.device)
        rows = slice(None) if env_ids is None else env_ids
        self.command[rows] = command.to(self.command)
        self.fixed[rows] = True

    def release(self, env_ids: EnvIds = None) -> None:
        """Draw commands again; until the next is due, this one stays."""
        if self.fixed is not None:
            self.fixed[slice(None) if env_ids is None else env_ids] = False

    def probe(self) -> Probe | None:
        """How an evaluation judges whether it is followed, if the return and the task's metrics do not say it."""
        return None

    def restart(self) -> None:
        """Forget what past episodes changed."""
        self.ranges = dict(self._start)

    def resample(self, env_ids: Tensor) -> None:
        """Draw new commands for these environments."""
        raise NotImplementedError

    def measure(self) -> None:
        """Take note of how the command was followed in the control step that ended, before episodes end."""

    def update(self) -> None:
        """Adapt the commands to the state: every control step, and when episodes have begun outside of one."""

    def advance(self, dt: float, fresh: Tensor | None = None) -> None:
        """Let time pass, but not for the environments that were reset just now."""
        self.time_left -= dt
        if fresh is not None:
            gm.shift(self.time_left, fresh, dt)
        due = (self.time_left < 0.01 * dt).nonzero()[:, 0]  # less is rounding, and no reason to wait a step
        if len(due):
            self._draw(due)
        self.update()

    def _draw(self, env_ids: Tensor) -> None:
        self.time_left[env_ids] = gm.uniform(
            *self.cfg.resampling_time_range, (len(env_ids),), self.env.rng, self.env.dtype
        )
        self.resample(env_ids if self.fixed is None else env_ids[~self.fixed[env_ids]])

    def reset(self, env_ids: EnvIds) -> dict[str, Any]:
        """Draw new commands for new episodes; returns what to log of the old ones."""
        self._draw(torch.arange(self.env.num_envs, device=self.env.device) if env_ids is None else env_ids)
        return {}


class CommandManager(Stateful):
    """All commands, by name."""

    kind = "command"
    parts = ("terms",)

    def __init__(self, cfgs: Mapping[str, CommandTermCfg], env: ManagerBasedRlEnv) -> None:
        self.terms = {name: cfg.build(name, env) for name, cfg in cfgs.items()}

    def __getitem__(self, name: str) -> Tensor:
        return self.term(name).command

    def term(self, name: str) -> CommandTerm:
        """The term of this name."""
        try:
            return self.terms[name]
        except KeyError:
            raise ConfigError(f"no command is called {name!r}.{did_you_mean(name, self.terms)}") from None

    def advance(self, dt: float, fresh: Tensor | None = None) -> None:
        """Let time pass, but not for the environments that were reset just now; draw the commands that are due."""
        for term in self.terms.values():
            term.advance(dt, fresh)

    def measure(self) -> None:
        """Take note of how the commands were followed in the control step that ended, before episodes end."""
        for term in self.terms.values():
            term.measure()

    def update(self) -> None:
        """Adapt the commands to the state, when no time passes."""
        for term in self.terms.values():
            term.update()

    def restart(self) -> None:
        """Forget what past episodes changed: ranges are those of the beginning."""
        for term in self.terms.values():
            term.restart()

    def stage(self) -> Stage:
        """The ranges that are others than configured: what a curriculum made of them."""
        stage: Stage = {}
        for name, term in self.terms.items():
            changed = {key: value for key, value in term.ranges.items() if value != getattr(term.cfg, key)}
            if changed:
                stage[name] = {key: (getattr(term.cfg, key), value) for key, value in changed.items()}
        return stage

    def begin_at(self, stage: Stage) -> None:
        """Begin where a policy's training had come to; a range that is configured otherwise here stays so."""
        for name, term in self.terms.items():
            reached = stage.get(name, {}).items()
            term.begin_with({key: end for key, (start, end) in reached if getattr(term.cfg, key, None) == start})

    def reset(self, env_ids: EnvIds) -> dict[str, Any]:
        """Draw new commands for new episodes."""
        log: dict[str, Any] = {}
        for name, term in self.terms.items():
            log.update({f"Metrics/{name}/{key}": value for key, value in term.reset(env_ids).items()})
        return log

    def table(self) -> Table:
        """All terms, to print."""
        rows = []
        for name, term in self.terms.items():
            low, high = term.cfg.resampling_time_range
            rows.append((name, str(term.command.shape[1]), f"{low:g} … {high:g} s", type(term).__name__))
        return Table("commands", ("term", "dim", "lasts", "type"), rows)

    def __str__(self) -> str:
        return str(self.table())
