"""Films: right number of pictures, right length, something to see, no memory spent."""

from __future__ import annotations

import ctypes.util
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import mujoco
import numpy as np
import psutil
import pytest
import torch

from genelab import TASKS
from genelab.cli.main import run
from genelab.envs import ManagerBasedEnv, make_env
from genelab.errors import GenelabError, UsageError
from genelab.managers.marks import ASKED, DONE, GOAL, Arrow, Ball
from genelab.rl import FilmOptions, train_task
from genelab.viewer import Film, FilmCfg, offscreen, parse_size, puppet
from genelab.viewer.camera import Camera
from genelab.viewer.film import Encoder
from genelab.viewer.marks import marks_of
from genelab.viewer.offscreen import tile_rectangles
from genelab.viewer.puppet import Puppet
from tests.lacking import lacking
from tests.rl.helpers import same

PENDULUM = "GeneLab-Inverted-Pendulum-v0"
DOUBLE = "GeneLab-Double-Inverted-Pendulum-v0"
FRANKA = "GeneLab-Franka-Pick-And-Place-v0"
GO1 = "Genelab-Velocity-Flat-Unitree-Go1-v0"
ROUGH_G1 = "Genelab-Velocity-Rough-Unitree-G1-v0"
CUBE = "GeneLab-Rubiks-Play-v0"
HAND = "GeneLab-Wuji-Hand-Playback-v0"
SMALL = (160, 120)

try:
    offscreen.gl_context(16, 16).free()
except GenelabError as error:
    lacking(str(error), whole_module=True)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def env(request: pytest.FixtureRequest) -> Iterator[ManagerBasedEnv]:
    """A task as it is played, two environments of it."""
    cfg = TASKS.get(request.param).playing
    cfg.scene.num_envs = 2
    cfg.simulation.fresh_kinematics = True
    env = make_env(cfg)
    env.reset(seed=1)
    yield env
    env.close()


def read(path: Path) -> tuple[np.ndarray, Fraction]:
    """All pictures of a film, and its pictures per second."""
    with av.open(str(path)) as file:
        rate = file.streams.video[0].average_rate
        assert rate is not None
        return np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]), rate


@pytest.mark.parametrize(
    ("task", "steps", "frames", "rate"),
    [
        (PENDULUM, 21, 11, 50),
        (DOUBLE, 2, 1, 50),
        (GO1, 10, 10, 50),
        (ROUGH_G1, 3, 3, 50),
        (FRANKA, 3, 3, 20),
        (CUBE, 5, 3, 50),
        (HAND, 5, 3, 50),
    ],
)
def test_a_film_lasts_as_long_as_what_it_shows(task: str, steps: int, frames: int, rate: int, capfd: Any) -> None:
    # A pendulum's control loop runs at 100 Hz: every other step is shown.
    size = f"{SMALL[0]}x{SMALL[1]}"
    assert (
        run(["play", task, "--video", "f.mp4", "--video-length", str(steps), "--video-size", size, "--seed", "1"]) == 0
    )
    assert f"film in f.mp4: {frames} picture" in capfd.readouterr().out
    pictures, fps = read(Path("f.mp4"))
    assert pictures.shape == (frames, SMALL[1], SMALL[0], 3)
    assert fps == rate
    assert all(picture.std() > 10 for picture in pictures)  # no picture is one colour
    assert 60 < pictures.mean() < 240
    assert [path.name for path in Path.cwd().iterdir()] == ["f.mp4"]


@pytest.mark.parametrize("env", [PENDULUM, GO1, CUBE, HAND], indirect=True)
def test_the_sun_shines_from_above_however_the_robot_stands(env: ManagerBasedEnv) -> None:
    """The hand is mounted head down."""
    drawn = Puppet(env.scene)
    sun = drawn.pose(0).light("drawn_sun")
    way = np.array([0.3, 0.2, -1.0]) / np.linalg.norm([0.3, 0.2, -1.0])
    np.testing.assert_allclose(sun.xdir, way, atol=1e-9)
    np.testing.assert_allclose(sun.xpos - drawn.data.xpos[drawn.root], -3.0 * way, atol=1e-9)


