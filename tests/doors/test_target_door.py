"""A target from a file outside the package is exported for like ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from genelab.cli.main import run
from genelab.errors import ConfigError
from genelab.rl.targets import TARGETS

TASK = "GeneLab-Inverted-Pendulum-v0"
FILE = str(Path(__file__).with_name("toy_target.py"))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def export(*words: str, task: str = TASK) -> int:
    return run(["export", task, "pretrained", "--import", FILE, "--for", "toy", *words])


def test_it_writes_its_files_and_says_what_to_do(capfd: pytest.CaptureFixture[str]) -> None:
    assert export("--out", "there", "--with", "copies=2") == 0
    out = capfd.readouterr().out
    assert out.startswith(f"{TASK}: rsl_rl PPO from ")
    assert out.endswith("give there to the toy\n")
    files = sorted(str(path.relative_to("there")) for path in Path("there").rglob("*") if path.is_file())
    assert files == ["policy.onnx", "robot/joints.txt"]
    assert Path("there/robot/joints.txt").read_text().split() == ["cart", "cart"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--with", "copys=2"], "toy has no setting 'copys'. Did you mean 'copies'? It has copies."),
        (["--with", "copies=two"], "copies of toy: 'two' is not a whole number"),
        (["--with", "copies"], "--with: 'copies' is not NAME=VALUE"),
        (["--opset", "17"], "--opset: what is written for toy is decided by --for"),
        (["--out", "policy.onnx"], "--out: policy.onnx is the name of a file; give a directory"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert export(*words) == 2
    assert capfd.readouterr().err == f"genelab: {message}\n"
    assert not list(Path().iterdir())


def test_the_help_tells_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["export", "--import", FILE, "--help"]) == 0
    out = capfd.readouterr().out
    assert "toy      joints by name [copies=1]" in out
    assert "unitree  Unitree's C++ controllers [motor_order=]" in out


def test_what_it_cannot_express_is_refused_and_nothing_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    assert export(task="Genelab-Velocity-Flat-Unitree-Go2W-v0") == 2
    assert "toy reads one frame, but the group 'policy' has 5" in capfd.readouterr().err
    assert not list(Path().iterdir())


def test_a_name_belongs_to_one_class() -> None:
    with pytest.raises(ConfigError, match=r"target 'mujoco' from .* is registered again by 'other:Class'"):
        TARGETS.register("mujoco", "other:Class")
