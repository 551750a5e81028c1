"""A scene from a few lines of MJCF, on the MuJoCo engine in double precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from genelab.scene import EntityCfg, Scene, SceneCfg, SensorCfg, TerrainCfg
from genelab.sim import SimulationCfg


@pytest.fixture
def make_scene() -> Iterator[Callable[..., Scene]]:
    """Build a scene of four environments in its default state; further arguments are those of the simulation."""
    scenes = []

    def make(
        entities: dict[str, EntityCfg],
        *,
        num_envs: int = 4,
        terrain: TerrainCfg | None = None,
        sensors: dict[str, SensorCfg] | None = None,
        **simulation: Any,
    ) -> Scene:
        cfg = SceneCfg(num_envs=num_envs, entities=entities, terrain=terrain, sensors=sensors or {})
        settings: dict[str, Any] = {"engine": "mujoco", "precision": 64, "threads": 1, **simulation}
        scene = Scene(cfg, SimulationCfg(**settings))
        scenes.append(scene)
        scene.reset(None)
        scene.engine.refresh()
        scene.reset_sensors(None)
        return scene

    yield make
    for scene in scenes:
        scene.engine.close()
