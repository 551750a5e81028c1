"""Mirror images: left and right exchanged.

The mirror lies along the robot, in the plane of its root's x and z: y changes its sign. So do velocities to the side
and rotations about x and z, and what the left side does the right side does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mujoco
import numpy as np

from genelab.errors import ConfigError

if TYPE_CHECKING:
    from genelab.scene.entity import Entity

Sides = tuple[tuple[str, str], ...]
"""Pairs of beginnings or ends of names, left and right."""


@dataclass(frozen=True)
class Image:
    """The mirror image of some columns: which of them each one comes from, and its sign."""

    columns: tuple[int, ...]
    signs: tuple[float, ...]

    def repeat(self, count: int) -> Image:
        """Of the same columns several times, side by side."""
        return beside([self] * count)


SAME = Image((0,), (1.0,))
"""Of a number that has no side: a height, a time, a share."""
POLAR = Image((0, 1, 2), (1.0, -1.0, 1.0))
"""Of an arrow x, y, z: a place, a velocity, a force."""
AXIAL = Image((0, 1, 2), (-1.0, 1.0, -1.0))
"""Of a turn about x, y, z: an angular velocity, a torque."""


def beside(images: Iterable[Image]) -> Image:
    """Of columns side by side."""
    columns: list[int] = []
    signs: list[float] = []
    for image in images:
        columns += [len(signs) + column for column in image.columns]
        signs += image.signs
    return Image(tuple(columns), tuple(signs))


def other_side(name: str, sides: Sides) -> str:
    """What is called so on the other side; what is in the middle has one name."""
    for pair in sides:
        for here, there in (pair, pair[::-1]):
            if name.startswith(here):
                return there + name.removeprefix(here)
            if name.endswith(here):
                return name.removesuffix(here) + there
    return name


def of_names(names: Sequence[str], sides: Sides, each: Image = SAME) -> Image:
    """Of the same few columns for each of several things, by the names of the things."""
    columns: list[int] = []
    for name in names:
        other = other_side(name, sides)
        if other not in names:
            raise ConfigError(f"the mirror image of {name!r} would be {other!r}, which is not among {', '.join(names)}")
        start = names.index(other) * len(each.signs)
        columns += [start + column for column in each.columns]
    return Image(tuple(columns), each.signs * len(names))


def of_joints(robot: Entity, joints: Sequence[int] | None = None) -> Image:
    """Of one column for each of a robot's joints, or for these of them.

    Signs follow from the joints' axes as the model is written: a hinge about y turns the same way in the mirror, one
    about x or z the other way, and slides move the other way along y alone.
    """
    chosen = range(len(robot.joint_names)) if joints is None else joints
    names = [robot.joint_names[i] for i in chosen]
    image = of_names(names, robot.cfg.sides)
    axes, is_hinge = _axes(robot, names), np.array([robot.joint_is_hinge[i] for i in chosen])
    reflected = axes * np.where(is_hinge[:, None], AXIAL.signs, POLAR.signs)
    signs = (reflected * axes[list(image.columns)]).sum(axis=1)
    for i, column in enumerate(image.columns):
        if abs(signs[i]) < 0.99 or is_hinge[i] != is_hinge[column]:
            raise ConfigError(f"the joint {names[column]!r} of {robot.name!r} is not the mirror image of {names[i]!r}")
    return Image(image.columns, tuple(float(sign) for sign in np.sign(signs)))


def _axes(robot: Entity, names: Sequence[str]) -> np.ndarray:
    """Unit axes of joints in the root's frame, `(J, 3)`."""
    model = robot.engine.model
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    ids = [model.joint(f"{robot.name}/{name}").id for name in names]
    return data.xaxis[ids] @ data.xmat[robot.root_id].reshape(3, 3)
