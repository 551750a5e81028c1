"""Heights of the ground around a body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genelab import math as gm
from genelab.scene.reading import reading
from genelab.scene.sensors.frame import FrameSensor, FrameSensorCfg

if TYPE_CHECKING:
    from genelab.scene.scene import Scene


@dataclass(kw_only=True)
class HeightScanCfg(FrameSensorCfg):
    """A grid of points that turns with the body's heading."""

    size: tuple[float, float] = (1.6, 1.0)
    """Extent forward and sideways, m."""
    resolution: float = 0.1
    """Distance between points, m."""
    max_distance: float = 5.0
    """Readings are clipped to ± this, m, so that a fall off the edge stays a number."""

    def build(self, name: str) -> HeightScan:
        return HeightScan(name, self)


class HeightScan(FrameSensor):
    """Looks the ground up in the terrain's own height field: no ray is cast."""

    cfg: HeightScanCfg
    not_state = ("shape", "_forward", "_sideways")

    def initialize(self, scene: Scene) -> None:
        super().initialize(scene)
        self._terrain = scene.terrain
        self._forward, self._sideways = (self._axis(length) for length in self.cfg.size)
        self.shape = (len(self._sideways), len(self._forward))
        """Rows from right to left, and points of a row from back to front."""
        self.num_points = self.shape[0] * self.shape[1]

    def _axis(self, length: float) -> Tensor:
        steps = round(length / self.cfg.resolution)
        axis = torch.linspace(-length / 2, length / 2, steps + 1, dtype=torch.float64)
        return axis.to(self.engine.device, self.engine.dtype)

    @property
    def point_names(self) -> tuple[str, ...]:
        """Where each point is from the body, forward and left, m."""
        return tuple(f"{x:+.2f} {y:+.2f}" for y in self._sideways.tolist() for x in self._forward.tolist())

    @property
    def points_w(self) -> Tensor:
        """The points on the ground, `(N, P, 3)`: from back to front, row by row from right to left."""
        points = self._points()
        return torch.cat((points, self._ground(points)[..., None]), dim=-1)

    def _points(self) -> Tensor:
        """Where the points are in the ground plane, `(N, P, 2)`."""
        # As complex numbers: torch adds rows of pairs one by one, five times slower.
        heading = gm.yaw_of(self.quat_w)[:, None]
        turn = torch.polar(torch.ones_like(heading), heading)
        middle = torch.complex(self.pos_w[:, 0], self.pos_w[:, 1])[:, None]
        rows = middle + turn * (1j * self._sideways)  # (N, S)
        points = rows[:, :, None] + (turn * self._forward)[:, None]  # (N, S, F)
        return torch.view_as_real(points).view(len(heading), self.num_points, 2)

    def _ground(self, points: Tensor) -> Tensor:
        return torch.zeros_like(points[..., 0]) if self._terrain is None else self._terrain.height_at(points)

    @reading
    def distance(self) -> Tensor:
        """How far the ground lies below the frame at each point, `(N, P)`, m."""
        below = self.pos_w[:, None, 2] - self._ground(self._points())
        return below.clamp_(-self.cfg.max_distance, self.cfg.max_distance)
