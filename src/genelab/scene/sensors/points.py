"""Points fixed to bodies, feet for one: where they are, how they move, how high above the ground."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genelab import math as gm
from genelab.scene.reading import reading
from genelab.scene.sensors.base import Sensor, SensorCfg

if TYPE_CHECKING:
    from genelab.scene.scene import Scene


@dataclass(kw_only=True)
class PointsSensorCfg(SensorCfg):
    """The same point on several bodies."""

    bodies: tuple[str, ...]
    """Regular expressions of the bodies, one point each, in the order of the model."""
    pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """The point in its body, m."""

    def build(self, name: str) -> PointsSensor:
        return PointsSensor(name, self)


class PointsSensor(Sensor):
    """P points."""

    not_state = ("body_names", "_bodies", "_offset")

    def __init__(self, name: str, cfg: PointsSensorCfg) -> None:
        super().__init__(name)
        self.cfg = cfg

    def initialize(self, scene: Scene) -> None:
        entity = scene[self.cfg.entity]
        found = entity.find_bodies(self.cfg.bodies)
        self.body_names = [entity.body_names[i] for i in found]
        self.engine = scene.engine
        self._terrain = scene.terrain
        self._bodies = gm.columns(entity.body_ids[found].tolist(), self.engine.device)
        self._offset = torch.tensor(self.cfg.pos, device=self.engine.device, dtype=self.engine.dtype)

    @reading
    def pos_w(self) -> Tensor:
        """Positions, `(N, P, 3)`."""
        quat = gm.take(self.engine.body_quat, self._bodies)
        return gm.take(self.engine.body_pos, self._bodies) + gm.quat_rotate(quat, self._offset)

    @reading
    def lin_vel_w(self) -> Tensor:
        """Velocities, world frame, `(N, P, 3)`."""
        return self.engine.velocity_at(self._bodies, self.pos_w)

    @reading
    def height(self) -> Tensor:
        """Height above the ground below, `(N, P)`, m."""
        points = self.pos_w
        return points[..., 2] if self._terrain is None else self._terrain.height_of(points)
