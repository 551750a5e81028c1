"""Everything that is in the world, compiled into one MJCF."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import mujoco
import torch

from genelab.config import Count, NonNegative, check_values
from genelab.errors import ConfigError, did_you_mean
from genelab.scene.entity import Articulation, ArticulationCfg, Entity, EntityCfg, RigidObject
from genelab.scene.sensors import Sensor, SensorCfg
from genelab.scene.terrains import TerrainCfg
from genelab.sim import ContactQuery, EnvIds, SimulationCfg, create_engine, resolve_options, write_options
from genelab.state import Stateful


@dataclass(kw_only=True)
class SceneCfg:
    """What is in the world."""

    num_envs: Count = 1
    """How many copies of the world run side by side."""
    env_spacing: NonNegative = 2.5
    """Distance between the copies where they are drawn together, m. They never touch."""
    entities: dict[str, EntityCfg] = field(default_factory=dict)
    """Robots and objects by name; the main robot is called `robot`."""
    terrain: TerrainCfg | None = None
    """The ground; None: nothing to stand on."""
    sensors: dict[str, SensorCfg] = field(default_factory=dict)
    """What is measured, by name."""

    def validate(self) -> None:
        """Refuse what cannot be built."""
        check_values(self, "env.scene")
        for name, sensor in self.sensors.items():
            if sensor.entity not in self.entities:
                hint = did_you_mean(sensor.entity, self.entities)
                raise ConfigError(f"env.scene.sensors.{name}.entity: no entity is called {sensor.entity!r}.{hint}")


class PhysicsWatcher(Protocol):
    """Looks on while the engine advances."""

    def before_physics(self) -> None:
        """It is about to."""

    def after_physics(self) -> None:
        """It has."""


class Scene(Stateful):
    """The world in all environments: its entities, its ground, its sensors and the engine that steps it."""

    parts = ("engine", "terrain", "entities", "sensors")
    not_state = ("spec", "options", "env_origins", "_articulations")

    def __init__(self, cfg: SceneCfg, sim: SimulationCfg, notify: Callable[[str], None] | None = None) -> None:
        cfg.validate()
        sim.validate()
        self.cfg = cfg
        self.entities: dict[str, Entity] = {name: _make(name, entity) for name, entity in cfg.entities.items()}
        self.terrain = None if cfg.terrain is None else cfg.terrain.build()
        self.sensors: dict[str, Sensor] = {name: sensor.build(name) for name, sensor in cfg.sensors.items()}
        self.num_contacts = 0
        self.spec, contacts = self._build_spec(sim)
        self.engine = create_engine(sim, self.spec, cfg.num_envs, contacts, env_spacing=cfg.env_spacing, notify=notify)
        self.env_origins = torch.zeros(cfg.num_envs, 3, device=self.engine.device, dtype=self.engine.dtype)
        if self.terrain is not None:
            self.terrain.initialize(cfg.num_envs, self.engine.device, self.engine.dtype)
            self.env_origins = self.terrain.env_origins  # the same tensor: the ground moves it, everyone sees it
        for entity in self.entities.values():
            entity.initialize(self.engine, self.env_origins)
        for sensor in self.sensors.values():
            sensor.initialize(self)
        self._articulations = [e for e in self.entities.values() if isinstance(e, Articulation)]
        self._one_call = not any(robot.has_explicit_actuators for robot in self._articulations)

    def _build_spec(self, sim: SimulationCfg) -> tuple[mujoco.MjSpec, list[ContactQuery]]:
        world = mujoco.MjSpec()
        world.modelname = "genelab"
        world.compiler.degree = False
        models = {name: entity.spec for name, entity in self.entities.items()}
        self.options = resolve_options(sim, models)
        write_options(self.options, world, models.values())
        world.worldbody.add_light(
            name="sun", type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, pos=[0, 0, 10], dir=[0.3, 0.2, -1.0]
        )
        if self.terrain is not None:
            self.terrain.attach_to(world)
        for entity in self.entities.values():
            entity.attach_to(world)
        for body in world.bodies:
            body.simple = False  # a lone body may have its centre of mass moved
        contacts: list[ContactQuery] = []
        for sensor in self.sensors.values():
            contacts += sensor.attach_to(self, world)
            self.num_contacts = len(contacts)
        return world, contacts

    @property
    def num_envs(self) -> int:
        """How many environments there are."""
        return self.cfg.num_envs

    @property
    def model_dirs(self) -> list[Path]:
        """The folders of the files that the entities' models were read from."""
        folders = (entity.spec.modelfiledir for entity in self.entities.values())
        return [Path(folder) for folder in dict.fromkeys(folders) if folder]

    def __getitem__(self, name: str) -> Entity:
        try:
            return self.entities[name]
        except KeyError:
            raise ConfigError(f"no entity is called {name!r}.{did_you_mean(name, self.entities)}") from None

    def articulation(self, name: str) -> Articulation:
        """The entity of this name, which must have driven joints."""
        entity = self[name]
        if not isinstance(entity, Articulation):
            raise ConfigError(f"{name!r} is not an articulation")
        return entity

    def sensor(self, name: str) -> Sensor:
        """The sensor of this name."""
        try:
            return self.sensors[name]
        except KeyError:
            raise ConfigError(f"no sensor is called {name!r}.{did_you_mean(name, self.sensors)}") from None

    def step(self, substeps: int, watchers: Sequence[PhysicsWatcher] = ()) -> None:
        """One control step. Where the engine holds all actuators it is one native call."""
        calls, length = (1, substeps) if self._one_call else (substeps, 1)
        for _ in range(calls):
            for robot in self._articulations:
                robot.write_controls()
            for watcher in watchers:
                watcher.before_physics()
            self.engine.step(length)
            for watcher in reversed(watchers):
                watcher.after_physics()

    def update(self, dt: float) -> None:
        """Let the sensors see that a control step has passed."""
        for sensor in self.sensors.values():
            sensor.update(dt)

    def restart(self) -> None:
        """Forget what past episodes changed for those to come: the levels of the ground."""
        if self.terrain is not None:
            self.terrain.restart()

    def reset(self, env_ids: EnvIds) -> None:
        """Put everything in these environments into its initial state; sensors follow in `reset_sensors`."""
        self.engine.reset(env_ids)
        for entity in self.entities.values():
            entity.reset(env_ids)

    def refresh(self, env_ids: EnvIds) -> None:
        """Derive everything from the new state of these environments; their actuators act on it."""
        for robot in self._articulations:
            robot.write_controls(env_ids)
        self.engine.refresh()

    def reset_sensors(self, env_ids: EnvIds) -> None:
        """Let the sensors forget; called when the new state is complete."""
        for sensor in self.sensors.values():
            sensor.reset(env_ids)


def _make(name: str, cfg: EntityCfg) -> Entity:
    if "/" in name:
        raise ConfigError(f"an entity's name has no slash: {name!r}")
    return Articulation(name, cfg) if isinstance(cfg, ArticulationCfg) else RigidObject(name, cfg)
