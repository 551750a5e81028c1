"""A page that shows a playback and steers it, for any browser."""

from __future__ import annotations

import contextlib
import errno
import html
import io
import queue
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from genelab.envs import ManagerBasedRlEnv
from genelab.errors import GenelabError, UsageError
from genelab.mdp import VelocityCommand
from genelab.viewer.base import Player, ViewerCfg
from genelab.viewer.camera import AZIMUTH, ELEVATION
from genelab.viewer.marks import Arrow, Ball, Mark, marks_of
from genelab.viewer.pace import SPEEDS, Pace
from genelab.viewer.puppet import Puppet

PORT = 8080
"""Where the page is served unless somebody says otherwise."""
_TRIES = 20
"""Ports that are tried if nobody named one."""
_FRAME = 1 / 30
"""Time between two pictures, s."""
_TEXT = 0.2
"""Time between two updates of the numbers, s."""
_HISTORY = 300
"""Steps that the plot reaches back."""


class WebViewer:
    """Serves the page. Nothing is drawn while nobody looks, and closing the page does not stop the playback."""

    def __init__(self, player: Player, cfg: ViewerCfg) -> None:
        viser, scene_of = _libraries()
        self.player = player
        self.pace = Pace(player.env.step_dt)
        self.server = _serve(viser, cfg)
        host = f"[{cfg.host}]" if ":" in cfg.host else cfg.host
        self.address = f"http://{host}:{self.server.get_port()}"
        self._selected = 0
        self._wheels: list[tuple[Any, Callable[[], None]]] = []
        self._wishes: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._rewards: deque[tuple[int, float]] = deque(maxlen=_HISTORY)
        self._frame_at = self._text_at = 0.0
        self._counted = (time.perf_counter(), 0)
        self._puppet = Puppet(player.env.scene)
        self._puppet.pose(0)
        self._scene = scene_of(self.server, self._puppet.model, num_envs=1)
        self._scene.camera_tracking_enabled = self._puppet.root_is_free
        self._aim_camera()
        self._build_controls(viser)
        marks = marks_of(player.env, 0, self._puppet.top)
        self._marks = [_add_mark(self.server, f"/mark {i}", mark) for i, mark in enumerate(marks)]
        self.server.on_client_connect(lambda client: self._wishes.put(self._show))

    # -- what the playback calls

    def before_step(self) -> bool:
        """Wait until the step is due, and grant wishes meanwhile."""
        return self.pace.wait(self._grant)

    def after_step(self) -> None:
        """Show what can be seen now, as often as an eye sees it and if there is one."""
        if not self.server.get_clients():
            return
        if self.player.reward is not None:
            self._rewards.append((self.player.steps, float(self.player.reward[self._selected])))
        now = time.perf_counter()
        if now - self._frame_at >= _FRAME:
            self._frame_at = now
            self._draw()
        if now - self._text_at >= _TEXT:
            self._write(now)

    def close(self) -> None:
        """Stop serving."""
        with contextlib.redirect_stdout(io.StringIO()):
            self.server.stop()

    # -- wishes: they come from the server's threads and are granted between two steps

    def _grant(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._wishes.get_nowait()()

    def _wish(self, action: Callable[[], None]) -> None:
        def granted() -> None:
            try:
                action()
            except GenelabError as error:
                for client in self.server.get_clients().values():
                    client.add_notification(title="Not possible", body=str(error), color="red")
            self._show()

        self._wishes.put(granted)

    def _show(self) -> None:
        self._draw()
        self._write(time.perf_counter())

    # -- the picture

    def _aim_camera(self) -> None:
        follows = self._puppet.root_is_free
        centre, radius = self._puppet.bounds(robot_only=follows)
        look_at = centre - self._puppet.data.xpos[self._puppet.root] if follows else centre
        azimuth, elevation = np.deg2rad(AZIMUTH), np.deg2rad(ELEVATION)
        away = [np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)]
        self.server.initial_camera.look_at = look_at
        self.server.initial_camera.position = look_at - 3.0 * radius * np.array(away)
        self.server.initial_camera.fov = np.deg2rad(45.0)

    def _draw(self) -> None:
        data = self._puppet.pose(self._selected)
        self._scene.update_from_mjdata(data)
        offset = self._scene.fixed_bodies_frame.position
        marks = marks_of(self.player.env, self._selected, self._puppet.top)
        for handle, mark in zip(self._marks, marks, strict=True):
            _place_mark(handle, mark, offset)

    # -- the panel

    def _build_controls(self, viser: Any) -> None:
        gui = self.server.gui
        gui.configure_theme(show_logo=False, show_share_button=False, control_width="medium")
        gui.set_panel_label("genelab")
        self._status = gui.add_html("")
        self._pause = gui.add_button("Pause", icon=viser.Icon.PLAYER_PAUSE)
        self._pause.on_click(lambda _: self._wish(self._toggle_pause))
        gui.add_button("Step", icon=viser.Icon.PLAYER_TRACK_NEXT).on_click(lambda _: self._wish(self._step_once))
        gui.add_button("Reset", icon=viser.Icon.REFRESH).on_click(lambda _: self._wish(self._restart))
        speed = gui.add_dropdown("Speed", options=list(SPEEDS), initial_value="1")
        speed.on_update(lambda _: self._wish(lambda: setattr(self.pace, "speed", SPEEDS[speed.value])))
        if self.player.env.num_envs > 1:
            which = gui.add_slider("Environment", min=0, max=self.player.env.num_envs - 1, step=1, initial_value=0)
            which.on_update(lambda _: self._wish(lambda: self._select(int(which.value))))
        if self._puppet.root_is_free:
            track = gui.add_checkbox("Follow the robot", initial_value=True)
            track.on_update(lambda _: setattr(self._scene, "camera_tracking_enabled", track.value))
        if self.player.checkpoints:
            names = list(self.player.checkpoints)
            self._policy = gui.add_dropdown("Policy", options=names, initial_value=_among(self.player.policy, names))
            self._policy.on_update(lambda _: self._wish(lambda: self.player.load(self._policy.value)))
        for name, term in self._commands():
            with gui.add_folder(f"Command {name}"):
                self._build_command(term)
        if isinstance(self.player.env, ManagerBasedRlEnv):
            with gui.add_folder("Rewards"):
                self._plot = gui.add_uplot(
                    data=(np.zeros(1), np.zeros(1)),
                    series=({"label": "step"}, {"label": "reward", "stroke": "#0072b2", "width": 2}),
                    scales={"x": {"time": False}},
                    height=150,
                )
                self._bars = gui.add_html("")

    def _commands(self) -> Iterator[tuple[str, VelocityCommand]]:
        if isinstance(self.player.env, ManagerBasedRlEnv):
            for name, term in self.player.env.command_manager.terms.items():
                if isinstance(term, VelocityCommand):
                    yield name, term

    def _build_command(self, term: VelocityCommand) -> None:
        """A slider for each part of a velocity; touching one takes the wheel from the task."""
        gui = self.server.gui
        steer = gui.add_checkbox("Steer", initial_value=False)
        ranges = dict(zip(("forward, m/s", "left, m/s", "turn, rad/s"), term.ranges.values(), strict=True))
        sliders = []
        for label, (low, high) in ranges.items():
            start = min(max(0.0, low), high)
            sliders.append(gui.add_slider(label, min=low, max=max(high, low + 0.01), step=0.01, initial_value=start))

        def apply() -> None:
            rows = torch.tensor([self._selected], device=term.env.device)
            if steer.value:
                command = [[slider.value for slider in sliders]]
                term.fix(torch.tensor(command, device=term.env.device, dtype=term.env.dtype), rows)
            else:
                term.fixed[rows] = False

        def take_the_wheel(event: Any) -> None:
            steer.value = True
            self._wish(apply)

        self._wheels.append((steer, apply))
        steer.on_update(lambda _: self._wish(apply))
        for slider in sliders:
            slider.on_update(take_the_wheel)

    def _toggle_pause(self) -> None:
        self.pace.paused = not self.pace.paused
        self._pause.label = "Play" if self.pace.paused else "Pause"

    def _step_once(self) -> None:
        self.pace.step_once()
        self._pause.label = "Play"

    def _restart(self) -> None:
        self.player.restart()
        self._rewards.clear()

    def _select(self, env: int) -> None:
        for _, term in self._commands():
            term.fixed[self._selected] = False
        self._selected = env
        for _, apply in self._wheels:
            apply()
        self._rewards.clear()

    def _write(self, now: float) -> None:
        """Bring the numbers up to date."""
        then, steps = self._counted
        env, done = self.player.env, self.player.steps
        if now - then > 1.0:
            self._counted = (now, done)
        pace = (done - steps) * env.step_dt / max(now - then, 1e-6)
        self._text_at = now
        lines = {"step": f"{done:,}", "acts": self.player.policy}
        lines["pace"] = "paused" if self.pace.paused else f"{pace:.2f} × real time"
        if isinstance(env, ManagerBasedRlEnv):
            lines["episode"] = f"{float(env.episode_length_buf[self._selected]) * env.step_dt:.2f} s"
        for name, term in self._commands():
            lines[name] = " ".join(f"{value:+.2f}" for value in term.command[self._selected].tolist())
        self._status.content = _rows((name, html.escape(text)) for name, text in lines.items())
        if isinstance(env, ManagerBasedRlEnv):
            self._write_rewards(env)

    def _write_rewards(self, env: ManagerBasedRlEnv) -> None:
        rates = (env.reward_manager.step_reward[:, self._selected] / env.step_dt).tolist()
        most = max([abs(rate) for rate in rates], default=0.0) or 1.0
        self._bars.content = _rows(
            (name, _bar(rate, most)) for name, rate in zip(env.reward_manager.terms, rates, strict=True)
        )
        if len(self._rewards) > 1:
            self._plot.data = tuple(np.array(column, dtype=np.float64) for column in zip(*self._rewards, strict=True))


