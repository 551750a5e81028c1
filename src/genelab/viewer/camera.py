"""Where a picture is taken from."""

from __future__ import annotations

import mujoco
import numpy as np

from genelab.errors import UsageError, did_you_mean
from genelab.viewer.puppet import Puppet

FREE = ("track", "fixed")
"""Cameras that every world has: one that follows the robot, and one that does not."""
AZIMUTH, ELEVATION = 125.0, -18.0
"""Where every picture is first taken from, window and page included, degrees."""
_EASE = 0.1
"""Share of the way to the robot that the camera goes with each picture, so that it does not shake with it."""
_JUMP = 1.0
"""A robot that moved farther between two pictures was reset, m: the camera goes there at once."""


class Camera:
    """One of the model's cameras by its name, or a free one.

    `track` follows the robot, `fixed` looks at everything from one place. Without a name a robot that can go anywhere
    is followed and one that stands somewhere is not.
    """

    def __init__(self, puppet: Puppet, name: str | None) -> None:
        self._puppet = puppet
        self._view = mujoco.MjvCamera()
        self._offset: np.ndarray | None = None
        names = [puppet.model.camera(i).name for i in range(puppet.model.ncam)]
        if name is None:
            name = "track" if puppet.root_travels else "fixed"
        if name not in (*names, *FREE):
            known = (*names, *FREE)
            raise UsageError(f"no camera is called {name!r}.{did_you_mean(name, known)} There are {', '.join(known)}.")
        self.name = name
        if name in names:
            self._view.type = mujoco.mjtCamera.mjCAMERA_FIXED
            self._view.fixedcamid = names.index(name)

    def aim(self) -> mujoco.MjvCamera:
        """Look at the puppet as it stands now."""
        if self._view.type == mujoco.mjtCamera.mjCAMERA_FIXED:
            return self._view
        puppet = self._puppet
        place = puppet.data.xpos[puppet.root].copy()
        follows = self.name == "track"
        if self._offset is None:
            centre, radius = puppet.bounds(robot_only=follows)
            self._offset = centre - place
            self._view.lookat = centre
            self._view.distance = (3.2 if follows else 2.6) * radius
            self._view.azimuth, self._view.elevation = AZIMUTH, ELEVATION
        if follows:
            way = place + self._offset - self._view.lookat
            self._view.lookat += way if np.linalg.norm(way) > _JUMP else _EASE * way
        return self._view
