"""How well a velocity command is followed, one direction at a time.

A mean return hides a policy that walks well forward and not at all sideways. Here groups of environments are each asked
for one velocity, and each group is judged by itself. On generated ground every group has as many robots on each kind of
ground and on each level, and a robot is judged while it is over its own cell.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.managers import CommandTermCfg
from genelab.mdp import VelocityCommand, VelocityCommandCfg
from genelab.rl.backends.base import InferenceSetup
from genelab.rl.finite import FiniteGuard
from genelab.rl.probe_starts import deal, kinds_of, robots_per_direction, start_on_relief
from genelab.rl.report import Show, show_nothing
from genelab.scene.terrains import GeneratedTerrain

ENVS_PER_DIRECTION = 64
"""On generated ground, the nearest number that can be dealt evenly."""
SLOW_YAW = 0.2
"""A slow turn, rad/s: policies that only know how to stand or to spin fail it."""
SECONDS = 10.0
SETTLE = 1.0
"""Seconds at the start that do not count."""


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


@dataclass(frozen=True, kw_only=True)
class VelocityProbe:
    """All directions."""

    directions: list[Direction]
    envs_per_direction: int
    seconds: float
    kinds: dict[str, list[Direction]] = field(default_factory=dict)
    """The same for the robots on each kind of generated ground alone."""
    levels: int | None = None
    """On how many levels of generated ground the robots were, from the easiest."""

    @property
    def falls(self) -> int:
        """Environments that failed in any direction."""
        return sum(direction.falls for direction in self.directions)

    def report(self) -> dict[str, Any]:
        """For a JSON file."""
        report = {
            "envs_per_direction": self.envs_per_direction,
            "seconds": self.seconds,
            "falls": self.falls,
            "directions": _by_name(self.directions),
        }
        if self.kinds:
            report["levels"] = self.levels
            report["kinds"] = {kind: _by_name(directions) for kind, directions in self.kinds.items()}
        return report


def _by_name(directions: list[Direction]) -> dict[str, Any]:
    return {direction.name: asdict(direction) for direction in directions}


def velocity_command(cfg: ManagerBasedRlEnvCfg) -> str | None:
    """The name of the task's velocity command, if it has one."""
    names = [name for name, term in cfg.commands.items() if isinstance(term, VelocityCommandCfg)]
    return names[0] if names else None


def directions_of(cfg: CommandTermCfg) -> dict[str, tuple[float, float, float]]:
    """The fastest command either way along each axis, a slow turn either way, and standing.

    A way that the ranges do not go is left out, and so is a slow turn where the fastest is no faster.
    """
    assert isinstance(cfg, VelocityCommandCfg)
    (back, forward), (right, left), (clockwise, counter) = cfg.lin_vel_x, cfg.lin_vel_y, cfg.ang_vel_z
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


def probe_size(env: ManagerBasedRlEnv, name: str) -> int:
    """How many environments a probe of the velocity command of this name takes."""
    terrain, group = env.scene.terrain, ENVS_PER_DIRECTION
    if isinstance(terrain, GeneratedTerrain):
        group = robots_per_direction(terrain.cfg, group)
    return group * len(directions_of(env.commands.term(name).cfg_in_force()))


@torch.inference_mode()
def probe_velocity(
    env: ManagerBasedRlEnv, setup: InferenceSetup, name: str, *, seed: int, show: Show = show_nothing
) -> VelocityProbe:
    """Drive equal groups of the environments in all directions; `probe_size` tells how many there should be."""
    term = env.commands.term(name)
    assert isinstance(term, VelocityCommand)
    wanted = directions_of(term.cfg_in_force())
    group = env.num_envs // len(wanted)
    command = torch.tensor(list(wanted.values()), device=env.device, dtype=env.dtype).repeat_interleave(group, dim=0)
    term.fix(command)
    env.watcher = env.watcher or FiniteGuard(env)
    observations, _ = env.reset(seed=seed)
    terrain, kind_of = env.scene.terrain, None
    if isinstance(terrain, GeneratedTerrain):
        dealt = deal(terrain.cfg, len(wanted), env.num_envs)
        observations, kind_of = start_on_relief(env, term.robot, dealt, command), dealt.kinds.to(env.device)
    setup.reset(None)
    way, time = torch.zeros(env.num_envs, 3, device=env.device), torch.zeros(env.num_envs, device=env.device)
    standing_speed = torch.zeros_like(time)
    alive = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    fell = torch.zeros_like(alive)
    steps = round(SECONDS / env.step_dt)
    for step in range(steps):
        observations, _, terminated, truncated, _ = env.step(setup.policy(observations))
        setup.reset(terminated | truncated)
        fell |= terminated & alive
        alive &= ~(terminated | truncated)
        if isinstance(terrain, GeneratedTerrain):
            alive &= terrain.in_own_cell(term.robot.root_pos_w)  # the next one is of another kind or level
        if step * env.step_dt >= SETTLE:
            velocity = _velocity(term)
            way[alive] += velocity[alive]
            standing_speed[alive] += velocity[alive].norm(dim=1)
            time[alive] += 1.0
        show("steps of the velocity probe", step + 1, steps)
    mean = way / time.clamp(min=1.0)[:, None]
    rest = standing_speed / time.clamp(min=1.0)

    def judge(kind: int | None) -> list[Direction]:
        results = []
        for i, (direction, asked) in enumerate(wanted.items()):
            rows = torch.arange(i * group, (i + 1) * group, device=env.device)
            rows = rows if kind is None or kind_of is None else rows[kind_of[rows] == kind]
            results.append(_judge(direction, asked, mean[rows], rest[rows], int(fell[rows].sum())))
        return results

    found = VelocityProbe(directions=judge(None), envs_per_direction=group, seconds=SECONDS)
    if not isinstance(terrain, GeneratedTerrain):
        return found
    kinds = {kind: judge(i) for i, kind in enumerate(kinds_of(terrain.cfg))}
    return replace(found, kinds=kinds, levels=terrain.cfg.init_levels)


def _velocity(term: VelocityCommand) -> Tensor:
    """Forward, left and turning, `(N, 3)`."""
    robot = term.robot
    return torch.cat((robot.root_lin_vel_b[:, :2], robot.root_ang_vel_b[:, 2:]), dim=1)


def _judge(name: str, command: tuple[float, float, float], mean: Tensor, speed: Tensor, falls: int) -> Direction:
    size = sum(part * part for part in command) ** 0.5
    if not size:
        return Direction(name=name, command=command, achieved=speed.median().item(), fraction=None, falls=falls)
    along = (mean @ torch.tensor(command, device=mean.device, dtype=mean.dtype)) / size
    achieved = along.median().item()
    return Direction(name=name, command=command, achieved=achieved, fraction=achieved / size, falls=falls)
