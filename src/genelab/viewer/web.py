"""A page that shows a playback and steers it, for any browser."""

from __future__ import annotations

import contextlib
import errno
import html
import io
import math
import queue
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import mujoco
import numpy as np
import torch

from genelab.envs import ManagerBasedRlEnv
from genelab.errors import GenelabError, UsageError
from genelab.managers import CommandTerm
from genelab.managers.marks import Arrow, Ball, Ghost, Mark
from genelab.viewer.base import Player, ViewerCfg
from genelab.viewer.camera import AZIMUTH, ELEVATION
from genelab.viewer.guard import Guard, is_number
from genelab.viewer.marks import marks_of
from genelab.viewer.pace import SPEEDS, Pace
from genelab.viewer.puppet import SKY, Puppet

PORT = 8080
"""Where the page is served unless somebody says otherwise."""
_TRIES = 20
"""Ports that are tried if nobody named one."""
_FRAME = 1 / 30
"""Time between two pictures, s."""
_TEXT = 0.2
"""Time between two updates of the numbers, s."""
_FLOOR, _LINES = (196, 200, 205), (222, 225, 229)
"""Colours of the floor and of the lines on it, which are a metre apart and lighter: far away they fade into the sky."""
_HISTORY = 300
"""Steps that the plot reaches back."""


class Wheel(NamedTuple):
    """What steers a command by hand."""

    steer: Any
    """The box that is ticked while somebody does."""
    sliders: list[Any]
    """One for each column."""
    apply: Callable[[], None]
    """Bring what is asked to the environment that is shown, or give the wheel back."""
    show: Callable[[], None]
    """Bring the task's own command to the sliders."""


