"""What `genelab eval` prints and writes, and how the verbs are told of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from genelab.cli.eval import _kinds_table
from genelab.cli.main import run
from genelab.report.runs import read_run

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
