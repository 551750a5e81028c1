"""Pictures without a window."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import mujoco
import numpy as np

from genelab.errors import GenelabError, summary
from genelab.managers.marks import Mark
from genelab.viewer.puppet import Puppet

MAX_GEOMS = 5000
"""The most shapes in one picture."""
_EMPTY = (0.93, 0.94, 0.95, 1.0)
"""Colour of a picture where nothing is drawn."""
_CHOICE = "PYOPENGL_PLATFORM"
"""The variable that MuJoCo tells PyOpenGL with what to draw."""


class Offscreen:
    """Draws scenes into a picture, side by side."""

    def __init__(self, puppet: Puppet, size: tuple[int, int], tiles: int = 1) -> None:
        self.width, self.height = size
        self._puppet = puppet
        model = puppet.model
        model.vis.global_.offwidth, model.vis.global_.offheight = size
        # Software draws the whole map of shadows for every picture: twice as fine as the picture, and no finer.
        model.vis.quality.shadowsize = int(np.clip(2 ** np.ceil(np.log2(2 * self.height)), 64, 2048))
        self._gl = gl_context(*size)
        self._gl.make_current()
        try:
            self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150)
        except mujoco.FatalError as error:
            raise no_renderer([summary(error)]) from error
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        mujoco.mjr_rectangle(mujoco.MjrRect(0, 0, *size), *_EMPTY)  # what no tile covers
        self._scene = mujoco.MjvScene(model, maxgeom=MAX_GEOMS)
        self._option = mujoco.MjvOption()
        self._tiles = list(tile_rectangles(tiles, size))
        self._upside_down = np.zeros((self.height, self.width, 3), dtype=np.uint8)

    def draw(self, tile: int, camera: mujoco.MjvCamera, marks: Sequence[Mark] = ()) -> None:
        """Draw the puppet as it stands into one tile of the picture."""
        self._gl.make_current()
        puppet, every = self._puppet, mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(puppet.model, puppet.data, self._option, None, camera, every, self._scene)
        for mark in marks:
            mark.add_to(self._scene, puppet)
        mujoco.mjr_render(self._tiles[tile], self._scene, self._context)

    def picture(self) -> np.ndarray:
        """What was drawn, `(height, width, 3)` bytes."""
        whole = mujoco.MjrRect(0, 0, self.width, self.height)
        mujoco.mjr_readPixels(self._upside_down, None, whole, self._context)
        return np.ascontiguousarray(self._upside_down[::-1])

    def close(self) -> None:
        """Free the graphics memory."""
        self._gl.make_current()
        self._context.free()
        self._gl.free()


def tile_rectangles(count: int, size: tuple[int, int]) -> Iterator[mujoco.MjrRect]:
    """Equal parts of a picture, row by row from the top: up to three side by side, more as a square."""
    columns = count if count <= 3 else int(np.ceil(np.sqrt(count)))
    rows = -(-count // columns)
    width, height = size[0] // columns, size[1] // rows
    for i in range(count):
        row, column = divmod(i, columns)
        yield mujoco.MjrRect(column * width, size[1] - (row + 1) * height, width, height)


def gl_context(width: int, height: int) -> Any:
    """Something to draw with: what MUJOCO_GL names, or the first of EGL and OSMesa that works."""
    if sys.platform != "linux":
        from mujoco.gl_context import GLContext

        return GLContext(width, height)
    wanted = os.environ.get("MUJOCO_GL", "").lower()
    names = (wanted,) if wanted in ("egl", "osmesa") else ("egl", "osmesa")
    reasons = []
    for name in names:
        os.environ.pop(_CHOICE, None)
        try:
            return importlib.import_module(f"mujoco.{name}").GLContext(width, height)
        except Exception as error:  # PyOpenGL fails in as many ways as there are broken drivers
            reasons.append(f"{name}: {summary(error)}")
            _forget_opengl()
        finally:
            os.environ.pop(_CHOICE, None)  # made for this process, not for its children
    raise no_renderer(reasons)


def no_renderer(reasons: Sequence[str]) -> GenelabError:
    """What to say where nothing can be drawn."""
    return GenelabError(
        "no renderer works here: `apt-get install libegl1 libegl-mesa0 libopengl0`, or `apt-get install libosmesa6` "
        f"and MUJOCO_GL=osmesa ({'; '.join(reasons)})"
    )


def _forget_opengl() -> None:
    """PyOpenGL decides once what it draws with; the next try needs it to decide again."""
    for module in [name for name in sys.modules if name.split(".")[0] == "OpenGL"]:
        del sys.modules[module]
    for module in [name for name in sys.modules if name.startswith(("mujoco.egl", "mujoco.osmesa"))]:
        del sys.modules[module]
