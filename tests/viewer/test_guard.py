"""The web page is for those who opened it: who else knocks is turned away, and what they say is not heard."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import viser
from websockets.sync.client import ClientConnection, connect
from websockets.sync.connection import Connection
from websockets.typing import Origin, Subprotocol

from genelab.cli.main import run
from genelab.rl.player import Player
from genelab.viewer import ViewerCfg
from genelab.viewer.guard import Guard
from genelab.viewer.web import WebViewer
from tests.narrow import present
from tests.viewer.pages import GO1, PENDULUM, being_played, free_port, make_player
from tests.viewer.waiting import eventually

SPOKEN = Subprotocol(f"viser-v{viser.__version__}")
EVIL = "evil.example.com"
CAMERA = {
    "type": "ViewerCameraMessage",
    "wxyz": [1, 0, 0, 0],
    "position": [0, 0, 1],
    "look_at": [0, 0, 0],
    "up_direction": [0, 0, 1],
    "fov": 0.8,
    "near": 0.1,
    "far": 10.0,
    "image_height": 600,
    "image_width": 800,
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def page() -> Iterator[WebViewer]:
    player = make_player(PENDULUM)
    viewer = WebViewer(player, ViewerCfg(port=free_port()))
    yield viewer
    viewer.close()
    player.env.close()


@pytest.fixture(scope="module")
def walked() -> Iterator[tuple[Player, WebViewer]]:
    """A quadruped that is being played and shown."""
    with being_played(GO1) as both:
        yield both


def ask(
    port: int,
    path: str = "/",
    *,
    host: str | None = None,
    socket_from: str | None = None,
    spoken: str = SPOKEN,
    **others: str,
) -> int:
    """The status of an answer; `socket_from` asks for a websocket from this origin."""
    headers = {"Host": host or f"127.0.0.1:{port}", **others}
    if socket_from is not None:
        headers |= {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        headers |= {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol": spoken}
        headers |= {"Origin": socket_from} if socket_from else {}
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall("\r\n".join(lines).encode())
        return int(line.makefile("rb").readline().split()[1])


def enter(viewer: WebViewer) -> ClientConnection:
    """Come in as the page does; a client counts once it has told where its camera is."""
    port = viewer.server.get_port()
    before = set(viewer.server.get_clients())
    origin = Origin(f"http://127.0.0.1:{port}")
    line = connect(f"ws://127.0.0.1:{port}", origin=origin, subprotocols=[SPOKEN], max_size=None, close_timeout=0.1)
    say(line, CAMERA)
    eventually(lambda: set(viewer.server.get_clients()) - before)
    return line


def say(line: Connection, message: Any) -> None:
    line.send(msgspec.msgpack.encode(message))


def update(handle: Any, value: Any) -> dict[str, Any]:
    return {"type": "GuiUpdateMessage", "uuid": handle._impl.uuid, "updates": {"value": value}}


def test_only_its_own_host_and_origin_come_in(page: WebViewer) -> None:
    port = page.server.get_port()
    own = f"http://127.0.0.1:{port}"
    assert ask(port) == 200
    assert ask(port, host="localhost:9999") == 200  # a port that ssh forwards
    assert ask(port, host=f"[::1]:{port}") == 200
    assert ask(port, Origin=own) == 200
    assert ask(port, socket_from=own) == 101

    for host in (EVIL, f"{EVIL}:{port}", f"127.0.0.1.{EVIL}", f"localhost@{EVIL}", "10.0.0.1", ""):
        assert ask(port, host=host or " ") in (400, 403), host
        assert ask(port, host=host or " ", socket_from=f"http://{host}") in (400, 403), host
    for origin in (f"http://{EVIL}", "null", "http://127.0.0.1:1", f"http://localhost:{port}", f"{own}.{EVIL}"):
        assert ask(port, Origin=origin) == 403, origin
        assert ask(port, socket_from=origin) == 403, origin
    assert ask(port, socket_from="") == 403  # every browser says where a websocket comes from


def test_the_page_takes_no_orders_from_another_server_and_hides_in_no_frame(page: WebViewer) -> None:
    port = page.server.get_port()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(f"GET / HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
        answer = line.recv(2000).decode(errors="replace")
    policy = present(re.search(r"(?i)Content-Security-Policy: (.*)\r\n", answer))[1]
    assert "frame-ancestors 'none'" in policy
    assert f"connect-src 'self' blob: data: ws://localhost:{port} wss://localhost:{port}" in policy


def test_opened_to_others_it_wants_the_token(capfd: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    words = ["play", PENDULUM, "--host", "0.0.0.0", "--port", str(port), "--max-steps", "300"]
    thread = threading.Thread(target=run, args=(words,))
    thread.start()
    said = ""

    def address() -> Any:
        nonlocal said
        said += capfd.readouterr().err
        return re.search(rf"look at http://([\w.:-]+):{port}/([\w-]{{22}});", said)

    machine, token = eventually(address, 30).groups()
    assert "--host 0.0.0.0 opens the page to other machines: whoever knows the address below" in said
    assert ask(port) == ask(port, "/wrong") == ask(port, f"/{token}x") == ask(port, f"/?{token}") == 403
    assert ask(port, socket_from=f"http://127.0.0.1:{port}") == 403
    for host in (f"127.0.0.1:{port}", f"{machine}:{port}", f"{socket.gethostname()}:{port}", f"192.0.2.7:{port}"):
        assert ask(port, f"/{token}", host=host) == 200
        assert ask(port, f"/{token}", host=host, socket_from=f"http://{host}") == 101
    assert ask(port, f"/{token}", host=EVIL) == 403
    assert ask(port, f"/{token}", socket_from=f"http://{EVIL}") == 403
    thread.join(timeout=30)
    assert not thread.is_alive()


def test_the_browser_brings_the_token_along(browser: Any) -> None:
    player = make_player(PENDULUM)
    viewer = WebViewer(player, ViewerCfg(host="0.0.0.0", port=free_port()))
    assert viewer.guard.token is not None
    browser.get(f"http://127.0.0.1:{viewer.server.get_port()}/{viewer.guard.token}")
    eventually(viewer.server.get_clients, 60)
    browser.refresh()
    eventually(lambda: len(viewer.server.get_clients()) == 1, 60)
    viewer.close()
    player.env.close()


def test_on_this_machine_alone_there_is_no_token() -> None:
    for host, addresses in (("localhost", {"127.0.0.1", "::1"}), ("127.0.0.2", {"127.0.0.2"})):
        assert Guard(host, addresses, SPOKEN).token is None
    for host, addresses in (("::", {"::"}), ("box", {"127.0.1.1", "192.168.0.7"})):
        assert Guard(host, addresses, SPOKEN).token is not None


def test_a_value_that_no_slider_has_does_not_reach_the_environment(walked: tuple[Player, WebViewer]) -> None:
    player, viewer = walked
    env: Any = player.env
    term = env.command_manager.term("twist")
    turn = viewer._wheels[0].sliders[2]
    with enter(viewer) as line:
        for value in (float("nan"), float("inf"), 1e30, -1e30, "0.5", [0.5], None, True, 2**63):
            say(line, update(turn, value))
        say(line, {**update(turn, 0.5), "updates": {"value": 0.5, "removed": True}})
        say(line, {**update(turn, 0.5), "updates": {"update_cb": []}})
        say(line, update(viewer._buttons, "Explode"))
        say(line, update(viewer._wheels[0].steer, 1))
        say(line, {**CAMERA, "position": [float("nan"), 0, 0]})
        steps = player.steps
        eventually(lambda: player.steps > steps + 5)
        assert not bool(term.fixed.any())
        say(line, update(turn, 0.25))  # it is still listened to
        eventually(lambda: abs(float(term.command[0, 2]) - 0.25) < 1e-6)
        assert term.fixed.tolist() == [True, False]
        say(line, update(viewer._wheels[0].steer, False))
        eventually(lambda: not bool(term.fixed.any()))


def test_sliders_show_the_command_in_force(walked: tuple[Player, WebViewer]) -> None:
    player, viewer = walked
    env: Any = player.env
    term = env.command_manager.term("twist")
    first = torch.tensor([0])

    def shows(command: list[float]) -> bool:
        return [slider.value for slider in viewer._wheels[0].sliders] == command

    with enter(viewer):
        for command in ([0.31, -0.2, 0.1], [5.0, -5.0, 0.0]):
            viewer._wish(partial(term.fix, term.command.new_tensor([command]), first))
            low, high = term.cfg.lin_vel_x
            shown = [min(max(value, low), high) for value in command]
            eventually(partial(shows, shown))
        viewer._wish(lambda: term.fixed.fill_(False))
        assert viewer._wheels[0].steer.value is False  # a slider that is moved for it takes no wheel


def test_broken_frames_are_not_a_word_in_the_terminal(
    page: WebViewer, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    port = page.server.get_port()
    with enter(page) as line:
        for frame in (b"", b"\xff" * 50, b"\x81\xa4type\xa1x", b"\x91" * 5000, msgspec.msgpack.encode({"type": 3})):
            line.send(frame)
        line.send("not even bytes")
        for kind in ("ShareUrlRequest", "Message", "GuiFormDirtyMessage", "FileTransferStartUpload"):
            say(line, {"type": kind, "uuid": "x"})
        say(line, {"type": "GuiUpdateMessage", "uuid": page._buttons._impl.uuid, "updates": {"value": {}}})
        say(line, CAMERA)
        time.sleep(0.3)
        assert len(page.server.get_clients()) == 1  # and the connection has survived
    for junk in (b"\x16\x03\x01", b"GET / HTTP/9\r\n\r\n", b"\0" * 100_000, b"GET /" + b"x" * 10_000):
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(junk)
    with enter(page) as line:
        line.socket.sendall(b"\xff\xff\xff\xff")  # no frame at all
        time.sleep(0.2)
    assert ask(port, socket_from=f"http://127.0.0.1:{port}", spoken="viser-v0") == 403
    time.sleep(0.2)
    shown = capfd.readouterr()
    assert shown.out == shown.err == ""
    assert caplog.text == ""


def test_who_does_not_answer_does_not_hold_up_the_end() -> None:
    player = make_player(PENDULUM)
    viewer = WebViewer(player, ViewerCfg(port=free_port()))
    port = viewer.server.get_port()
    key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    hello = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}\r\n{key}"
    hello += f"Sec-WebSocket-Protocol: {SPOKEN}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)) as silent:
        silent.sendall(hello.encode())
        assert silent.recv(12) == b"HTTP/1.1 101"
        start = time.perf_counter()
        viewer.close()
        assert time.perf_counter() - start < 0.9  # viser alone waits 6 s
    player.env.close()


@pytest.mark.parametrize("host", ["x" * 300, "a" * 70 + ".b", "\udcff\udcfe", "", "..", "0.0.0.0.0", "-"])
def test_a_host_that_is_none_is_refused_in_a_line(host: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["play", PENDULUM, "--host", host, "--max-steps", "1"]) == 2
    err = capfd.readouterr().err
    assert err.startswith("genelab: --host: ")
    assert "is no address of this machine" in err
    assert err.count("\n") == 1
    assert len(err) < 150


def test_on_a_narrow_screen_the_camera_steps_back(page: WebViewer) -> None:
    """At half the width everything is seen from twice as far, in the same direction."""
    look_at, position = page._view()
    with enter(page) as line:
        say(line, {**CAMERA, "image_width": 300})
        (client,) = page.server.get_clients().values()
        eventually(lambda: client.camera.aspect == 0.5)
        page._welcome(client)
        assert client.camera.look_at == pytest.approx(look_at)
        assert client.camera.position - look_at == pytest.approx(2.0 * (position - look_at))
