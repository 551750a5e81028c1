"""Heights of the ground around a body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genelab import math as gm
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

    def initialize(self, scene: Scene) -> None:
        super().initialize(scene)
        self._terrain = scene.terrain
        axes = []
        for length in self.cfg.size:
            steps = round(length / self.cfg.resolution)
            axes.append(torch.linspace(-length / 2, length / 2, steps + 1, dtype=torch.float64))
        x, y = torch.meshgrid(*axes, indexing="xy")
        grid = torch.stack((x.flatten(), y.flatten(), torch.zeros(x.numel(), dtype=torch.float64)), dim=-1)
        self._grid = grid.to(self.engine.device, self.engine.dtype)
        self.num_points = len(grid)

    @property
    def points_w(self) -> Tensor:
        """The points on the ground, `(N, P, 3)`."""
        heading = gm.yaw_quat(self.quat_w)[:, None].expand(-1, self.num_points, -1)
        points = gm.quat_rotate(heading, self._grid.expand(len(heading), -1, -1)) + self.pos_w[:, None]
        ground = self._terrain.height_at(points) if self._terrain is not None else torch.zeros_like(points[..., 0])
        return torch.cat((points[..., :2], ground[..., None]), dim=-1)

    @property
    def distance(self) -> Tensor:
        """How far the ground lies below the frame at each point, `(N, P)`, m."""
        below = self.pos_w[:, None, 2] - self.points_w[..., 2]
        return below.clamp(-self.cfg.max_distance, self.cfg.max_distance)
