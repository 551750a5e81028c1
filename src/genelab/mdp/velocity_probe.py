"""How well a velocity command is followed, one direction at a time.

A mean return hides a policy that walks well forward and not at all sideways. Here groups of robots are each asked for
one velocity, and each group is judged by itself. Copies of one robot would all do the same, so the robots of a group
differ: by the noise of their observations, by how they start, on even ground by their speed, and by the models that an
evaluation gives them. On generated ground every group has as many robots on each kind of ground and on each level, and
a robot is judged while it is over its own cell. The robots of all groups come one after the other into however many
environments there are.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from genelab import math as gm
from genelab.managers import BlockScore, Probe, Range
from genelab.mdp.probe_starts import (
    cells_of,
    deal,
    kinds_of,
    look_anew,
    robots_per_direction,
    start_on_relief,
    start_poses,
)
from genelab.scene.terrains import GeneratedTerrain
from genelab.statistics import share_interval

if TYPE_CHECKING:
    from genelab.mdp.commands import VelocityCommand

STARTS_OFF = {"lin_vel": 0.1, "ang_vel": 0.1, "joints": 0.02}
"""How fast a robot moves at most when it starts, m/s, and turns, rad/s, and how far off each joint is, rad."""
SLOWEST = 0.5
"""Every other robot of a direction is asked for less than the fastest command, down to this share of it."""
SAME = 1e-3
"""Robots whose mean velocities differ by no more than this are one trial, m/s and rad/s."""
SLOW_YAW = 0.2
"""A slow turn, rad/s: policies that only know how to stand or to spin fail it."""


@dataclass(frozen=True, kw_only=True)
class Direction:
    """What became of one commanded velocity."""

    name: str
    command: tuple[float, float, float]
    """The fastest command: forward and left, m/s; turning, rad/s."""
    achieved: float
    """Median over the robots with the fastest command of the mean velocity along it; standing, of the mean speed."""
    fraction: float | None
    """Share of the command that was achieved; None for standing. It may be more than all, and says nothing of other
    axes."""
    velocity: tuple[float, float, float]
    """Median over the same robots of the mean velocity."""
    error: tuple[float, float, float]
    """Mean over all robots of the size of mean velocity minus command, by axis, m/s and rad/s."""
    heading_drift: float
    """Median over all robots of how far they turned in the time of the probe without being asked to, degrees."""
    followed: float | None
    """Mean over all robots of 1 − the size of the error / that of the command, at least 0; None for standing."""
    falls: int
    """Robots whose episode failed."""
    trials: int
    """In how many robots something else happened: copies count once."""


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
    varies_models = True
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
        # On generated ground robots differ by their ground, and few are on each cell.
        speed = torch.ones(self.group) if self.terrain is not None else _speeds(self.group)
        self._fastest = (speed == 1.0).to(env.device)
        """Which robots of a direction are asked for the fastest command."""
        self.noisy = False
        """Whether their observations had noise."""
        speeds = speed.to(rows).repeat(len(rows))
        self._command = (speeds[:, None] * rows.repeat_interleave(self.group, dim=0)).repeat(blocks, 1)
        self._dealt = None if self.terrain is None else deal(self.terrain.cfg, len(self.wanted) * blocks, self.robots)
        self._way = torch.zeros(self.robots, 3, device=env.device)
        self._time = torch.zeros(self.robots, device=env.device)
        self._rest = torch.zeros_like(self._time)
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
        self._make_noise(torch.ones(self.env.num_envs, device=self.env.device, dtype=self.env.dtype))

    def end(self) -> None:
        self.term.release()
        self._make_noise(None)

    def _make_noise(self, share: Tensor | None) -> None:
        """Add the noise of training, be it enabled or not; with None as configured."""
        groups = self.env.observation_manager.groups.values()
        for group in groups:
            group.share_noise(share)
        self.noisy = self.noisy or any(group.is_noisy for group in groups)

    def start(self, observations: dict[str, Tensor]) -> dict[str, Tensor]:
        if self._dealt is not None:
            start_on_relief(self.env, self.term.robot, self._dealt.of(self._here), self._command[self._here])
        self._disturb()
        return look_anew(self.env)

    def _disturb(self) -> None:
        """Let every robot start a little off."""
        env, robot = self.env, self.term.robot
        joints = robot.joint_pos
        off = gm.uniform(-1.0, 1.0, (env.num_envs, 3 + joints.shape[1]), env.rng, env.dtype)
        velocity = torch.zeros(env.num_envs, 6, device=env.device, dtype=env.dtype)
        velocity[:, :2], velocity[:, 5] = STARTS_OFF["lin_vel"] * off[:, :2], STARTS_OFF["ang_vel"] * off[:, 2]
        robot.add_root_velocity(velocity, None)
        low, high = robot.joint_pos_limits.unbind(dim=-1)
        robot.write_joint_state((joints + STARTS_OFF["joints"] * off[:, 3:]).clamp(low, high), None, None)

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
            self._rest[here] += velocity[alive].norm(dim=1)
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
        directions = self.directions
        falls, trials = sum(one.falls for one in directions), sum(one.trials for one in directions)
        report: dict[str, Any] = {
            "envs_per_direction": self.group,
            "seconds": self.seconds,
            "robots": self.robots,
            "trials": trials,
            "falls": falls,
            "falls_ci95": share_interval(falls * trials / self.robots, trials),
            "noise": self.noisy,
            "directions": _by_name(directions),
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
        """Score by the error, to which more than was asked for adds as less does."""
        directions = self._judge(None, block)
        shares = {one.name: one.followed for one in directions if one.followed is not None}
        worst = min(shares, key=lambda name: shares[name])
        return BlockScore(
            share=sum(shares.values()) / len(shares),
            falls=sum(one.falls for one in directions),
            robots=self.group * len(self.wanted),
            trials=sum(one.trials for one in directions),
            details={"worst_share": shares[worst], "worst": worst, "shares": shares},
        )

    def _judge(self, kind: int | None, block: int = 0) -> list[Direction]:
        """Judge each direction, in a block; robots that fell do nothing from then on, so the error counts all of it."""
        whole = (self.seconds - self.settle) / self.env.step_dt
        steps = torch.where(self._fell, whole, self._time.clamp(min=1.0))
        results = []
        for i, (name, command) in enumerate(self.wanted.items(), start=block * len(self.wanted)):
            rows = torch.arange(i * self.group, (i + 1) * self.group, device=self.env.device)
            fastest = self._fastest
            if kind is not None and self._dealt is not None:
                chosen = self._dealt.kinds.to(rows.device)[rows] == kind
                rows, fastest = rows[chosen], fastest[chosen]
            alive = self._time[rows].clamp(min=1.0)
            velocity = self._way[rows] / alive[:, None]
            error = self._way[rows] / steps[rows, None] - self._command[rows]
            moved = torch.cat((velocity, self._time[rows, None] * self.env.step_dt), dim=1)
            achieved, fraction = _along(command, velocity[fastest], (self._rest[rows] / alive)[fastest])
            asked = self._command[rows].norm(dim=1)
            drift = (velocity[:, 2] - self._command[rows, 2]) * self.seconds
            results.append(
                Direction(
                    name=name,
                    command=command,
                    achieved=achieved,
                    fraction=fraction,
                    velocity=_triple(velocity[fastest].median(dim=0).values),
                    error=_triple(error.abs().mean(dim=0)),
                    heading_drift=math.degrees(drift.median().item()),
                    followed=None if fraction is None else (1 - error.norm(dim=1) / asked).clamp(min=0).mean().item(),
                    falls=int(self._fell[rows].sum()),
                    trials=_distinct(moved),
                )
            )
        return results


def _speeds(robots: int) -> Tensor:
    """Return the share of the fastest command that each robot is asked for: all of it, and less, in turn."""
    speeds = torch.ones(robots)
    slower = robots // 2
    speeds[1::2] = SLOWEST + (1.0 - SLOWEST) * (torch.arange(slower) + 0.5) / max(slower, 1)
    return speeds


def _along(command: tuple[float, float, float], velocity: Tensor, speed: Tensor) -> tuple[float, float | None]:
    """Return the median velocity along the command, and its share of that; standing, the median speed, and None."""
    size = sum(part * part for part in command) ** 0.5
    if not size:
        return speed.median().item(), None
    along = ((velocity @ torch.tensor(command, device=velocity.device, dtype=velocity.dtype)) / size).median().item()
    return along, along / size


def _distinct(rows: Tensor) -> int:
    """Return how many rows differ from each other by more than `SAME` in one column."""
    count = 0
    while len(rows):
        rows = rows[((rows - rows[0]).abs() > SAME).any(dim=1)]
        count += 1
    return count


def _triple(values: Tensor) -> tuple[float, float, float]:
    x, y, z = values.tolist()
    return x, y, z


def _by_name(directions: list[Direction]) -> dict[str, Any]:
    return {direction.name: asdict(direction) for direction in directions}
