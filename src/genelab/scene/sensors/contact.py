"""Contact forces, and how long feet have been on and off the ground."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mujoco
import torch
from torch import Tensor

from genelab import math as gm
from genelab.scene.names import match_names
from genelab.scene.reading import reading
from genelab.scene.sensors.base import Sensor, SensorCfg
from genelab.sim import ContactQuery, EnvIds, add_contact_sensor

if TYPE_CHECKING:
    from genelab.scene.scene import Scene


@dataclass(kw_only=True)
class ContactSensorCfg(SensorCfg):
    """Contact force on bodies, as of the last physics step."""

    bodies: tuple[str, ...]
    """Regular expressions of the bodies it measures, one reading each, in the order of the model."""
    other: str | None = None
    """Only contacts with this body count, as `entity/body`, or `world` for the ground; None: with anything."""
    subtree: bool = False
    """Bodies stand for themselves and everything attached below; with `other` the same body, self-collision."""
    threshold: float = 1.0
    """A body touches when the force is above this, N."""

    def build(self, name: str) -> ContactSensor:
        return ContactSensor(name, self)


class ContactSensor(Sensor):
    """Contact readings of B bodies."""

    not_state = ("body_names",)

    def __init__(self, name: str, cfg: ContactSensorCfg) -> None:
        super().__init__(name)
        self.cfg = cfg

    def attach_to(self, scene: Scene, world: mujoco.MjSpec) -> list[ContactQuery]:
        prefix = f"{self.cfg.entity}/"
        bodies = [body.name for body in world.bodies if body.name.startswith(prefix)]
        local = [body.removeprefix(prefix) for body in bodies]
        chosen = match_names(self.cfg.bodies, local, f"contact sensor {self.name!r}, body")
        self.body_names = [local[i] for i in chosen]
        queries = []
        for i in chosen:
            query = ContactQuery(
                sensor=f"contact/{self.name}/{local[i]}",
                body=bodies[i],
                other=self.cfg.other,
                subtree=self.cfg.subtree,
            )
            add_contact_sensor(world, query)
            queries.append(query)
        self._first = scene.num_contacts
        return queries

    def initialize(self, scene: Scene) -> None:
        self.engine = scene.engine
        self._columns = slice(self._first, self._first + len(self.body_names))
        shape = (self.engine.num_envs, len(self.body_names))
        zeros = torch.zeros(shape, device=self.engine.device, dtype=self.engine.dtype)
        self.air_time, self.contact_time = zeros.clone(), zeros.clone()
        self.last_air_time, self.last_contact_time = zeros.clone(), zeros.clone()
        self.first_contact = zeros.bool()

    @reading
    def force_w(self) -> Tensor:
        """Net force on each body, world frame, `(N, B, 3)`; of self-collision, where nothing would be left of it, the
        sum of the absolute forces along each axis."""
        return self.engine.contact_force[:, self._columns]

    @reading
    def count(self) -> Tensor:
        """Number of contact points of each body, `(N, B)`."""
        return self.engine.contact_count[:, self._columns]

    @reading
    def touching(self) -> Tensor:
        """Whether each body feels more than the threshold, `(N, B)`."""
        return self.force_w.square().sum(dim=-1) > self.cfg.threshold**2

    def update(self, dt: float) -> None:
        """Count time in the air and on the ground; `first_contact` is true in the step a body lands."""
        touching = self.touching
        self.first_contact = touching & (self.air_time > 0)
        leaves = ~touching & (self.contact_time > 0)
        self.last_air_time = torch.where(self.first_contact, self.air_time, self.last_air_time)
        self.last_contact_time = torch.where(leaves, self.contact_time, self.last_contact_time)
        self.air_time = torch.where(touching, 0.0, self.air_time + dt)
        self.contact_time = torch.where(touching, self.contact_time + dt, 0.0)

    def reset(self, env_ids: EnvIds) -> None:
        for times in (self.air_time, self.contact_time, self.last_air_time, self.last_contact_time, self.first_contact):
            gm.fill(times, env_ids)
