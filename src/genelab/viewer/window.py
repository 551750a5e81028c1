"""A window on this machine's display."""

from __future__ import annotations

import math
import queue
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np

from genelab.errors import GenelabError
from genelab.viewer.base import Player, has_display
from genelab.viewer.camera import AZIMUTH, ELEVATION
from genelab.viewer.marks import marks_of
from genelab.viewer.pace import SPEEDS, Pace
from genelab.viewer.puppet import Puppet

LOOKING = "[ ]: environment, P: plot"
KEYS = f"space: pause, right: step, backspace: reset, - =: speed, {LOOKING}"
_FRAME = 1 / 60
"""Time between two pictures, s; more where drawing is slow."""
_SHARE = 0.2
"""How much of the time may be spent waiting for the window's thread, which draws without a graphics card for long."""
_HISTORY = 200
"""Steps that the plot reaches back."""
_INSTEAD = "`viewer.kind='web'` serves a page instead"


class WindowViewer:
    """MuJoCo's passive viewer, in the pace of the real world; closing it ends the playback."""

    def __init__(self, player: Player) -> None:
        viewer = _library()
        self.player = player
        self.keys = KEYS if player.steerable else LOOKING
        self.pace = Pace(player.env.step_dt, speed=1.0 if player.steerable else math.inf)
        self._selected = player.environment
        self._plotted = True
        self._shown_at = 0.0
        self._gap = _FRAME
        self._wishes: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._rewards: deque[float] = deque(maxlen=_HISTORY)
        self._puppet = Puppet(player.env.scene)
        self._puppet.pose(0)
        self._figure = _figure()
        before = set(threading.enumerate())
        self.handle = viewer.launch_passive(
            self._puppet.model, self._puppet.data, key_callback=self.press, show_left_ui=False, show_right_ui=False
        )
        self._threads = set(threading.enumerate()) - before
        self._aim_camera()
        self._show()

    # -- what the playback calls

    def before_step(self) -> bool:
        """Wait until the step is due; False once the window is closed."""
        return self.pace.wait(self._look) and self.handle.is_running()

    def after_step(self) -> None:
        """Show what can be seen now."""
        if self.player.reward is not None:
            self._rewards.append(float(self.player.reward[self._selected]))
        if time.perf_counter() - self._shown_at >= self._gap:
            self._show()
            now = time.perf_counter()
            self._gap = max(_FRAME, (now - self._shown_at) / _SHARE)

    def close(self) -> None:
        """Close the window, and wait until it is gone: it draws in threads of its own."""
        self.handle.close()
        for thread in self._threads:
            thread.join(timeout=5.0)

    # -- keys: they come from the window's thread and are obeyed between two steps

    def press(self, key: int) -> None:
        """A key was pressed, by its GLFW code."""
        actions: dict[int, Callable[[], None]] = {
            ord("["): lambda: self._select(self._selected - 1),
            ord("]"): lambda: self._select(self._selected + 1),
            ord("P"): self._toggle_plot,
        }
        if self.player.steerable:
            actions |= {
                32: self._toggle_pause,
                262: self.pace.step_once,
                259: self._restart,
                ord("-"): lambda: self._change_speed(-1),
                ord("="): lambda: self._change_speed(1),
            }
        action = actions.get(key)
        if action is not None:
            self._wishes.put(action)

    def _look(self) -> None:
        if not self.handle.is_running():
            self.pace.closed = True
            return
        while not self._wishes.empty():
            self._wishes.get()()
            self._show()

    def _toggle_pause(self) -> None:
        self.pace.paused = not self.pace.paused

    def _toggle_plot(self) -> None:
        self._plotted = not self._plotted

    def _restart(self) -> None:
        self.player.restart()
        self._rewards.clear()

    def _select(self, env: int) -> None:
        self._selected = env % self.player.env.num_envs
        self._rewards.clear()

    def _change_speed(self, by: int) -> None:
        speeds = list(SPEEDS.values())
        self.pace.speed = speeds[min(max(speeds.index(self.pace.speed) + by, 0), len(speeds) - 1)]

    # -- the picture

    def _aim_camera(self) -> None:
        camera, puppet = self.handle.cam, self._puppet
        centre, radius = puppet.bounds(robot_only=puppet.root_travels)
        camera.lookat, camera.distance = centre, 3.2 * radius
        camera.azimuth, camera.elevation = AZIMUTH, ELEVATION
        if puppet.root_travels:
            camera.type, camera.trackbodyid = mujoco.mjtCamera.mjCAMERA_TRACKING, puppet.root

    def _show(self) -> None:
        self._shown_at = time.perf_counter()
        with self.handle.lock():
            self._puppet.pose(self._selected)
            self.handle.user_scn.ngeom = 0
            for mark in marks_of(self.player.env, self._selected, self._puppet.top):
                mark.add_to(self.handle.user_scn, self._puppet)
        self.handle.set_texts((None, mujoco.mjtGridPos.mjGRID_TOPLEFT, *self._text()))
        if self._plotted and len(self._rewards) > 1 and (view := self.handle.viewport) is not None:
            _plot(self._figure, self._rewards)
            place = mujoco.MjrRect(
                view.left + view.width - view.width // 3, view.bottom, view.width // 3, view.height // 4
            )
            self.handle.set_figures((place, self._figure))
        else:
            self.handle.clear_figures()
        self.handle.sync()

    def _text(self) -> tuple[str, str]:
        env = self.player.env
        lines = {"step": f"{self.player.steps}", "acts": self.player.policy}
        speed = "as fast as it goes" if math.isinf(self.pace.speed) else f"{self.pace.speed:g} x"
        lines["speed"] = "paused" if self.pace.paused else speed
        if env.num_envs > 1:
            lines["environment"] = f"{self._selected} of {env.num_envs}"
        lines["keys"] = self.keys
        return "\n".join(lines), "\n".join(lines.values())


def _figure() -> mujoco.MjvFigure:
    figure = mujoco.MjvFigure()
    mujoco.mjv_defaultFigure(figure)
    figure.title = "reward of a step"
    figure.flg_extend = 1
    figure.gridsize = [2, 3]
    figure.linergb[0] = [0.3, 0.7, 1.0]
    figure.figurergba = [0.1, 0.12, 0.15, 0.6]
    return figure


def _plot(figure: mujoco.MjvFigure, rewards: deque[float]) -> None:
    values = np.asarray(rewards, dtype=np.float32)
    points = np.stack([np.arange(-len(values) + 1, 1, dtype=np.float32), values], axis=1).flatten()
    figure.linepnt[0] = len(values)
    figure.linedata[0, : len(points)] = points
    figure.range[0] = [-len(values), 0]
    figure.range[1] = [min(0.0, float(values.min())), max(1e-3, float(values.max()))]


def _library() -> Any:
    """MuJoCo's viewer, once it is sure that a window can be opened: it would wait for ever otherwise."""
    if not has_display():
        raise GenelabError(f"No display detected: no window can be opened; {_INSTEAD}")
    try:
        import glfw
        import mujoco.viewer
    except (ImportError, RuntimeError) as error:
        raise GenelabError(f"no window can be opened here ({error}); {_INSTEAD}") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says the same as the line below, in two of its own
        if not glfw.init():
            raise GenelabError(f"no window can be opened on this display; {_INSTEAD}")
    return mujoco.viewer