@pytest.mark.parametrize(
    ("words", "steps", "frames"),
    [
        (["--video-length", "6"], 6, 3),
        (["--steps", "8", "--video-length", "6"], 8, 3),
        (["--steps", "4", "--video-length", "6"], 4, 2),
        (["--max-steps", "2", "--video-length", "6"], 2, 1),
        (["--steps", "8"], 8, 4),
    ],
)
def test_how_long_a_filmed_run_is(words: list[str], steps: int, frames: int, capfd: Any) -> None:
    assert run(["play", PENDULUM, "--video", "f.mp4", "--video-size", "32x32", *words]) == 0
    out = capfd.readouterr().out
    assert f"{steps} steps × 1 envs" in out
    assert f"{frames} picture" in out
    assert len(read(Path("f.mp4"))[0]) == frames


def test_environments_are_shown_side_by_side(capfd: Any) -> None:
    command = ["play", PENDULUM, "--video", "f.png", "--video-envs", "2", "--video-size", "64x32", "--agent", "random"]
    assert run([*command, "--steps", "60", "--seed", "1"]) == 0
    assert "60 steps × 2 envs" in capfd.readouterr().out
    (picture,), _ = read(Path("f.png"))
    assert picture.shape == (32, 64, 3)
    left, right = picture[:, :32].astype(int), picture[:, 32:].astype(int)
    assert min(left.std(), right.std()) > 10
    assert np.abs(left - right).max() > 30  # two environments, not one twice


def test_a_still_is_of_the_last_step_that_is_filmed() -> None:
    def picture(*words: str) -> np.ndarray:
        command = ["play", PENDULUM, "--video", "f.png", "--video-size", "64x48", "--agent", "random", "--seed", "1"]
        assert run([*command, *words]) == 0
        return read(Path("f.png"))[0][0].astype(int)

    early = picture("--steps", "4")
    assert np.array_equal(early, picture("--steps", "60", "--video-length", "4"))
    assert np.abs(early - picture("--steps", "60")).max() > 30


def test_tiles_fill_the_picture_row_by_row_from_the_top() -> None:
    def corners(count: int) -> list[tuple[int, int, int, int]]:
        return [(tile.left, tile.bottom, tile.width, tile.height) for tile in tile_rectangles(count, (60, 40))]

    assert corners(1) == [(0, 0, 60, 40)]
    assert corners(3) == [(0, 0, 20, 40), (20, 0, 20, 40), (40, 0, 20, 40)]
    assert corners(4) == [(0, 20, 30, 20), (30, 20, 30, 20), (0, 0, 30, 20), (30, 0, 30, 20)]


@pytest.mark.parametrize("env", [PENDULUM], indirect=True)
def test_what_no_tile_covers_is_empty_and_not_black(env: ManagerBasedEnv) -> None:
    drawn = offscreen.Offscreen(Puppet(env.scene), (64, 40), 3)
    picture = drawn.picture()
    drawn.close()
    assert np.abs(picture.astype(int) - [237, 240, 242]).max() <= 1


