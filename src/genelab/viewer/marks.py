"""What is asked of a robot, and what it does, as marks in the picture."""

from __future__ import annotations

import mujoco
import numpy as np
from torch import Tensor

from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv
from genelab.mdp import VelocityCommand

Rgba = tuple[float, float, float, float]

ASKED: Rgba = (0.16, 0.62, 0.35, 1.0)
"""Colour of what is commanded."""
DONE: Rgba = (0.13, 0.42, 0.75, 1.0)
"""Colour of the robot's velocity."""
GOAL: Rgba = (*ASKED[:3], 0.35)
"""Colour of a place, which must not hide what is brought there."""
_GAP = 0.1
"""How far above the robot arrows start, m."""
_LENGTH = 0.5
"""Length of an arrow of 1 m/s, m."""
_SHORTEST = 0.02
"""Length below which an arrow is not drawn, m."""


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


def marks_of(env: ManagerBasedEnv, i: int, top: float) -> list[Mark]:
    """What the commands of environment `i` ask for, always as many and in the same order.

    A velocity is a green arrow, and below it the robot's own a blue one; they start above the robot, which reaches
    `top` metres above its root. A place is a green ball.
    """
    if not isinstance(env, ManagerBasedRlEnv):
        return []
    marks: list[Mark] = []
    for term in env.command_manager.terms.values():
        if isinstance(term, VelocityCommand):
            marks += _velocity_arrows(term, i, top)
        elif term.goal_radius is not None:
            marks.append(Ball(_numpy(term.command[i]), term.goal_radius, GOAL))
    return marks


def _velocity_arrows(term: VelocityCommand, i: int, top: float) -> list[Arrow]:
    robot = term.robot
    place = _numpy(robot.root_pos_w[i]) + np.array([0.0, 0.0, top + _GAP])
    heading = float(robot.heading_w[i])
    forward = np.array([np.cos(heading), np.sin(heading), 0.0])
    left = np.array([-forward[1], forward[0], 0.0])
    arrows = []
    for values, rgba, drop in (
        (_numpy(term.command[i, :2]), ASKED, 0.0),
        (_numpy(robot.root_lin_vel_b[i, :2]), DONE, 0.05),
    ):
        vector = _LENGTH * (values[0] * forward + values[1] * left)
        arrows.append(Arrow(place - np.array([0.0, 0.0, drop]), vector, rgba))
    return arrows


def _new_geom(
    scene: mujoco.MjvScene, kind: mujoco.mjtGeom, size: np.ndarray, place: np.ndarray, rgba: Rgba
) -> mujoco.MjvGeom:
    geom = scene.geoms[scene.ngeom]
    mujoco.mjv_initGeom(geom, kind, size, place, np.eye(3).flatten(), np.array(rgba, dtype=np.float32))
    scene.ngeom += 1
    return geom


def _numpy(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy().astype(np.float64)