class WebViewer:
    """Serves the page. Nothing is drawn while nobody looks, and closing the page does not stop the playback."""

    def __init__(self, player: Player, cfg: ViewerCfg) -> None:
        viser, mjviser = _libraries()
        self.player = player
        self.pace = Pace(player.env.step_dt, speed=1.0 if player.steerable else math.inf)
        self.server, self.guard = _serve(viser, cfg)
        self.address = _address(cfg.host, self.server.get_port(), self.guard.token)
        self._selected = player.environment
        self._wheels: list[Wheel] = []
        self._wishes: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._rewards: deque[tuple[int, float]] = deque(maxlen=_HISTORY)
        self._frame_at = self._text_at = 0.0
        self._counted = (time.perf_counter(), 0)
        self._puppet = Puppet(player.env.scene)
        self._puppet.pose(self._selected)
        self._scene = mjviser.ViserMujocoScene(self.server, self._puppet.model, num_envs=1)
        self._scene.camera_tracking_enabled = self._puppet.root_travels
        self._paint(mjviser.conversions.get_body_name)
        self._aim_camera()
        self._build_controls(viser)
        marks = marks_of(player.env, self._selected, self._puppet.top)
        self._marks = [
            _add_mark(self.server, f"/mark {i}", mark, self._puppet.model, mjviser.conversions.merge_geoms)
            for i, mark in enumerate(marks)
        ]
        self.server.on_client_connect(lambda client: self._wishes.put(partial(self._welcome, client)))

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
        """Stop serving, also those who do not answer."""
        loop = self.server.get_event_loop()
        loop.call_soon_threadsafe(self.guard.hang_up, loop)
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

    def _paint(self, body_name: Callable[[mujoco.MjModel, int], str]) -> None:
        """A sky, and floors that differ from it."""
        scene, model = self.server.scene, self._puppet.model
        sky = np.linspace(SKY[0], SKY[1], 128)[:, None]
        scene.set_background_image((255 * sky).astype(np.uint8).repeat(2, axis=1), format="png")
        for i in np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE):
            name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_GEOM, i)
            scene.add_grid(  # in the place of mjviser's, which is white with black lines
                f"/fixed_bodies/{body_name(model, model.geom_bodyid[i])}/{name}",
                infinite_grid=True,
                position=model.geom_pos[i],
                wxyz=model.geom_quat[i],
                plane_color=_FLOOR,
                plane_opacity=1.0,
                cell_color=_LINES,
                section_color=_LINES,
                cell_thickness=0.0,
                section_thickness=1.0,
                fade_distance=40.0,
                fade_strength=1.5,
                shadow_opacity=0.3,
            )

    def _aim_camera(self) -> None:
        camera = self.server.initial_camera
        camera.look_at, camera.position = self._view()
        camera.fov = np.deg2rad(45.0)

    def _view(self, aspect: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """What the camera looks at, and from where: from farther away if the screen is narrow."""
        follows = self._puppet.root_travels
        centre, radius = self._puppet.bounds(robot_only=follows)
        look_at = centre - self._puppet.data.xpos[self._puppet.root] if follows else centre
        azimuth, elevation = np.deg2rad(AZIMUTH), np.deg2rad(ELEVATION)
        away = [np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)]
        return look_at, look_at - 3.0 * radius / min(aspect, 1.0) * np.array(away)

    def _welcome(self, client: Any) -> None:
        if client.camera.aspect < 1.0:
            look_at, position = self._view(client.camera.aspect)
            client.camera.position = position  # which takes along what is looked at
            client.camera.look_at = look_at
        self._show()

    def _draw(self) -> None:
        data = self._puppet.pose(self._selected)
        self._scene.update_from_mjdata(data)
        offset = self._scene.fixed_bodies_frame.position
        marks = marks_of(self.player.env, self._selected, self._puppet.top)
        for handle, mark in zip(self._marks, marks, strict=True):
            _place_mark(handle, mark, offset, self._puppet)

    # -- the panel

    def _build_controls(self, viser: Any) -> None:
        """The panel: what is looked at most comes first. On a narrow screen all but the first lines start folded."""
        gui, env = self.server.gui, self.player.env
        gui.configure_theme(show_logo=False, show_share_button=False, control_width="medium")
        gui.set_panel_label("genelab")
        self._status = gui.add_html("")
        if self.player.steerable:
            self._buttons = gui.add_button_group("Playback", ("Pause", "Step", "Reset"))
            actions = {"Pause": self._toggle_pause, "Play": self._toggle_pause, "Step": self._step_once}
            actions["Reset"] = self._restart
            self._listen(self._buttons, list(actions).__contains__, lambda name: actions[name]())
        gui.main_panel.dock_right()
        gui.main_panel.set_width(300)
        # Each takes half of the main panel's place below it: a half for the rewards, a quarter for steering.
        if isinstance(env, ManagerBasedRlEnv):
            rewards = gui.add_panel(order=2)
            with rewards.add_tab("Rewards", viser.Icon.CHART_LINE):
                self._plot = gui.add_uplot(
                    data=(np.zeros(1), np.zeros(1)),
                    series=({"label": "step"}, {"label": "reward", "stroke": "#0072b2", "width": 2}),
                    scales={"x": {"time": False}},
                    height=130,
                )
                self._bars = gui.add_html("")
            rewards.dock_below(gui.main_panel)
        steering = gui.add_panel(order=1)
        for name, term in self._commands() if self.player.steerable else ():
            with steering.add_tab(f"Command {name}", viser.Icon.STEERING_WHEEL):
                self._build_command(term)
        with steering.add_tab("Settings", viser.Icon.SETTINGS):
            self._build_settings()
        steering.dock_below(gui.main_panel)

    def _build_settings(self) -> None:
        gui, env = self.server.gui, self.player.env
        if self.player.steerable:
            speed = gui.add_dropdown("Speed", options=list(SPEEDS), initial_value="1")
            self._listen(speed, list(SPEEDS).__contains__, lambda name: setattr(self.pace, "speed", SPEEDS[name]))
        if env.num_envs > 1:
            which = gui.add_slider("Environment", min=0, max=env.num_envs - 1, step=1, initial_value=self._selected)
            self._listen(
                which, partial(is_number, low=0, high=env.num_envs - 1), lambda value: self._select(int(value))
            )
        if self._puppet.root_travels:
            track = gui.add_checkbox("Follow the robot", initial_value=True)
            self._listen(track, _is_bool, lambda on: setattr(self._scene, "camera_tracking_enabled", on))
        if self.player.checkpoints:
            names = list(self.player.checkpoints)
            self._policy = gui.add_dropdown("Policy", options=names, initial_value=_among(self.player.policy, names))
            self._listen(self._policy, names.__contains__, self.player.load)

    def _listen(self, handle: Any, can_be: Callable[[Any], bool], action: Callable[[Any], None]) -> None:
        """Do something when an input changes; values that it cannot have never come so far."""
        self.guard.inputs[handle._impl.uuid] = can_be
        listen = handle.on_click if hasattr(handle, "on_click") else handle.on_update
        listen(lambda _: self._wish(partial(action, handle.value)))

    def _commands(self) -> Iterator[tuple[str, CommandTerm]]:
        """What can be steered."""
        if isinstance(self.player.env, ManagerBasedRlEnv):
            for name, term in self.player.env.command_manager.terms.items():
                if term.controls():
                    yield name, term

    def _build_command(self, term: CommandTerm) -> None:
        """A slider for each part of a command. They show what is asked; touching one takes the wheel from the task."""
        gui = self.server.gui
        steer = gui.add_checkbox("Steer", initial_value=False)
        sliders = []
        for control in term.controls():
            low, high = control.low, max(control.high, control.low + 0.01)
            slider = gui.add_slider(control.label, min=low, max=high, step=0.01, initial_value=min(max(0.0, low), high))
            self.guard.inputs[slider._impl.uuid] = partial(is_number, low=low, high=high)
            sliders.append(slider)

        def apply() -> None:
            rows = torch.tensor([self._selected], device=term.env.device)
            if steer.value:
                command = [[slider.value for slider in sliders]]
                term.fix(torch.tensor(command, device=term.env.device, dtype=term.env.dtype), rows)
            else:
                term.release(rows)

        def show() -> None:
            if not steer.value:
                for slider, value in zip(sliders, term.command[self._selected].tolist(), strict=True):
                    slider.value = min(max(round(value, 2), slider.min), slider.max)

        async def take_the_wheel(event: Any) -> None:  # async: at once, before anything else is shown
            if event.client is not None:
                steer.value = True
                self._wish(apply)

        self._wheels.append(Wheel(steer, sliders, apply, show))
        self._listen(steer, _is_bool, lambda _: apply())
        for slider in sliders:
            slider.on_update(take_the_wheel)

    def _toggle_pause(self) -> None:
        self.pace.paused = not self.pace.paused
        self._label_pause()

    def _step_once(self) -> None:
        self.pace.step_once()
        self._label_pause()

    def _label_pause(self) -> None:
        self._buttons.options = ("Play" if self.pace.paused else "Pause", "Step", "Reset")

    def _restart(self) -> None:
        self.player.restart()
        self._rewards.clear()

    def _select(self, env: int) -> None:
        for _, term in self._commands() if self.player.steerable else ():
            term.release(torch.tensor([self._selected], device=term.env.device))
        self._selected = env
        for wheel in self._wheels:
            wheel.apply()
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
        if isinstance(env, ManagerBasedRlEnv):
            lines["step"] += f" (episode {float(env.episode_length_buf[self._selected]) * env.step_dt:.2f} s)"
        lines["pace"] = "paused" if self.pace.paused else f"{pace:.2f} × real time"
        for name, term in self._commands():
            lines[name] = " ".join(f"{value:+.2f}" for value in term.command[self._selected].tolist())
        for wheel in self._wheels:
            wheel.show()
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


