"""How well a velocity command is followed, one direction at a time.

A mean return hides a policy that walks well forward and not at all sideways. Here groups of robots are each asked for
one velocity, and each group is judged by itself. On generated ground every group has as many robots on each kind of
ground and on each level, and a robot is judged while it is over its own cell. The robots of all groups come one after
the other into however many environments there are.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from genelab.managers import BlockScore, Probe, Range
from genelab.mdp.probe_starts import cells_of, deal, kinds_of, robots_per_direction, start_on_relief, start_poses
from genelab.scene.terrains import GeneratedTerrain

if TYPE_CHECKING:
    from genelab.mdp.commands import VelocityCommand

SLOW_YAW = 0.2
"""A slow turn, rad/s: policies that only know how to stand or to spin fail it."""


@dataclass(frozen=True, kw_only=True)
class Direction:
    """What became of one commanded velocity."""

    name: str
    command: tuple[float, float, float]
    """Forward and left, m/s; turning, rad/s."""
    achieved: float
    """Median over environments of the mean velocity along the command; standing, of the mean speed."""
    fraction: float | None
    """Share of the command that was achieved; None for standing."""
    falls: int
    """Environments whose episode failed."""


def directions_of(lin_vel_x: Range, lin_vel_y: Range, ang_vel_z: Range) -> dict[str, tuple[float, float, float]]:
    """The fastest command either way along each axis, a slow turn either way, and standing.

    A way that the ranges do not go is left out, and so is a slow turn where the fastest is no faster.
    """
    (back, forward), (right, left), (clockwise, counter) = lin_vel_x, lin_vel_y, ang_vel_z
    wanted = {
        "forward": (max(forward, 0.0), 0.0, 0.0),
        "backward": (min(back, 0.0), 0.0, 0.0),
        "left": (0.0, max(left, 0.0), 0.0),
        "right": (0.0, min(right, 0.0), 0.0),
        "turn left": (0.0, 0.0, max(counter, 0.0)),
        "turn right": (0.0, 0.0, min(clockwise, 0.0)),
        "slow turn left": (0.0, 0.0, SLOW_YAW if counter > SLOW_YAW else 0.0),
        "slow turn right": (0.0, 0.0, -SLOW_YAW if clockwise < -SLOW_YAW else 0.0),
    }
    return {name: command for name, command in wanted.items() if any(command)} | {"stand": (0.0, 0.0, 0.0)}


class VelocityProbe(Probe):
    """Drives equal groups of robots in all directions."""

    name = "velocity"
    seconds = 10.0
    settle = 1.0
    """Seconds at the start that do not count."""
    envs_per_direction = 64
    """Robots in each direction, if there are as many environments, else so many; on generated ground, the nearest
    number that can be dealt evenly."""

    def __init__(self, term: VelocityCommand, group: int | None = None, blocks: int = 1) -> None:
        """With `group` robots in each direction, in each of some blocks of environments that are judged apart."""
        env, terrain = term.env, term.env.scene.terrain
        self.env = env
        self.term = term
        self.terrain = terrain if isinstance(terrain, GeneratedTerrain) else None
        self.wanted = directions_of(**term.ranges)
        self.blocks = blocks
        self.group = group or self._per_direction(min(self.envs_per_direction, env.num_envs))
        """Robots in each direction."""
        self.robots = self.group * len(self.wanted) * blocks
        """All of them."""
        rows = torch.tensor(list(self.wanted.values()), device=env.device, dtype=env.dtype)
        self._command = rows.repeat_interleave(self.group, dim=0).repeat(blocks, 1)
        self._dealt = None if self.terrain is None else deal(self.terrain.cfg, len(self.wanted) * blocks, self.robots)
        self._way = torch.zeros(self.robots, 3, device=env.device)
        self._time = torch.zeros(self.robots, device=env.device)
        self._speed = torch.zeros_like(self._time)
        self._fell = torch.zeros(self.robots, dtype=torch.bool, device=env.device)
        self._here = torch.arange(env.num_envs, device=env.device)
        """The robot in each environment; in the last round the first ones may come again, and do not count."""
        self._alive = torch.ones_like(self._here, dtype=torch.bool)

    def _per_direction(self, about: int) -> int:
        """As many robots as can be dealt evenly."""
        return about if self.terrain is None else robots_per_direction(self.terrain.cfg, about)

    def in_full(self) -> VelocityProbe:
        """The same with as many robots as there are if environments do not lack."""
        return VelocityProbe(self.term, self._per_direction(self.envs_per_direction))

    @property
    def rounds(self) -> int:
        return math.ceil(self.robots / self.env.num_envs)

    def begin(self, turn: int) -> None:
        first = turn * self.env.num_envs
        robots = torch.arange(first, first + self.env.num_envs, device=self.env.device)
        self._alive, self._here = robots < self.robots, robots % self.robots
        self.term.fix(self._command[self._here])

    def end(self) -> None:
        self.term.release()

    def start(self, observations: dict[str, Tensor]) -> dict[str, Tensor]:
        if self._dealt is None:
            return observations
        return start_on_relief(self.env, self.term.robot, self._dealt.of(self._here), self._command[self._here])

    def step(self, step: int, terminated: Tensor, truncated: Tensor) -> None:
        self._fell[self._here[terminated & self._alive]] = True
        self._alive &= ~(terminated | truncated)
        robot, alive = self.term.robot, self._alive
        if self.terrain is not None:
            alive &= self.terrain.in_own_cell(robot.root_pos_w)  # the next one is of another kind or level
        if step * self.env.step_dt >= self.settle:
            velocity = torch.cat((robot.root_lin_vel_b[:, :2], robot.root_ang_vel_b[:, 2:]), dim=1)
            here = self._here[alive]
            self._way[here] += velocity[alive]
            self._speed[here] += velocity[alive].norm(dim=1)
            self._time[here] += 1.0

    def starts(self) -> dict[str, np.ndarray]:
        """Where the robots of all directions start on generated ground: poses `(D, R, 7)`, and of each of the R the
        middle of its cell `(R, 3)`, its kind and its level `(R,)`; each of some copies has all kinds and levels."""
        if self.terrain is None or self._dealt is None:
            return {}
        dealt = self._dealt
        poses = start_poses(self.terrain, self.term.robot, dealt, self._command)
        cells = len(kinds_of(self.terrain.cfg)) * self.terrain.cfg.init_levels
        shape = cells // self.terrain.cfg.init_levels, self.group // cells, self.terrain.cfg.init_levels
        order = torch.arange(self.group).view(shape).transpose(0, 1).flatten()
        return {
            "start_pose": poses.view(-1, self.group, 7)[:, order].cpu().numpy(),
            "start_cell": cells_of(self.terrain, dealt)[order].cpu().numpy(),
            "start_kind": dealt.kinds[order].cpu().numpy(),
            "start_level": dealt.levels[order].cpu().numpy(),
        }

    @property
    def directions(self) -> list[Direction]:
        """All directions, over all ground."""
        return self._judge(None)

    @property
    def kinds(self) -> dict[str, list[Direction]]:
        """The same for the robots on each kind of generated ground alone."""
        if self.terrain is None:
            return {}
        return {kind: self._judge(i) for i, kind in enumerate(kinds_of(self.terrain.cfg))}

    @property
    def levels(self) -> int | None:
        """On how many levels of generated ground the robots were, from the easiest."""
        return None if self.terrain is None else self.terrain.cfg.init_levels

    @property
    def falls(self) -> int:
        """Environments that failed in any direction."""
        return sum(direction.falls for direction in self.directions)

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = {
            "envs_per_direction": self.group,
            "seconds": self.seconds,
            "falls": self.falls,
            "directions": _by_name(self.directions),
        }
        if self.terrain is not None:
            report["levels"] = self.levels
            report["kinds"] = {kind: _by_name(directions) for kind, directions in self.kinds.items()}
        return report

    def block_size(self, about: int) -> int | None:
        if len(self.wanted) == 1:  # to stand, of which there is no share
            return None
        return self._per_direction(math.ceil(about / len(self.wanted))) * len(self.wanted)

    def in_blocks(self, size: int) -> VelocityProbe:
        return VelocityProbe(self.term, size // len(self.wanted), self.env.num_envs // size)

    def scores(self) -> list[BlockScore]:
        return [self._score(block) for block in range(self.blocks)]

    def _score(self, block: int) -> BlockScore:
        """Who fell does nothing from then on, and more than was asked for does not count."""
        directions = self._judge(None, block, whole=True)
        shares = {one.name: min(one.fraction, 1.0) for one in directions if one.fraction is not None}
        worst = min(shares, key=lambda name: shares[name])
        return BlockScore(
            share=sum(shares.values()) / len(shares),
            falls=sum(one.falls for one in directions),
            robots=self.group * len(self.wanted),
            details={"worst_share": shares[worst], "worst": worst, "shares": shares},
        )

    def _judge(self, kind: int | None, block: int = 0, *, whole: bool = False) -> list[Direction]:
        """Each direction, in a block; over the `whole` time that is judged also of those who fell."""
        steps = self._time
        if whole:
            steps = torch.where(self._fell, (self.seconds - self.settle) / self.env.step_dt, steps)
        mean = self._way / steps.clamp(min=1.0)[:, None]
        rest = self._speed / self._time.clamp(min=1.0)
        results = []
        for i, (name, command) in enumerate(self.wanted.items(), start=block * len(self.wanted)):
            rows = torch.arange(i * self.group, (i + 1) * self.group, device=self.env.device)
            if kind is not None and self._dealt is not None:
                rows = rows[self._dealt.kinds.to(rows.device)[rows] == kind]
            results.append(_judge(name, command, mean[rows], rest[rows], int(self._fell[rows].sum())))
        return results


def _by_name(directions: list[Direction]) -> dict[str, Any]:
    return {direction.name: asdict(direction) for direction in directions}


def _judge(name: str, command: tuple[float, float, float], mean: Tensor, speed: Tensor, falls: int) -> Direction:
    size = sum(part * part for part in command) ** 0.5
    if not size:
        return Direction(name=name, command=command, achieved=speed.median().item(), fraction=None, falls=falls)
    along = (mean @ torch.tensor(command, device=mean.device, dtype=mean.dtype)) / size
    achieved = along.median().item()
    return Direction(name=name, command=command, achieved=achieved, fraction=achieved / size, falls=falls)
