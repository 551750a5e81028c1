"""The policies that come with the tasks solve them, on the engine they were trained on and on the other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from genelab.cli.main import run

SINGLE, DOUBLE = "GeneLab-Inverted-Pendulum-v0", "GeneLab-Double-Inverted-Pendulum-v0"
SOLVED = {SINGLE: 39.5, DOUBLE: 59.0}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("task", SOLVED)
def test_on_mujoco(task: str) -> None:
    assert run(["eval", task, "pretrained", "--num-envs", "8", "--episodes", "8"]) == 0
    report = json.loads(Path("eval.json").read_text())
    assert report["checkpoint"] == "pretrained"  # and not where this machine keeps it
    assert report["metrics"]["return_mean"] >= SOLVED[task]


@pytest.mark.genesis
@pytest.mark.xdist_group("genesis")
@pytest.mark.parametrize("task", SOLVED)
def test_trained_on_mujoco_judged_on_all_engines(
    task: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")  # for a table of three engines without broken lines
    words = ["--engine", "all", "--num-envs", "4", "--episodes", "4", "env.simulation.precision=64"]
    assert run(["eval", task, "pretrained", *words]) == 0
    report = json.loads(Path("eval.json").read_text())
    assert {name: one["engine"] for name, one in report["engines"].items()} == {
        "mujoco": "mujoco",
        "genesis": "genesis",
        "warp": "warp",
    }
    for one in report["engines"].values():
        assert one["metrics"]["return_mean"] >= SOLVED[task]
    for difference in report["differences"].values():
        assert difference["return_mean"] == pytest.approx(0.0, abs=0.01)
    assert re.search(r"return\s+(│ \d\d\.\d+ ± \d.\d+\s+){3}(│ [+-]0.00\d\s+){2}", capfd.readouterr().out)


def test_play_takes_the_shipped_policy(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--agent", "trained", "--num-envs", "2", "--steps", "1000", "--headless", "--seed", "0"]
    assert run(["play", SINGLE, *words]) == 0
    shipped = capfd.readouterr().out
    assert "2 episodes ended: return 40.000" in shipped
    assert run(["play", SINGLE, "--checkpoint", "pretrained", *words[2:]]) == 0
    assert capfd.readouterr().out.splitlines()[1] == shipped.splitlines()[1]


def test_a_task_without_one_says_what_to_pass(capfd: pytest.CaptureFixture[str]) -> None:
    memory = "GeneLab-Inverted-Pendulum-Memory-Rnn-v0"
    assert run(["play", memory, "--agent", "trained"]) == 2
    assert "--agent trained needs a policy: pass --checkpoint FILE, a run directory" in capfd.readouterr().err
    assert run(["play", memory, "--checkpoint", "pretrained"]) == 2
    line = capfd.readouterr().err
    assert f"{memory} has no pretrained policy; these have: " in line
    assert all(task in line for task in SOLVED)
    assert run(["play", memory, "--best"]) == 2
    assert "--best chooses among the checkpoints of a run: pass --checkpoint RUN_DIR" in capfd.readouterr().err
