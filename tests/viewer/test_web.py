"""The web page, used as a person would, with a browser."""

from __future__ import annotations

import io
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from genelab.cli.main import run
from genelab.envs import ManagerBasedEnv, ManagerBasedEnvCfg, StepResult, make_env
from genelab.managers import ActionTermCfg
from genelab.mdp import JointPositionActionCfg
from genelab.rl import train_task
from genelab.rl.player import Player
from genelab.scene import SceneCfg
from genelab.viewer import ViewerCfg
from genelab.viewer.web import WebViewer
from genelab_pendulum.robots import single_pendulum_cfg
from tests.narrow import present
from tests.viewer.pages import FRANKA, GO1, PENDULUM, being_played, free_port, make_player
from tests.viewer.waiting import eventually


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def shown() -> Iterator[tuple[Player, WebViewer]]:
    """A quadruped that is being played and shown."""
    with being_played(GO1) as both:
        yield both


def text_of(driver: Any) -> str:
    return driver.execute_script("return document.body.innerText")


def picture_of(driver: Any) -> np.ndarray:
    """The left half of the page, where no panel is."""
    picture = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    return np.asarray(picture)[:, : picture.width // 2].astype(int)


def click(driver: Any, label: str) -> None:
    script = "[...document.querySelectorAll('button')].find(b => b.innerText.trim() == arguments[0]).click()"
    driver.execute_script(script, label)


def test_the_page_in_a_browser(shown: tuple[Player, WebViewer], browser: Any) -> None:
    player, viewer = shown
    browser.get(viewer.address)
    eventually(lambda: "step" in text_of(browser) and "track_lin_vel" in text_of(browser), 60)

    # It shows a robot: many colours, and the dark parts of a Go1 among them.
    eventually(lambda: (picture_of(browser).max(axis=2) < 70).sum() > 200, 60)
    assert picture_of(browser).std() > 10

    click(browser, "Pause")
    eventually(lambda: "paused" in text_of(browser))
    steps = player.steps
    time.sleep(0.5)
    assert player.steps == steps
    assert f"step\t{steps:,}" in text_of(browser)
    click(browser, "Step")
    eventually(lambda: player.steps == steps + 1)
    click(browser, "Play")
    eventually(lambda: player.steps > steps + 10)

    # The three sliders in sight are the velocity; that of the environment is among the settings.
    env: Any = player.env
    sliders = eventually(lambda: browser.find_elements("css selector", "[role=slider]"))
    _, high = env.command_manager.term("twist").cfg.lin_vel_x
    sliders[0].send_keys("\ue010")  # the end key
    eventually(lambda: float(env.command_manager["twist"][0, 0]) == high)
    assert bool(env.command_manager.term("twist").fixed[0])
    assert not bool(env.command_manager.term("twist").fixed[1])
    eventually(lambda: f"{high:+.2f}" in text_of(browser))

    browser.refresh()
    eventually(lambda: "track_lin_vel" in text_of(browser), 60)
    steps = player.steps
    eventually(lambda: player.steps > steps + 10)
    severe = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert severe == []

    browser.save_screenshot("page.png")
    browser.quit()
    eventually(lambda: not viewer.server.get_clients(), 60)
    steps = player.steps
    eventually(lambda: player.steps > steps + 10)


def test_wishes_are_granted_between_steps(shown: tuple[Player, WebViewer]) -> None:
    player, viewer = shown
    env: Any = player.env
    eventually(lambda: env.episode_length_buf[0] > 5)
    viewer._wish(viewer._toggle_pause)
    viewer._wish(viewer._restart)
    viewer._wish(lambda: viewer._select(1))
    eventually(lambda: viewer._selected == 1)
    assert env.episode_length_buf.tolist() == [0, 0]
    assert viewer.pace.paused
    viewer._wish(viewer._toggle_pause)


def test_the_wheel_goes_with_the_one_who_holds_it(shown: tuple[Player, WebViewer]) -> None:
    player, viewer = shown
    env: Any = player.env
    term = env.command_manager.term("twist")
    steer = viewer._wheels[0].steer
    steer.value = True
    eventually(lambda: term.fixed.tolist() == [True, False])
    viewer._wish(lambda: viewer._select(1))
    eventually(lambda: term.fixed.tolist() == [False, True])
    steer.value = False
    eventually(lambda: term.fixed.tolist() == [False, False])


def test_real_time_is_real_on_the_page(shown: tuple[Player, WebViewer]) -> None:
    player, _ = shown
    eventually(lambda: player.steps > 10)

    def error() -> float:
        start, steps = time.perf_counter(), player.steps
        time.sleep(2.0)
        return abs((player.steps - steps) * 0.02 / (time.perf_counter() - start) - 1.0)

    assert min(error() for _ in range(3)) < 0.02  # the machine may be busy


def test_the_goal_of_the_chosen_environment_is_marked() -> None:
    player = make_player(FRANKA)
    viewer = WebViewer(player, ViewerCfg(port=free_port()))
    env: Any = player.env
    env.reset(seed=1)
    (ball,) = viewer._marks
    for i in range(2):
        viewer._select(i)
        viewer._show()
        offset = viewer._scene.fixed_bodies_frame.position
        assert ball.position - offset == pytest.approx(env.commands["goal"][i].numpy(), abs=1e-6)
    (wheel,) = viewer._wheels  # and it can be moved by hand
    assert [slider.label for slider in wheel.sliders] == ["x, m", "y, m", "z, m"]
    viewer.close()
    env.close()


def test_the_checkpoints_of_a_run_can_be_swapped() -> None:
    result = train_task(PENDULUM, num_envs=4, max_iterations=2, seed=3, log_dir=Path("run"))
    other = train_task(PENDULUM, num_envs=4, max_iterations=1, seed=4, log_dir=Path("other"))
    shutil.copy(other.checkpoint, "run/model_1.pt")
    player = make_player(PENDULUM, policy=result.checkpoint)
    assert set(player.checkpoints) == {"model_1.pt", "model_final.pt"}
    assert player.policy == "model_final.pt"
    player.play(3, None, [], lambda step, total: None)
    viewer = WebViewer(player, ViewerCfg(port=free_port()))
    seen = player.observations
    with torch.inference_mode():
        first = player.setup.policy(seen)
        viewer._policy.value = "model_1.pt"
        viewer._grant()
        second = player.setup.policy(seen)
        player.step()
    viewer.close()
    assert player.policy == "model_1.pt"
    assert not torch.equal(first, second)
    assert player.steps == 4


def test_an_episode_that_a_reset_cut_short_does_not_count() -> None:
    player = make_player(PENDULUM)
    player.play(5, None, [], lambda step, total: None)
    with torch.inference_mode():
        player.restart()
        ended = torch.tensor([True, True])
        player._episodes.add(StepResult({}, torch.ones(2), ended, ~ended, {}))
    assert [(episode.length, episode.total) for episode in player._episodes.ended] == [(1, 1.0), (1, 1.0)]
    player.env.close()


def test_a_reset_starts_the_playback_of_a_scene_anew() -> None:
    seen: list[int] = []

    def wave(env: ManagerBasedEnv, step: int) -> torch.Tensor:
        seen.append(step)
        return torch.zeros(env.num_envs, 1)

    scene = SceneCfg(entities={"robot": single_pendulum_cfg()})
    actions: dict[str, ActionTermCfg] = {"cart": JointPositionActionCfg(joint_names=("cart",))}
    player = Player(make_env(ManagerBasedEnvCfg(scene=scene, actions=actions, playback=wave)), "zero", None, None)
    player.play(3, None, [], lambda step, total: None)
    with torch.inference_mode():
        player.restart()
        player.step()
    assert seen == [0, 1, 2, 0]
    assert player.steps == 4
    player.env.close()


def test_with_nobody_looking_it_costs_almost_nothing() -> None:
    player = make_player(PENDULUM)
    viewer = WebViewer(player, ViewerCfg(port=free_port()))
    viewer.pace.speed = float("inf")

    def seconds(work: Callable[[], Any], n: int) -> float:
        start = time.perf_counter()
        for _ in range(n):
            work()
        return (time.perf_counter() - start) / n

    player.play(20, None, [], lambda step, total: None)
    with torch.inference_mode():
        step = min(seconds(player.step, 100) for _ in range(3))

    def watch() -> None:
        viewer.before_step()
        viewer.after_step()

    watched = min(seconds(watch, 100) for _ in range(3))
    viewer.close()
    player.env.close()
    assert watched < 0.05 * step


def test_vis_without_a_display_serves_a_page(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["play", PENDULUM, "--vis", "--max-steps", "3", "--steps", "1"]) == 0
    shown = capfd.readouterr()
    assert "No display detected: serving a web page" in shown.err
    assert "look at http://127.0.0.1:80" in shown.err
    assert shown.out.startswith(f"{PENDULUM}: 3 steps")


def test_ctrl_c_is_how_a_run_with_a_page_ends(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    original = WebViewer.before_step

    def interrupted(self: WebViewer) -> bool:
        if self.player.steps == 4:
            raise KeyboardInterrupt
        return original(self)

    monkeypatch.setattr(WebViewer, "before_step", interrupted)
    assert run(["play", PENDULUM, "--viewer", "web", "--port", str(free_port())]) == 0
    assert "4 steps × 1 envs" in capfd.readouterr().out


def test_a_served_run_goes_on_until_a_real_ctrl_c() -> None:
    genelab = Path(sys.executable).with_name("genelab")
    words = [str(genelab), "play", PENDULUM, "--viewer", "web", "--port", str(free_port()), "--steps", "1"]
    script = f"import signal, os; signal.signal(2, signal.default_int_handler); os.execv({words[0]!r}, {words!r})"
    command = [sys.executable, "-c", script]  # a shell may have told its background jobs to ignore Ctrl-C
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert next(line for line in process.stderr if "look at http://127.0.0.1:" in line)
            time.sleep(1.0)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert int(present(re.search(r"(\d+) steps", out))[1]) > 20
    assert "Traceback" not in err


def test_a_trained_policy_without_a_display_plays_headless(capfd: Any) -> None:
    assert run(["play", PENDULUM, "--agent", "trained", "--steps", "3"]) == 0
    shown = capfd.readouterr()
    assert shown.err == "genelab: No display detected: playing headless; --vis serves a web page\n"
    assert "3 steps" in shown.out
    assert run(["play", PENDULUM, "--agent", "trained", "--steps", "3", "--headless"]) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--viewer", "web", "--port", "BUSY"], "--port BUSY: in use by another program; give another --port"),
        (["--host", "nowhere.invalid"], "--host: 'nowhere.invalid' is no address of this machine"),
        (["--host", "192.0.2.1"], "--host: '192.0.2.1' is no address of this machine"),
        (["--viewer", "window", "--port", "8080"], "--port and --host are for --viewer web"),
        (["--viewer", "web", "--headless"], "--headless does not: pass one of them"),
    ],
)
def test_a_page_that_cannot_be_served_is_refused_in_a_line(words: list[str], answer: str, capfd: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        words = [word.replace("BUSY", port) for word in words]
        assert run(["play", PENDULUM, "--max-steps", "1", *words]) == 2
    err = capfd.readouterr().err
    assert answer.replace("BUSY", port) in err
    assert err.count("\n") == 1


def test_without_the_libraries_a_line_names_the_extra(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setitem(sys.modules, "viser", None)
    assert run(["play", PENDULUM, "--viewer", "web", "--max-steps", "1"]) == 2
    assert "pip install 'genelab[viewer]'" in capfd.readouterr().err
