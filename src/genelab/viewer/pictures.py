"""Pictures of environments as arrays."""

from __future__ import annotations

import numpy as np

from genelab.envs import ManagerBasedEnv
from genelab.viewer.camera import Camera
from genelab.viewer.marks import marks_of
from genelab.viewer.offscreen import Offscreen
from genelab.viewer.puppet import Puppet


class Pictures:
    """Draws any environment as it is now, from a camera that is its own."""

    def __init__(self, env: ManagerBasedEnv, size: tuple[int, int], camera: str | None = None) -> None:
        self._env = env
        self._puppet = Puppet(env.scene)
        self._offscreen = Offscreen(self._puppet, size)
        self._name = camera
        self._cameras: dict[int, Camera] = {}

    def draw(self, env: int) -> np.ndarray:
        """A picture, `(height, width, 3)` bytes."""
        self._puppet.pose(env)
        camera = self._cameras.setdefault(env, Camera(self._puppet, self._name))
        self._offscreen.draw(0, camera.aim(), marks_of(self._env, env, self._puppet.top))
        return self._offscreen.picture()

    def close(self) -> None:
        """Free the graphics memory."""
        self._offscreen.close()