def test_what_was_filmed_until_ctrl_c_is_kept(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    original = Encoder._write

    def interrupted(self: Encoder, frame: Any) -> None:
        original(self, frame)
        if frame is not None and self._pictures == 2:  # the third is encoded and not counted yet
            raise KeyboardInterrupt

    monkeypatch.setattr(Encoder, "_write", interrupted)
    assert run(["play", PENDULUM, "--video", "f.mp4", "--video-size", "32x32"]) == 130
    assert len(read(Path("f.mp4"))[0]) == 3
    assert capfd.readouterr().err.endswith("genelab: interrupted\n")


@pytest.mark.parametrize("env", [PENDULUM], indirect=True)
def test_memory_stays_flat(env: ManagerBasedEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(puppet, "SAMPLES", 0)  # quick to draw
    film = Film(env, FilmCfg(path=Path("long.mp4"), size=(64, 48)))
    film._offscreen._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0
    action = torch.zeros(2, 1)
    for i in range(4000):  # 2000 pictures
        env.step(action)
        film.after_step()
        if i == 800:
            before = psutil.Process().memory_info().rss
    film.close()
    assert film.frames == 2000
    # All of them together would be 18 MB.
    assert psutil.Process().memory_info().rss - before < 6e6
    assert len(read(Path("long.mp4"))[0]) == 2000


@pytest.mark.parametrize("env", [GO1], indirect=True)
def test_the_camera_follows_a_robot_that_walks(env: ManagerBasedEnv) -> None:
    drawn = Puppet(env.scene)
    camera, still = Camera(drawn, None), Camera(drawn, "fixed")
    assert camera.name == "track"
    drawn.pose(0)
    start, fixed = camera.aim().lookat.copy(), still.aim().lookat.copy()
    qpos = env.scene.engine.qpos[0].numpy().copy()
    qpos[0] += 0.5
    drawn.take(qpos)
    assert camera.aim().lookat - start == pytest.approx([0.05, 0.0, 0.0], abs=1e-6)  # a tenth of the way
    qpos[0] += 5.0
    drawn.take(qpos)
    assert camera.aim().lookat - start == pytest.approx([5.5, 0.0, 0.0], abs=1e-6)  # a reset: all of it
    assert still.aim().lookat == pytest.approx(fixed)


@pytest.mark.parametrize("env", [PENDULUM], indirect=True)
def test_a_robot_that_stays_is_not_followed(env: ManagerBasedEnv) -> None:
    assert Camera(Puppet(env.scene), None).name == "fixed"
    with pytest.raises(UsageError, match=r"no camera is called 'trak'\. Did you mean 'track'"):
        Camera(Puppet(env.scene), "trak")


@pytest.mark.parametrize("env", [GO1], indirect=True)
def test_the_puppet_stands_as_the_engine_says(env: ManagerBasedEnv) -> None:
    drawn, engine = Puppet(env.scene), env.scene.engine
    for _ in range(5):
        env.step(torch.ones(2, env.action_dim))
    for i in (0, 1):
        # Body poses are of the end of the step, as the picture is.
        assert drawn.pose(i).xpos == pytest.approx(engine.body_pos[i].numpy(), abs=1e-5)
    assert drawn.model.nq == engine.model.nq
    assert "sky" not in [texture.name for texture in env.scene.spec.textures]  # the world itself is left alone


@pytest.mark.parametrize("env", [GO1], indirect=True)
def test_arrows_show_what_is_asked_and_what_is_done(env: Any) -> None:
    env.command_manager.term("twist").fix(torch.tensor([[1.0, 0.0, 0.0]]))
    asked, done = marks_of(env, 0, 0.2)
    assert isinstance(asked, Arrow)
    start, end = asked.ends
    heading = float(env.robot.heading_w[0])
    assert end - start == pytest.approx([0.5 * np.cos(heading), 0.5 * np.sin(heading), 0.0], abs=1e-6)
    assert start[2] - float(env.robot.root_pos_w[0, 2]) == pytest.approx(0.3, abs=1e-6)
    assert (asked.rgba, done.rgba) == (ASKED, DONE)


@pytest.mark.parametrize("env", [FRANKA], indirect=True)
def test_a_ball_shows_where_the_cube_should_go(env: Any, tmp_path: Path) -> None:
    goal = env.command_manager.term("goal").command
    (ball,) = marks_of(env, 0, 0.2)
    assert isinstance(ball, Ball)
    assert ball.centre == pytest.approx(goal[0].numpy())
    assert (ball.radius, ball.rgba) == (0.05, GOAL)
    film = Film(env, FilmCfg(path=tmp_path / "still.png", size=(160, 120)))
    pictures = []
    for place in ([0.5, 0.0, 0.2], [0.5, 0.0, -9.0]):  # in sight, and under the ground
        goal[0] = torch.tensor(place)
        pictures.append(film.picture().astype(int))
    film.close()
    greener = (pictures[0] - pictures[1]) @ np.array([-1, 2, -1])
    assert (greener > 20).sum() > 20


def test_training_is_filmed_and_learns_the_same() -> None:
    film = FilmOptions(every=2, length=10, size=(64, 48))
    results = [
        train_task(PENDULUM, num_envs=4, max_iterations=4, seed=3, log_dir=Path(name), film=option)
        for name, option in (("filmed", film), ("alone", None))
    ]
    assert sorted(path.name for path in Path("filmed/videos").iterdir()) == ["iteration_2.mp4", "iteration_4.mp4"]
    assert len(read(Path("filmed/videos/iteration_4.mp4"))[0]) == 5
    assert same(results[0].checkpoint, results[1].checkpoint)
    assert not Path("alone/videos").exists()


def test_a_film_that_fails_does_not_stop_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Encoder, picture: np.ndarray) -> None:
        raise GenelabError("the disk is full")

    monkeypatch.setattr(Encoder, "add", full)
    said: list[str] = []
    film = FilmOptions(every=1, length=2, size=(64, 48))
    result = train_task(
        PENDULUM, num_envs=4, max_iterations=1, seed=3, log_dir=Path("run"), film=film, notify=said.append
    )
    assert result.status == "completed"
    assert said == ["no film of iteration 1: the disk is full"]
    assert list(Path("run/videos").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--video", "f.avi"], "f.avi must end in .mp4, or in .png"),
        (["--video", "no/f.mp4"], "there is no directory no"),
        (["--video", "f.mp4", "--video-size", "65x48"], "both must be even"),
        (["--video", "f.mp4", "--video-size", "big"], "'big' is no size; write it like 1280x720"),
        (["--video", "f.mp4", "--num-envs", "1", "--video-envs", "2"], "there are only 1 environments"),
        (["--video", "f.mp4", "--camera", "front"], "no camera is called 'front'. There are track, fixed."),
        (["--video-length", "3"], "--video-length goes with --video FILE"),
    ],
)
def test_a_film_that_cannot_be_made_is_refused_in_a_line(words: list[str], answer: str, capfd: Any) -> None:
    assert run(["play", PENDULUM, "--steps", "2", *words]) == 2
    err = capfd.readouterr().err
    assert answer in err
    assert err.count("\n") == 1


