"""Sensors for terms, by name and kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from genelab.errors import ConfigError
from genelab.scene import Sensor

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv

Kind = TypeVar("Kind", bound=Sensor)


def get_sensor(env: ManagerBasedEnv, name: str, kind: type[Kind]) -> Kind:
    """The sensor of this name, which must be of this kind."""
    sensor = env.scene.sensor(name)
    if not isinstance(sensor, kind):
        raise ConfigError(f"the sensor {name!r} is a {type(sensor).__name__}, not a {kind.__name__}")
    return sensor
