"""`genelab info TASK --terrain FILE`."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from genelab.cli.main import run

MODULE = """
from genelab import TASKS, TaskCfg

def task():
    from genelab.envs import ManagerBasedEnvCfg
    from genelab.scene import RigidObjectCfg, SceneCfg, TerrainGeneratorCfg, mjcf_text
    from genelab.scene.terrains import BoxesCfg, PyramidStairsCfg
    ball = "<mujoco><worldbody><body><freejoint/><geom size='.1'/></body></worldbody></mujoco>"
    ground = TerrainGeneratorCfg(
        sub_terrains={"stairs": PyramidStairsCfg(step_height=(0.1, 0.2)), "boxes": BoxesCfg(height=(0.1, 0.2))},
        rows=2, columns=2, horizontal_scale=0.2,
    )
    scene = SceneCfg(entities={"ball": RigidObjectCfg(spec=mjcf_text, spec_args={"xml": ball})}, terrain=ground)
    return TaskCfg(env=ManagerBasedEnvCfg(scene=scene))

TASKS.register("Test-Hills-v0", task)
"""
PENDULUM = "GeneLab-Inverted-Pendulum-v0"


@pytest.fixture(scope="module")
def hills(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    module = tmp_path_factory.mktemp("tasks") / "test_hills.py"
    module.write_text(MODULE)
    return ["info", "Test-Hills-v0", "--import", str(module)]


def test_the_ground_is_drawn(hills: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pictures" / "ground.png"
    assert run([*hills, "--terrain", str(file)]) == 0
    assert f"ground drawn into {file}" in capfd.readouterr().out
    data = file.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert width > 800
    assert height > 600
    red, green, blue = np.round(255 * matplotlib.image.imread(file)[..., :3]).astype(int).transpose(2, 0, 1)
    colours, counts = np.unique(red << 16 | green << 8 | blue, return_counts=True)
    assert len(colours) > 1000
    assert counts.max() < 0.8 * width * height
    assert ((red > 200) & (green < 80) & (blue < 80)).sum() > 4 * 5  # a dot in each of the four cells


def test_it_follows_overrides(hills: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "a.png", tmp_path / "b.png", tmp_path / "c.png"]
    for file, seed in zip(files, ("0", "1", "0"), strict=True):
        assert run([*hills, "--terrain", str(file), f"env.scene.terrain.seed={seed}"]) == 0
    a, b, c = (file.read_bytes() for file in files)
    assert a == c
    assert a != b


def test_a_plane_is_not_drawn(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ground.png"
    assert run(["info", PENDULUM, "--terrain", str(file)]) == 2
    error = capfd.readouterr().err.strip()
    assert error == f"genelab: --terrain: {PENDULUM} has no relief to draw: its ground is a plane"
    assert not file.exists()


def test_without_matplotlib_it_names_the_extra(
    hills: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run([*hills, "--terrain", str(tmp_path / "ground.png")]) == 2
    assert "a picture of the ground needs matplotlib: pip install 'genelab[plot]'" in capfd.readouterr().err


def test_an_unwritable_picture_is_refused(hills: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run([*hills, "--terrain", "/proc/nowhere/ground.png"]) == 2
    assert "--terrain: cannot write /proc/nowhere/ground.png" in capfd.readouterr().err
