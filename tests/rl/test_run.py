"""`run.py` drives an exported policy from its metadata alone, where neither genelab nor torch is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.deployed import alone, returns
from genelab.cli.main import run as genelab
from genelab.rl import export_for
from genelab.rl.targets import run

pytestmark = pytest.mark.xdist_group("run.py")

PENDULUM = "GeneLab-Inverted-Pendulum-v0"
FRANKA = "GeneLab-Franka-Pick-And-Place-v0"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("folders")
    for task in (PENDULUM, FRANKA):
        export_for("mujoco", task, "pretrained", out=home / task)
    return {task: home / task for task in (PENDULUM, FRANKA)}


def test_a_pendulum_earns_outside_what_it_earns_here(folders: dict[str, Path], tmp_path: Path) -> None:
    answer = alone(folders[PENDULUM], "--episodes", "4", "--log", str(tmp_path / "log.npz"))
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "golden rows: 16 of 16 agree\n" in answer.stdout
    assert answer.stdout.endswith("4 episodes of 10.00 s; ends: 4 × time_out\n")
    with np.load(tmp_path / "log.npz") as log:
        earned = returns(PENDULUM, {key: log[key] for key in log.files})
    assert earned.shape == (4,)
    assert earned.min() > 39.9


def test_an_arm_places_cubes_by_the_kinematics_of_its_metadata(folders: dict[str, Path], tmp_path: Path) -> None:
    answer = alone(folders[FRANKA], "--episodes", "3", "--report", str(tmp_path / "report.json"))
    assert (answer.returncode, answer.stderr) == (0, "")
    assert json.loads((tmp_path / "report.json").read_text())["success_rate"] == 1.0


def changed(folder: Path, out: Path, change: Any) -> Path:
    """A copy of an export whose metadata somebody changed."""
    shutil.copytree(folder, out)
    (out / "manifest.json").unlink()  # it would find every change first
    path = out / "policy.onnx.metadata.json"
    about = json.loads(path.read_text())
    change(about)
    path.write_text(json.dumps(about))
    return out


def _golden(about: dict[str, Any]) -> None:
    about["golden"]["actions"][5][0] += 0.01


def _source(about: dict[str, Any]) -> None:
    about["obs_groups"]["policy"]["terms"][2]["source"] = None


def _sensor(about: dict[str, Any]) -> None:
    about["obs_groups"]["policy"]["terms"][2]["source"]["kind"] = "sonar"


def _action(about: dict[str, Any]) -> None:
    about["actions"][0]["type"] = "Magic"


def _width(about: dict[str, Any]) -> None:
    about["obs_dim"] = 9


def _old(about: dict[str, Any]) -> None:
    del about["golden"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_golden, "the policy does not repeat golden row 5: its actions differ by 0.01, more than 0.0001"),
        (_source, "the metadata do not tell how the observation 'pole_ang_vel' is made"),
        (_sensor, "no sensor is known for 'sonar': add it to read_sensors"),
        (_action, "the action Magic is not known here: target = offset + scale * clipped action"),
        (_width, "takes 8 observations, its metadata say 9"),
        (_old, "the metadata are of an older export: export it again"),
    ],
)
def test_what_cannot_be_trusted_is_refused_in_one_line(
    change: Any, message: str, folders: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = changed(folders[PENDULUM], tmp_path / "changed", change)
    assert genelab(["deploy", str(folder), "--episodes", "1"]) == 2
    err = capfd.readouterr().err
    assert message in err
    assert err.startswith("genelab deploy: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--directions"], "there is no velocity to command: leave --directions away"),
        (["--command", "1"], "there is no velocity to command"),
        (["--bogus"], "unrecognized arguments: --bogus; genelab deploy --help tells more"),
    ],
)
def test_what_makes_no_sense_is_refused(
    words: list[str], message: str, folders: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert genelab(["deploy", str(folders[PENDULUM]), *words]) == 2
    assert capfd.readouterr().err == f"genelab deploy: {message}\n"


def test_a_folder_that_is_none_says_how_to_make_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert genelab(["deploy", str(tmp_path)]) == 2
    assert (
        "has no policy.onnx and no policy.onnx.metadata.json and no world.xml: genelab export" in capfd.readouterr().err
    )


def test_a_window_without_a_display_is_refused_in_one_line(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    folder = next(iter(folders.values()))
    assert genelab(["deploy", str(folder), "--window"]) == 2
    assert capfd.readouterr().err == "genelab deploy: a window needs a display, and there is none here\n"


def test_a_script_is_commands_with_seconds() -> None:
    assert run.parse_script("0.5 0 0: 5, 0 0 1: 2.5") == [([0.5, 0.0, 0.0], 5.0), ([0.0, 0.0, 1.0], 2.5)]
    with pytest.raises(run.Refused, match="the script 'fast' is not like"):
        run.parse_script("fast")


def test_a_dc_motor_gives_less_the_faster_it_turns() -> None:
    """Stall torque 10 N·m, no-load speed 20 rad/s, at most 8 N·m: at 10 rad/s 5 are left to drive, and all to brake."""
    drive = run.Drive.__new__(run.Drive)
    drive.kind, drive.entity, drive.names, drive.ctrl = "DcMotorActuatorCfg", "robot", ["joint"], [0]
    drive.stiffness, drive.damping = np.array([100.0]), np.array([0.0])
    drive.limit, drive.stall, drive.speed = np.array([8.0]), np.array([10.0]), np.array([20.0])
    drive.vel, drive.effort = np.zeros(1), np.zeros(1)

    class Robot:
        class data:
            ctrl = np.zeros(1)

        def joints(self, entity: str, names: list[str], what: str) -> np.ndarray:
            return np.array([0.0]) if what == "pos" else np.array([10.0])

    drive.robot = Robot()  # type: ignore[assignment]
    for target, torque in ((1.0, 5.0), (0.03, 3.0), (-1.0, -8.0)):
        drive.pos = np.array([target])
        drive.act()
        assert drive.robot.data.ctrl == pytest.approx([torque])
