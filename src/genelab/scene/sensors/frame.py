"""Pose and motion of a frame fixed to a body, and an inertial measurement unit made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from genelab import math as gm
from genelab.errors import ConfigError
from genelab.scene.reading import reading
from genelab.scene.sensors.base import Sensor, SensorCfg
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.scene.scene import Scene


@dataclass(kw_only=True)
class FrameSensorCfg(SensorCfg):
    """A frame fixed to a body."""

    body: str
    """Name of the body."""
    pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Origin of the frame in the body, m."""
    rot: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    """Orientation of the frame in the body, w x y z."""

    def build(self, name: str) -> FrameSensor:
        return FrameSensor(name, self)


class FrameSensor(Sensor):
    """Where a frame is and how it moves; `_w` in the world, `_b` in the frame itself."""

    not_state: ClassVar[tuple[str, ...]] = ("_offset", "_rot")

    def __init__(self, name: str, cfg: FrameSensorCfg) -> None:
        super().__init__(name)
        self.cfg = cfg

    def initialize(self, scene: Scene) -> None:
        entity = scene[self.cfg.entity]
        found = entity.find_bodies(self.cfg.body)
        if len(found) != 1:
            raise ConfigError(f"sensor {self.name!r}: {self.cfg.body!r} is {len(found)} bodies, expected one")
        self.engine = scene.engine
        self._body = int(entity.body_ids[found[0]])
        self._offset = self._constant(self.cfg.pos)
        rot = self._constant(self.cfg.rot)
        self._rot = rot / rot.norm()  # as in MJCF, a quaternion need not be a unit one
        self._has_offset = any(self.cfg.pos)
        self._has_rot = self.cfg.rot != (1.0, 0.0, 0.0, 0.0)

    def _constant(self, values: Sequence[float]) -> Tensor:
        return torch.tensor(values, device=self.engine.device, dtype=self.engine.dtype)

    @reading
    def _arm(self) -> Tensor:
        """From the body's origin to the frame's, world frame."""
        return gm.quat_rotate(self.engine.body_quat[:, self._body], self._offset)

    @reading
    def pos_w(self) -> Tensor:
        """Origin of the frame, `(N, 3)`."""
        pos = self.engine.body_pos[:, self._body]
        return pos + self._arm if self._has_offset else pos

    @reading
    def quat_w(self) -> Tensor:
        """Orientation of the frame, `(N, 4)`."""
        quat = self.engine.body_quat[:, self._body]
        return gm.quat_mul(quat, self._rot.expand_as(quat)) if self._has_rot else quat

    @reading
    def ang_vel_w(self) -> Tensor:
        """Angular velocity, world frame, `(N, 3)`."""
        return self.engine.body_ang_vel[:, self._body]

    @reading
    def lin_vel_w(self) -> Tensor:
        """Velocity of the frame's origin, world frame, `(N, 3)`."""
        velocity = self.engine.body_lin_vel[:, self._body]
        return velocity + torch.linalg.cross(self.ang_vel_w, self._arm) if self._has_offset else velocity

    @reading
    def ang_vel_b(self) -> Tensor:
        """Angular velocity in the frame, what a gyroscope reads, `(N, 3)`."""
        return gm.quat_rotate_inverse(self.quat_w, self.ang_vel_w)

    @reading
    def lin_vel_b(self) -> Tensor:
        """Velocity in the frame, `(N, 3)`."""
        return gm.quat_rotate_inverse(self.quat_w, self.lin_vel_w)


@dataclass(kw_only=True)
class ImuSensorCfg(FrameSensorCfg):
    """Gyroscope, accelerometer and the direction of gravity."""

    def build(self, name: str) -> ImuSensor:
        return ImuSensor(name, self)


class ImuSensor(FrameSensor):
    """A frame that also feels acceleration.

    The accelerometer's reading is the mean over the last control step, from the change of velocity: the same on every
    engine, and as band-limited as a real one sampled at the control rate.
    """

    not_state = ("_gravity", "_down")

    def initialize(self, scene: Scene) -> None:
        super().initialize(scene)
        self._gravity = self._constant(self.engine.model.opt.gravity.tolist())
        strength = self._gravity.norm()
        self._down = self._gravity / strength if strength > 0 else self._constant((0.0, 0.0, -1.0))
        self._lin_vel = self._constant((0.0, 0.0, 0.0)).repeat(self.engine.num_envs, 1)
        self._acc = torch.zeros_like(self._lin_vel)

    @property
    def lin_acc_b(self) -> Tensor:
        """Proper acceleration in the frame, `(N, 3)`, m/s²: at rest, the reaction to gravity."""
        return gm.quat_rotate_inverse(self.quat_w, self._acc - self._gravity)

    @reading
    def projected_gravity_b(self) -> Tensor:
        """The unit vector down, in the frame, `(N, 3)`."""
        return gm.quat_rotate_inverse(self.quat_w, self._down)

    def update(self, dt: float) -> None:
        velocity = self.lin_vel_w
        self._acc = (velocity - self._lin_vel) / dt
        self._lin_vel = velocity

    def reset(self, env_ids: EnvIds) -> None:
        rows = slice(None) if env_ids is None else env_ids
        self._acc[rows] = 0.0
        self._lin_vel = self._lin_vel.clone()
        self._lin_vel[rows] = self.lin_vel_w[rows]
