"""The policy that comes with the task brings cubes to their goals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from genelab.cli.main import run
from genelab.rl.locate import pretrained_policy

TASK = "GeneLab-Franka-Pick-And-Place-v0"
PRECISE = "env.simulation.precision=64"  # for which the other tests have compiled the kernels


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_succeeds(capfd: pytest.CaptureFixture[str]) -> None:
    path = pretrained_policy(TASK)
    assert path is not None
    assert path.stat().st_size < 2_000_000
    assert run(["eval", TASK, "pretrained", "--num-envs", "64", "--episodes", "64", "--seed", "7"]) == 0
    metrics = json.loads(Path("eval.json").read_text())["metrics"]
    assert metrics["success_rate"] >= 0.9
    assert "success" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("env.actions.hand.scale=0.2", "scale 0.05, here 0.2: pass --env.actions.hand.scale=0.05"),
        ("env.actions.hand.compensate_gravity=false", "pass --env.actions.hand.compensate_gravity=true"),
        ("env.actions.hand.point=[0,0,0]", "pass '--env.actions.hand.point=[0, 0, 0.1034]'"),
        ("env.actions.gripper.speed=1.0", "speed 0.1, here 1: pass --env.actions.gripper.speed=0.1"),
        ("env.actions.gripper.joint_names=[finger_joint1]", "joint_names ['finger_joint1', 'finger_joint2'] of the"),
    ],
)
def test_actions_that_do_something_else_are_refused(
    override: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["eval", TASK, "pretrained", "--num-envs", "1", "--episodes", "1", f"--{override}"]) == 2
    err = capfd.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.genesis
@pytest.mark.xdist_group("genesis")
def test_it_succeeds_on_the_engine_it_has_never_seen() -> None:
    assert run(["eval", TASK, "pretrained", "--engine", "genesis", "--num-envs", "8", "--episodes", "8", PRECISE]) == 0
    assert json.loads(Path("eval.json").read_text())["metrics"]["success_rate"] >= 0.85