def test_train_takes_the_details_only_with_an_interval(capfd: Any) -> None:
    assert run(["train", PENDULUM, "--video-length", "3"]) == 2
    assert "--video-length goes with --video-interval K" in capfd.readouterr().err


def test_without_a_renderer_a_line_names_the_package(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    tried = []

    def missing(name: str) -> Any:
        if name.startswith("mujoco."):
            tried.append(name)
            raise OSError("libEGL.so.1: cannot open shared object file")
        return importlib_import(name)

    importlib_import = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", missing)
    monkeypatch.setattr(offscreen, "_forget_opengl", lambda: None)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    assert run(["play", PENDULUM, "--video", "f.mp4", "--steps", "2"]) == 1
    assert "apt-get install libegl1 libegl-mesa0 libopengl0" in capfd.readouterr().err
    assert tried == ["mujoco.egl", "mujoco.osmesa"]


def test_osmesa_draws_too() -> None:
    if ctypes.util.find_library("OSMesa") is None:
        lacking("no OSMesa: apt-get install libosmesa6")
    genelab = str(Path(sys.executable).with_name("genelab"))
    command = [genelab, "play", PENDULUM, "--video", "f.png", "--steps", "2", "--video-size", "64x48"]
    subprocess.run(command, env={**os.environ, "MUJOCO_GL": "osmesa"}, check=True, timeout=120)
    assert read(Path("f.png"))[0].std() > 10


def test_without_an_encoder_a_line_names_the_extra(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    assert run(["play", PENDULUM, "--video", "f.mp4", "--steps", "2"]) == 2
    assert "pip install 'genelab[video]'" in capfd.readouterr().err


def test_a_size_is_two_even_numbers() -> None:
    assert parse_size("1280x720") == (1280, 720)
    assert parse_size("64X48") == (64, 48)
