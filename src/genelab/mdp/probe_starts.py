"""Where the robots of a probe start on generated ground.

Every direction gets the same robots on the same ground: as many on each kind, and on each of its levels. They start on
the relief, not on the level platform in the middle of a cell, which who turns or stands would never leave.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genelab import math as gm
from genelab.scene import Articulation
from genelab.scene.terrains import GeneratedTerrain, TerrainGeneratorCfg

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv

_FEET = 0.1
"""Bodies that are no higher than this above the lowest one are where a robot stands, m."""
_MARGIN = 0.1
"""How far feet reach beyond the frames of their bodies, m."""
_HOLE = 0.5
"""Ground that differs by more than this under one robot has a hole in it, m."""
_SHIFTS = sorted(
    itertools.product((-0.4, -0.2, 0.0, 0.2, 0.4), [0.2 * i for i in range(-6, 7)]),
    key=lambda shift: math.hypot(*shift),
)
"""Where else to look for ground without a hole: so far inwards and aside, the nearest first, m."""


def kinds_of(cfg: TerrainGeneratorCfg) -> list[str]:
    """The kinds of ground that have a column."""
    return list(dict.fromkeys(cfg.column_kinds()))


def robots_per_direction(cfg: TerrainGeneratorCfg, about: int) -> int:
    """A number near `about` that gives every kind and level as many robots, one at least."""
    cells = len(kinds_of(cfg)) * cfg.init_levels
    return cells * max(1, round(about / cells))


@dataclass(frozen=True)
class Deal:
    """Who goes where, `(N,)` each."""

    kinds: Tensor
    """Index into `kinds_of`."""
    levels: Tensor
    columns: Tensor
    sides: Tensor
    """In quarter turns, the way from the start to the middle of the cell."""

    def of(self, robots: Tensor) -> Deal:
        """Where some of them go."""
        rows = robots.cpu()
        return Deal(self.kinds[rows], self.levels[rows], self.columns[rows], self.sides[rows])


def deal(cfg: TerrainGeneratorCfg, directions: int, robots: int) -> Deal:
    """The same ground for each direction, which are equal blocks of robots."""
    names, columns = kinds_of(cfg), cfg.column_kinds()
    cells = directions * len(names) * cfg.init_levels
    if robots % cells:
        raise ValueError(f"{robots} robots cannot be dealt evenly to {cells} of direction, kind and level")
    copies = robots // cells
    kinds = torch.arange(len(names)).repeat_interleave(copies * cfg.init_levels).repeat(directions)
    levels = torch.arange(cfg.init_levels).repeat(robots // cfg.init_levels)
    copy = torch.arange(copies).repeat_interleave(cfg.init_levels).repeat(directions * len(names))
    of_kind = [[i for i, name in enumerate(columns) if name == kind] for kind in names]
    return Deal(
        kinds=kinds,
        levels=levels,
        columns=torch.tensor([of_kind[k][c % len(of_kind[k])] for k, c in zip(kinds, copy, strict=True)]),
        sides=(levels + copy) % 4,
    )


def start_on_relief(env: ManagerBasedRlEnv, robot: Articulation, dealt: Deal, command: Tensor) -> dict[str, Tensor]:
    """Move every robot, after a reset, to its cell's relief, so that its command leads across the middle of the cell.

    Returns the observations from there.
    """
    terrain = env.scene.terrain
    assert isinstance(terrain, GeneratedTerrain)
    terrain.place(dealt.levels, dealt.columns)
    robot.write_root_pose(start_poses(terrain, robot, dealt, command), None)
    return look_anew(env)


def look_anew(env: ManagerBasedRlEnv) -> dict[str, Tensor]:
    """Return the observations of a start that was changed after the reset: nothing of the reset's own is left."""
    env.scene.engine.refresh()
    env.scene.reset_sensors(None)
    env.observation_manager.reset(None)
    return env.observation_manager.compute()


