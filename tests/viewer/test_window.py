"""The window, on a display that only exists in memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import glfw
import numpy as np
import pytest
import torch

from genelab.cli.main import run
from genelab.envs import make_env, rl_cfg
from genelab.rl.player import Player
from tests.lacking import lacking
from tests.viewer.waiting import eventually

PENDULUM = "GeneLab-Inverted-Pendulum-v0"
SPACE, RIGHT, BACKSPACE = 32, 262, 259


@pytest.fixture
def screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], np.ndarray]]:
    """A display of 800 × 600, and a function that photographs it."""
    if shutil.which("Xvfb") is None:
        lacking("no Xvfb: apt-get install xvfb")
    read, write = os.pipe()
    command = [
        "Xvfb",
        "-displayfd",
        str(write),
        "-screen",
        "0",
        "800x600x24",
        "-fbdir",
        str(tmp_path),
        "-nolisten",
        "tcp",
    ]
    server = subprocess.Popen(command, pass_fds=(write,), stderr=subprocess.DEVNULL)
    os.close(write)
    with os.fdopen(read) as answer:
        monkeypatch.setenv("DISPLAY", f":{answer.readline().strip()}")

    def photograph() -> np.ndarray:
        data = (tmp_path / "Xvfb_screen0").read_bytes()  # an XWD file: header, colours, rows of BGRX
        header, colours = (int.from_bytes(data[i : i + 4], "big") for i in (0, 76))
        pixels = np.frombuffer(data, dtype=np.uint8, offset=header + 12 * colours)
        return pixels[: 800 * 600 * 4].reshape(600, 800, 4)[..., 2::-1]

    yield photograph
    glfw.terminate()  # it would end the process if it found its display gone
    server.terminate()
    server.wait(timeout=10)


# GLFW opens its display once for a process: everything is in one test.
def test_the_window(screen: Callable[[], np.ndarray], capfd: pytest.CaptureFixture[str]) -> None:
    from genelab.viewer.window import WindowViewer

    cfg = rl_cfg(PENDULUM, play=True)
    assert cfg is not None
    cfg.scene.num_envs = 2
    env: Any = make_env(cfg)
    player = Player(env, "random", None, None)
    window = WindowViewer(player)
    player.play(30, None, [window], lambda step, total: None)
    assert player.steps == 30

    # The cart is blue, the pole orange; neither the floor nor the panel is.
    def robot() -> bool:
        picture = screen().astype(int)
        red, blue = picture[..., 0], picture[..., 2]
        return bool(((blue > red + 40).sum() > 300) and ((red > blue + 60).sum() > 300))

    eventually(robot)
    for key in (SPACE, ord("]"), BACKSPACE, ord("-")):
        window.press(key)
    with torch.inference_mode():
        window._look()
    assert window.pace.paused
    assert window._selected == 1
    assert env.episode_length_buf.tolist() == [0, 0]
    assert window.pace.speed == 0.5
    window.press(RIGHT)
    assert window.before_step()  # one step, although it is paused
    assert window.pace.paused
    with window.handle.lock():  # the window's thread is busy with a picture for half a second
        busy = threading.Timer(0.0, window.after_step)
        window._shown_at = 0.0
        busy.start()
        time.sleep(0.5)
    busy.join()
    assert window._gap >= 2.5  # the playback waits for a fifth of the time at most
    window.close()
    eventually(lambda: not window.handle.is_running())
    assert not window.before_step()
    env.close()
    assert run(["play", PENDULUM, "--vis", "--max-steps", "5"]) == 0
    shown = capfd.readouterr()
    assert "keys in the window: space: pause" in shown.err
    assert "5 steps × 1 envs" in shown.out


def test_a_display_that_is_not_there_is_told_in_a_line() -> None:
    genelab = Path(sys.executable).with_name("genelab")
    command = [str(genelab), "play", PENDULUM, "--vis", "--max-steps", "1"]
    result = subprocess.run(
        command, env={**os.environ, "DISPLAY": ":987"}, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 1
    assert result.stderr == "genelab: no window can be opened on this display; --viewer web serves a page instead\n"


def test_a_window_without_any_display_is_refused_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert run(["play", PENDULUM, "--viewer", "window", "--max-steps", "1"]) == 1
    assert capfd.readouterr().err == (
        "genelab: No display detected: no window can be opened; --viewer web serves a page instead\n"
    )
