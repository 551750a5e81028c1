"""Contact forces, and how long feet have been on and off the ground."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mujoco
import torch
from torch import Tensor

from genelab import math as gm
from genelab.errors import ConfigError
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
    times: bool = True
    """Whether it counts how long bodies are in the air and on the ground; off, it is cheaper where only the touch
    matters."""

    def build(self, name: str) -> ContactSensor:
        return ContactSensor(name, self)


_TIMES = ("air_time", "contact_time", "last_air_time", "last_contact_time", "first_contact")


class ContactSensor(Sensor):
    """Contact readings of B bodies."""

    air_time: Tensor
    """How long each body has been in the air, `(N, B)`, s; 0 while it touches."""
    contact_time: Tensor
    """How long each body has touched, `(N, B)`, s; 0 while it does not."""
    last_air_time: Tensor
    """How long it was in the air before it landed last."""
    last_contact_time: Tensor
    """How long it touched before it lifted off last."""
    first_contact: Tensor
    """Whether it landed in this control step."""

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
        if not self.cfg.times:
            return
        shape = (self.engine.num_envs, len(self.body_names))
        zeros = torch.zeros(shape, device=self.engine.device, dtype=self.engine.dtype)
        self.air_time, self.contact_time = zeros.clone(), zeros.clone()
        self.last_air_time, self.last_contact_time = zeros.clone(), zeros.clone()
        self.first_contact = zeros.bool()

    def __getattr__(self, name: str) -> Any:
        if name in _TIMES and not self.cfg.times:
            raise ConfigError(f"the contact sensor {self.name!r} counts no times: set its `times`")
        raise AttributeError(name)

    @reading
    def force_w(self) -> Tensor:
        """Net force on each body, world frame, `(N, B, 3)`; of self-collision, where nothing would be left of it, the
        sum of the absolute forces along each axis."""
        return self.engine.contact_force_on(self._columns)

    @reading
    def count(self) -> Tensor:
        """Number of contact points of each body, `(N, B)`."""
        return self.engine.contact_count[:, self._columns]

    @reading
    def force(self) -> Tensor:
        """How large the force on each body is, `(N, B)`, N."""
        return torch.linalg.vector_norm(self.force_w, dim=-1)

    @reading
    def touching(self) -> Tensor:
        """Whether each body feels more than the threshold, `(N, B)`."""
        return self.force > self.cfg.threshold

    def update(self, dt: float) -> None:
        """Count time in the air and on the ground."""
        if not self.cfg.times:
            return
        touching = self.touching
        self.first_contact = touching & (self.air_time > 0)
        swinging = ~touching
        leaves = swinging & (self.contact_time > 0)
        self.last_air_time = torch.where(self.first_contact, self.air_time, self.last_air_time)
        self.last_contact_time = torch.where(leaves, self.contact_time, self.last_contact_time)
        self.air_time = (self.air_time + dt).masked_fill_(touching, 0.0)
        self.contact_time = (self.contact_time + dt).masked_fill_(swinging, 0.0)

    def reset(self, env_ids: EnvIds) -> None:
        if self.cfg.times:
            for name in _TIMES:
                gm.fill(getattr(self, name), env_ids)