def _add_mark(server: Any, name: str, mark: Mark) -> Any:
    """The handle of a mark that has no place yet."""
    colour = tuple(round(255 * part) for part in mark.rgba[:3])
    if isinstance(mark, Ball):
        return server.scene.add_icosphere(name, radius=mark.radius, color=colour, opacity=mark.rgba[3])
    arrow = {"shaft_radius": 0.01, "head_radius": 0.025, "head_length": 0.06}
    return server.scene.add_arrows(name, points=np.zeros((1, 2, 3)), colors=colour, **arrow)


def _place_mark(handle: Any, mark: Mark, offset: np.ndarray) -> None:
    if isinstance(mark, Arrow):
        handle.visible = mark.is_seen
        handle.points = (np.stack(mark.ends) + offset)[None].astype(np.float32)
    else:
        handle.position = mark.centre + offset


def _rows(rows: Iterator[tuple[str, str]]) -> str:
    """A small table; values are HTML already."""
    cells = "".join(
        f"<tr><td style='padding-right:.8em;color:#777'>{html.escape(name)}</td><td style='width:60%'>{value}</td></tr>"
        for name, value in rows
    )
    return f"<table style='font-size:.8em;width:92%;margin:0 4%;font-variant-numeric:tabular-nums'>{cells}</table>"


