"""What terms read of the scene: sensors by name and kind, heights above the ground."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from torch import Tensor

from genelab.errors import ConfigError
from genelab.scene import Entity, Sensor

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv

Kind = TypeVar("Kind", bound=Sensor)


def get_sensor(env: ManagerBasedEnv, name: str, kind: type[Kind]) -> Kind:
    """The sensor of this name, which must be of this kind."""
    sensor = env.scene.sensor(name)
    if not isinstance(sensor, kind):
        raise ConfigError(f"the sensor {name!r} is a {type(sensor).__name__}, not a {kind.__name__}")
    return sensor


def root_height(env: ManagerBasedEnv, entity: Entity) -> Tensor:
    """How high an entity's root is above the ground below it, `(N,)`, m."""
    position = entity.root_pos_w
    return position[:, 2] if env.scene.terrain is None else env.scene.terrain.height_of(position)