def start_poses(terrain: GeneratedTerrain, robot: Articulation, dealt: Deal, command: Tensor) -> Tensor:
    """Position and quaternion, `(N, 7)`: half-way between the platform and the edge of the cell, on the ground.

    Robots that have just been reset show how they stand.
    """
    origins = cells_of(terrain, dealt)
    inwards = math.pi / 2 * dealt.sides.to(origins)
    ahead = torch.stack((inwards.cos(), inwards.sin()), dim=1)  # (N, 2)
    aside = torch.stack((-inwards.sin(), inwards.cos()), dim=1)
    distance = origins.new_tensor([_distance(terrain.cfg, kind) for kind in terrain.kind_names])[dealt.columns]
    spots = origins[:, :2] - distance[:, None] * ahead
    reach, lean = _stance(robot)
    square = reach * torch.cartesian_prod(*2 * [torch.linspace(-1.0, 1.0, 13)]).to(origins)  # (P, 2)
    shifts = origins.new_tensor(_SHIFTS) @ torch.stack((ahead, aside), dim=1)  # (N, S, 2)
    spots, heights = _without_hole(terrain, spots[:, None] + shifts, square)
    slope = _slope(heights, square)
    slope = slope * (lean / slope.norm(dim=1, keepdim=True).clamp(min=1e-9)).clamp(max=1.0)
    middle = (heights - slope @ square.T).amax(dim=1)  # of the plane of this slope that is nowhere below the ground
    normal = torch.cat((-slope, torch.ones_like(middle)[:, None]), dim=1)
    normal = normal / normal.norm(dim=1, keepdim=True)
    tilt = torch.stack((1 + normal[:, 2], -normal[:, 1], normal[:, 0], torch.zeros_like(middle)), dim=1)
    tilt = tilt / tilt.norm(dim=1, keepdim=True)  # turns upwards into the normal, on the shortest way
    heading = inwards - torch.atan2(command[:, 1], command[:, 0])
    turn = gm.quat_from_euler(torch.zeros_like(heading), torch.zeros_like(heading), heading)
    default = robot.default_root_pose[:1].expand(len(spots), -1)
    pos = torch.cat((spots, middle[:, None]), dim=1) + default[:, 2:3] * normal
    return torch.cat((pos, gm.quat_mul(tilt, gm.quat_mul(turn, default[:, 3:]))), dim=1)


def cells_of(terrain: GeneratedTerrain, dealt: Deal) -> Tensor:
    """The middle of each robot's cell, `(N, 3)`."""
    return terrain.origins[dealt.levels, dealt.columns]


def _distance(cfg: TerrainGeneratorCfg, kind: str) -> float:
    """From the middle of a cell to the middle of its relief, m."""
    platform = min(cfg.sub_terrains[kind].platform_width, cfg.cell_size)
    return (platform + cfg.cell_size) / 4


def _stance(robot: Articulation) -> tuple[float, float]:
    """How far from its middle a robot touches the ground, m, and the slope on which it still stands at right angles.

    Beyond that slope its middle would be over none of its feet: a dog leans with the stairs it is on, a human does not.
    """
    away = robot.body_pos_w - robot.root_pos_w[:, None]
    places = gm.quat_rotate_inverse(robot.root_quat_w[:, None].expand(*away.shape[:2], 4), away).mean(dim=0)  # (B, 3)
    feet = places[places[:, 2] <= places[:, 2].min() + _FEET, :2]
    half = (feet.amax(dim=0) - feet.amin(dim=0)) / 2
    return half.max().item() + _MARGIN, half.min().item() / max(robot.default_root_pose[0, 2].item(), 1e-6)


def _slope(heights: Tensor, square: Tensor) -> Tensor:
    """Of the plane that fits the heights `(..., P)` of a square best, `(..., 2)`."""
    return heights @ square / square.square().sum(dim=0)


def _without_hole(terrain: GeneratedTerrain, places: Tensor, square: Tensor) -> tuple[Tensor, Tensor]:
    """The first of the places `(N, S, 2)` where a robot has ground under it, and the heights there.

    Where there is none, the place with the least deep hole.
    """
    heights = terrain.height_at(places[:, :, None] + square)  # (N, S, P)
    rough = heights - _slope(heights, square) @ square.T
    depth = rough.amax(dim=2) - rough.amin(dim=2)
    chosen = torch.where(depth <= _HOLE, 0.0, depth).argmin(dim=1)
    every = torch.arange(len(places), device=places.device)
    return places[every, chosen], heights[every, chosen]
