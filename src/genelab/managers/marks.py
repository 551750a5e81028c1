"""What a command shows in pictures, and how it is steered by hand."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

Rgba = tuple[float, float, float, float]

ASKED: Rgba = (0.16, 0.62, 0.35, 1.0)
"""Colour of what is commanded."""
DONE: Rgba = (0.13, 0.42, 0.75, 1.0)
"""Colour of what the robot does."""
GOAL: Rgba = (*ASKED[:3], 0.35)
"""Colour of a place, which must not hide what is brought there."""
_SHORTEST = 0.02
"""Length below which an arrow is not drawn, m."""


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

    def add_to(self, scene: mujoco.MjvScene) -> None:
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

    def add_to(self, scene: mujoco.MjvScene) -> None:
        """Draw it, unless the scene is full."""
        if scene.ngeom < scene.maxgeom:
            _new_geom(scene, mujoco.mjtGeom.mjGEOM_SPHERE, np.full(3, self.radius), self.centre, self.rgba)


Mark = Arrow | Ball


def _new_geom(
    scene: mujoco.MjvScene, kind: mujoco.mjtGeom, size: np.ndarray, place: np.ndarray, rgba: Rgba
) -> mujoco.MjvGeom:
    geom = scene.geoms[scene.ngeom]
    mujoco.mjv_initGeom(geom, kind, size, place, np.eye(3).flatten(), np.array(rgba, dtype=np.float32))
    scene.ngeom += 1
    return geom
