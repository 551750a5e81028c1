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


@pytest.mark.genesis
@pytest.mark.xdist_group("genesis")
def test_it_succeeds_on_the_engine_it_has_never_seen() -> None:
    assert run(["eval", TASK, "pretrained", "--engine", "genesis", "--num-envs", "8", "--episodes", "8", PRECISE]) == 0
    assert json.loads(Path("eval.json").read_text())["metrics"]["success_rate"] >= 0.85