def _add_mark(server: Any, name: str, mark: Mark, model: mujoco.MjModel, merge_geoms: Callable[..., Any]) -> Any:
    """The handle of a mark that has no place yet; of a ghost, one for each of its bodies."""
    colour = tuple(round(255 * part) for part in mark.rgba[:3])
    if isinstance(mark, Ball):
        return server.scene.add_icosphere(name, radius=mark.radius, color=colour, opacity=mark.rgba[3])
    if isinstance(mark, Ghost):
        handles = {}
        for body, geoms in mark.shapes(model).items():
            mesh, style = merge_geoms(model, geoms), {"color": colour, "opacity": mark.rgba[3], "cast_shadow": False}
            handles[body] = server.scene.add_mesh_simple(f"{name}/{body}", mesh.vertices, mesh.faces, **style)
        return handles
    arrow = {"shaft_radius": 0.01, "head_radius": 0.025, "head_length": 0.06}
    return server.scene.add_arrows(name, points=np.zeros((1, 2, 3)), colors=colour, **arrow)


def _place_mark(handle: Any, mark: Mark, offset: np.ndarray, puppet: Puppet) -> None:
    if isinstance(mark, Arrow):
        handle.visible = mark.is_seen
        handle.points = (np.stack(mark.ends) + offset)[None].astype(np.float32)
    elif isinstance(mark, Ghost):
        data = puppet.posed(mark.qpos)
        for body, shape in handle.items():
            shape.position, shape.wxyz = data.xpos[body] + offset, data.xquat[body]
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


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _serve(viser: Any, cfg: ViewerCfg) -> tuple[Any, Guard]:
    """A guarded server on the port that was asked for, or on one that is free."""
    guard = Guard(cfg.host, _addresses(cfg.host), f"viser-v{viser.__version__}")
    ports = range(PORT, PORT + _TRIES) if cfg.port is None else (cfg.port,)
    port = next((port for port in ports if _is_free(cfg.host, port)), None)
    if port is None:
        which = f"`viewer.port={cfg.port}`" if cfg.port is not None else f"all ports from {PORT} to {PORT + _TRIES - 1}"
        raise UsageError(f"{which}: in use by another program; give another `viewer.port`")
    with contextlib.redirect_stdout(io.StringIO()), guard.standing():  # it would announce itself with a box
        server = viser.ViserServer(host=cfg.host, port=port, verbose=False)
    return server, guard


def _address(host: str, port: int, token: str | None) -> str:
    """What to open in a browser."""
    if host in ("0.0.0.0", "::"):
        host = _own_address()
    place = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    return place if token is None else f"{place}/{token}"


def _own_address() -> str:
    """The address by which other machines know this one; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])


def _addresses(host: str) -> set[str]:
    """The addresses that a host stands for."""
    try:
        if not host:
            raise OSError("it would be all of them")
        return {str(place[0]) for *_, place in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError) as error:
        raise _no_address(host) from error


def _no_address(host: str) -> UsageError:
    shown = host if len(host) <= 80 else f"{host[:77]}..."
    return UsageError(f"`viewer.host`: {shown!r} is no address of this machine")


def _is_free(host: str, port: int) -> bool:
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except PermissionError as error:
            raise UsageError(f"`viewer.port={port}`: only root may serve there; give one from 1024 on") from error
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise _no_address(host) from error
            return False
    return True


def _libraries() -> tuple[Any, Any]:
    try:
        import mjviser.conversions
        import viser
    except ImportError as error:
        raise UsageError("the web page needs viser and mjviser: pip install 'genelab[viewer]'") from error
    return viser, mjviser
