"""What a command shows in pictures, and how it is steered by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import mujoco
import numpy as np

Rgba = tuple[float, float, float, float]

ASKED: Rgba = (0.16, 0.62, 0.35, 1.0)
"""Colour of what is commanded."""
DONE: Rgba = (0.13, 0.42, 0.75, 1.0)
"""Colour of what the robot does."""
GOAL: Rgba = (*ASKED[:3], 0.35)
"""Colour of a place, which must not hide what is brought there."""
REFERENCE: Rgba = (*ASKED[:3], 0.4)
"""Colour of a robot that does what is commanded."""
_SHORTEST = 0.02
"""Length below which an arrow is not drawn, m."""


class Stage(Protocol):
    """Where marks are drawn: a world that can be put into any pose."""

    model: mujoco.MjModel

    def posed(self, qpos: np.ndarray) -> mujoco.MjData:
        """Another copy of the world, in a pose."""
        ...


@dataclass(frozen=True)
class Control:
    """A slider for one column of a command."""

    label: str
    low: float
    high: float


class Arrow:
    """From a place along a vector."""

    def __init__(self, place: np.ndarray, vector: np.ndarray, rgba: Rgba) -> None:
        self.ends = np.asarray(place, dtype=np.float64), np.asarray(place + vector, dtype=np.float64)
        self.rgba = rgba

    @property
    def is_seen(self) -> bool:
        """Whether it is long enough to have a direction."""
        return bool(np.linalg.norm(self.ends[1] - self.ends[0]) >= _SHORTEST)

    def add_to(self, scene: mujoco.MjvScene, stage: Stage) -> None:
        """Draw it, unless the scene is full."""
        if self.is_seen and scene.ngeom < scene.maxgeom:
            geom = _new_geom(scene, mujoco.mjtGeom.mjGEOM_ARROW, np.zeros(3), np.zeros(3), self.rgba)
            mujoco.mjv_connector(geom, mujoco.mjtGeom.mjGEOM_ARROW, 0.012, *self.ends)


class Ball:
    """All places that are near enough to one."""

    def __init__(self, centre: np.ndarray, radius: float, rgba: Rgba) -> None:
        self.centre = centre
        self.radius = radius
        self.rgba = rgba

    def add_to(self, scene: mujoco.MjvScene, stage: Stage) -> None:
        """Draw it, unless the scene is full."""
        if scene.ngeom < scene.maxgeom:
            _new_geom(scene, mujoco.mjtGeom.mjGEOM_SPHERE, np.full(3, self.radius), self.centre, self.rgba)


class Ghost:
    """An entity as it would be in another pose, to be seen through."""

    def __init__(self, qpos: np.ndarray, prefix: str, rgba: Rgba) -> None:
        self.qpos = qpos
        """Positions of the whole model."""
        self.prefix = prefix
        """How the names of its bodies begin."""
        self.rgba = rgba

    def shapes(self, model: mujoco.MjModel) -> dict[int, list[int]]:
        """Its geoms that are seen, by body."""
        bodies = [i for i in range(1, model.nbody) if model.body(i).name.startswith(self.prefix)]
        seen = {i: np.flatnonzero((model.geom_bodyid == i) & (model.geom_group < 3)).tolist() for i in bodies}
        return {body: geoms for body, geoms in seen.items() if geoms}

    def add_to(self, scene: mujoco.MjvScene, stage: Stage) -> None:
        """Draw it, as far as the scene has room."""
        data, before = stage.posed(self.qpos), scene.ngeom
        own = {geom for geoms in self.shapes(stage.model).values() for geom in geoms}
        dynamic = mujoco.mjtCatBit.mjCAT_DYNAMIC
        mujoco.mjv_addGeoms(stage.model, data, mujoco.MjvOption(), mujoco.MjvPerturb(), dynamic, scene)
        for geom in scene.geoms[before : scene.ngeom]:
            is_own = geom.objtype == mujoco.mjtObj.mjOBJ_GEOM and geom.objid in own
            geom.matid = -1
            geom.rgba[:] = self.rgba if is_own else (0.0, 0.0, 0.0, 0.0)


Mark = Arrow | Ball | Ghost


def _new_geom(
    scene: mujoco.MjvScene, kind: mujoco.mjtGeom, size: np.ndarray, place: np.ndarray, rgba: Rgba
) -> mujoco.MjvGeom:
    geom = scene.geoms[scene.ngeom]
    mujoco.mjv_initGeom(geom, kind, size, place, np.eye(3).flatten(), np.array(rgba, dtype=np.float32))
    scene.ngeom += 1
    return geom
