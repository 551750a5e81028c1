"""What `genelab eval` prints and writes, and how the verbs are told of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from genelab.cli.eval import _kinds_table, _print_falls, _probe_table
from genelab.cli.main import run
from genelab.report.runs import read_run
from genelab.statistics import share_interval

TASK = "GeneLab-Inverted-Pendulum-v0"
SHORT = ("--env.episode_length_s", "0.1")


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of one iteration, in the working directory."""
    monkeypatch.chdir(tmp_path)
    words = ["--num-envs", "2", "--max-iterations", "1", "-q", "--no-final-eval", "--log-dir", "run"]
    assert run(["train", TASK, *words, *SHORT]) == 0
    return Path("run")


def test_a_report_goes_where_the_page_of_the_run_looks_for_it(trained: Path) -> None:
    few = ("--episodes", "2", *SHORT)
    assert run(["eval", TASK, "run", *few]) == 0
    (found,) = read_run(trained).evaluations
    assert found["metrics"] == json.loads((trained / "eval.json").read_text())["metrics"]
    (trained / "eval.json").unlink()
    assert run(["eval", TASK, "run/model_final.pt", *few]) == 0
    assert (trained / "eval.json").exists()
    assert not Path("eval.json").exists()
    (trained / "model_final.pt").rename("alone.pt")
    assert run(["eval", TASK, "alone.pt", *few]) == 0
    assert json.loads(Path("eval.json").read_text())["checkpoint"] == "alone.pt"


def test_a_checkpoint_is_an_argument_or_an_option_of_every_verb(
    trained: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    few = ["--num-envs", "2", "--num-steps", "2", "--warmup-steps", "1", "--formatter", "summary"]
    verbs = {
        "eval": ["--episodes", "2", "--out", "eval.json", *SHORT],
        "export": ["--out", "policy.ts"],
        "play": ["--steps", "2"],
        "benchmark play": few,
    }
    for verb, words in verbs.items():
        assert run([*verb.split(), TASK, "run", *words]) == 0, verb
        assert run([*verb.split(), TASK, "--checkpoint", "run", *words]) == 0, verb
        capfd.readouterr()
        assert run([*verb.split(), TASK, "run", "--checkpoint", "run", *words]) == 2, verb
        assert "CKPT and --checkpoint are the same" in capfd.readouterr().err
    for verb in ("eval", "export"):
        assert run([verb, TASK]) == 2
        assert "Missing argument 'CKPT'" in capfd.readouterr().err


def direction(fraction: float | None, falls: int = 0, achieved: float = 0.5) -> dict[str, Any]:
    return {"fraction": fraction, "achieved": achieved, "falls": falls}


def test_the_table_by_kind_of_ground_fits_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("stairs_up", "stairs_down", "boxes", "rubble", "slope_up", "slope_down")
    kinds = {name: {"slow turn right": direction(0.97), "stand": direction(None, achieved=0.08)} for name in names}
    kinds["boxes"]["slow turn right"] = direction(0.5, falls=3)
    probe = {"envs_per_direction": 72, "levels": 6, "directions": kinds["boxes"], "kinds": kinds}
    Console(width=80).print(_kinds_table("mujoco", {"velocity_probe": probe}))
    title, _, head, _, turn, stand, *_ = capsys.readouterr().out.splitlines()
    assert title.strip() == "by kind of ground, 12 robots each on levels 0 to 5, mujoco; ×N: N of them fell"
    assert head.split() == ["direction", *names]
    assert turn.split() == ["slow", "turn", "right", "97%", "97%", "50%", "×3", "97%", "97%", "97%"]
    assert stand.split() == ["stand", *["0.080"] * 6]


def test_the_table_of_a_probe_shows_errors_and_drift_and_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    turned = {"command": (0.0, 1.0, 0.0), "error": (0.09, 0.131, 0.13), "heading_drift": -74.5, **direction(0.87)}
    stand = {"command": (0.0, 0.0, 0.0), "error": (0.0, 0.0, 0.01), "heading_drift": 0.2, **direction(None, 3, 0.08)}
    directions = {"slow turn right": turned, "stand": stand}
    probe = {"envs_per_direction": 64, "seconds": 10.0, "directions": directions}
    Console(width=80).print(_probe_table({"mujoco": {"velocity_probe": probe}}))
    *_, first, second, _ = capsys.readouterr().out.splitlines()
    assert first.split() == ["slow", "turn", "right", "0", "1", "0", "87%", "0.09", "0.13", "0.13", "-74°"]
    assert second.split() == ["stand", "0", "0", "0", "0.080", "0.00", "0.00", "0.01", "+0°", "3"]


def test_falls_are_told_of_different_trials(capsys: pytest.CaptureFixture[str]) -> None:
    """None of 576 fell, and the 64 robots of each of nine directions did the same."""
    low, high = share_interval(0, 9)
    _print_falls("mujoco", {"robots": 576, "trials": 9, "falls": 0, "falls_ci95": (low, high)})
    told = "0 of 576 robots fell, in 9 different trials (567 did as another one): 95 % interval 0.0 to 29.9 %"
    assert capsys.readouterr().out == f"mujoco: {told}\n"
