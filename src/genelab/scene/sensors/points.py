"""Points fixed to bodies, feet for one: where they are, how they move, how high above the ground."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genelab import math as gm
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
    """P points; readings are computed once per state."""

    not_state = ("body_names", "_bodies", "_offset", "_cache", "_version")

    def __init__(self, name: str, cfg: PointsSensorCfg) -> None:
        super().__init__(name)
        self.cfg = cfg

    def initialize(self, scene: Scene) -> None:
        entity = scene[self.cfg.entity]
        found = entity.find_bodies(self.cfg.bodies)
        self.body_names = [entity.body_names[i] for i in found]
        self.engine = scene.engine
        self._terrain = scene.terrain
        self._bodies = entity.body_ids[found]
        self._offset = torch.tensor(self.cfg.pos, device=self.engine.device, dtype=self.engine.dtype)
        self._cache: dict[str, Tensor] = {}
        self._version = -1

    def _read(self) -> dict[str, Tensor]:
        if self._version != self.engine.version:
            quat = self.engine.body_quat[:, self._bodies]
            points = self.engine.body_pos[:, self._bodies] + gm.quat_rotate(quat, self._offset)
            self._cache = {"pos": points, "vel": self.engine.velocity_at(self._bodies, points)}
            self._version = self.engine.version
        return self._cache

    @property
    def pos_w(self) -> Tensor:
        """Positions, `(N, P, 3)`."""
        return self._read()["pos"]

    @property
    def lin_vel_w(self) -> Tensor:
        """Velocities, world frame, `(N, P, 3)`."""
        return self._read()["vel"]

    @property
    def height(self) -> Tensor:
        """Height above the ground below, `(N, P)`, m."""
        points = self.pos_w
        return points[..., 2] if self._terrain is None else points[..., 2] - self._terrain.height_at(points)
