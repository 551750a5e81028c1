"""What all sensors have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mujoco

from genelab.scene.reading import Reader
from genelab.sim import ContactQuery, EnvIds

if TYPE_CHECKING:
    from genelab.scene.scene import Scene


@dataclass(kw_only=True)
class SensorCfg:
    """Something that measures."""

    entity: str
    """Name of the entity it sits on."""

    def build(self, name: str) -> Sensor:
        """The running sensor."""
        raise NotImplementedError


class Sensor(Reader):
    """Measures in all environments. Readings are properties, computed when asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def attach_to(self, scene: Scene, world: mujoco.MjSpec) -> list[ContactQuery]:
        """Put what the engine has to measure into the MJCF; called when all entities are there."""
        return []

    def initialize(self, scene: Scene) -> None:
        """Find the parts of the compiled model it looks at."""

    def update(self, dt: float) -> None:
        """A control step of `dt` seconds has passed."""

    def reset(self, env_ids: EnvIds) -> None:
        """Forget what it remembers of these environments."""