def _bar(value: float, most: float) -> str:
    colour = "#009e73" if value >= 0 else "#d55e00"
    width = 60 * abs(value) / most
    return (
        f"<span style='display:inline-block;vertical-align:middle;height:.7em;width:{width:.0f}%;background:{colour}'>"
        f"</span> {value:+.3f}"
    )


def _among(name: str, names: list[str]) -> str:
    return name if name in names else names[0]


def _serve(viser: Any, cfg: ViewerCfg) -> Any:
    """A server on the port that was asked for, or on one that is free."""
    ports = range(PORT, PORT + _TRIES) if cfg.port is None else (cfg.port,)
    port = next((port for port in ports if _is_free(cfg.host, port)), None)
    if port is None:
        which = f"--port {cfg.port}" if cfg.port is not None else f"all ports from {PORT} to {PORT + _TRIES - 1}"
        raise UsageError(f"{which}: in use by another program; give another --port")
    with contextlib.redirect_stdout(io.StringIO()):  # it would announce itself with a box
        server = viser.ViserServer(host=cfg.host, port=port, verbose=False)
    # A visitor could open a tunnel to the whole internet with it.
    server.request_share_url = lambda: None
    return server


def _is_free(host: str, port: int) -> bool:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UsageError(f"--host: {host!r} is no address of this machine") from error
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except PermissionError as error:
            raise UsageError(f"--port {port}: only root may serve there; give one from 1024 on") from error
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise UsageError(f"--host: {host!r} is no address of this machine") from error
            return False
    return True


def _libraries() -> tuple[Any, Any]:
    try:
        import mjviser
        import viser
    except ImportError as error:
        raise UsageError("the web page needs viser and mjviser: pip install 'genelab[viewer]'") from error
    return viser, mjviser.ViserMujocoScene
