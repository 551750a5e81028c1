"""The page of reference runs says what the files say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import reference
from genelab.errors import UsageError

TASK = "GeneLab-Inverted-Pendulum-v0"


def evaluation(mean: float, **more: Any) -> dict[str, Any]:
    metrics = {"return_mean": mean, "return_std": 0.5, "length_mean": 1000.0, "success_rate": None}
    return {"metrics": metrics, "num_episodes": 100, "engine": "mujoco", "wall_clock_seconds": 12.34, **more}


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def section(page: str, task: str = TASK) -> list[str]:
    """The lines of a task's table and what follows it."""
    return page.split(f"### {task}\n")[1].split("\n#")[0].strip().splitlines()


def test_the_page_is_what_the_files_say() -> None:
    page = (reference.ROOT / reference.PAGE).read_text(encoding="utf-8")
    assert page == reference.render(), "write it again: python -m benchmarks.reference"


WALKING, ITS_README = "docs/walking.md", "{policy}/README.md"
RESULTS = [
    ("GeneLab-Inverted-Pendulum-v0", "{:.3f}", ["docs/pendulums.md"]),
    ("GeneLab-Double-Inverted-Pendulum-v0", "{:.3f}", ["docs/pendulums.md"]),
    ("GeneLab-Franka-Pick-And-Place-v0", "{:.1f}", [ITS_README, "docs/manipulation.md"]),
    ("Genelab-Tracking-Flat-Unitree-G1-v0", "{:.1f}", [ITS_README, "docs/tracking.md", "README.md"]),
    ("Genelab-Tracking-Flat-Unitree-G1-No-State-Estimation-v0", "{:.1f}", [ITS_README, "docs/tracking.md"]),
    ("Genelab-Velocity-Flat-Unitree-Go1-v0", "{:.1f} ± {:.1f}", [ITS_README, WALKING, "README.md"]),
    ("Genelab-Velocity-Rough-Unitree-Go1-v0", "{:.1f} ± {:.1f}", [ITS_README, WALKING]),
    ("Genelab-Velocity-Flat-Unitree-G1-v0", "{:.1f} ± {:.1f}", [ITS_README, WALKING, "README.md"]),
    ("Genelab-Velocity-Rough-Unitree-G1-v0", "{:.1f} ± {:.1f}", [ITS_README, WALKING, "README.md"]),
    ("Genelab-Velocity-Flat-Unitree-Go2W-CrabStage1-v0", "{:.1f} ± {:.1f}", [ITS_README, WALKING]),
    ("Genelab-Velocity-Flat-Unitree-Go2W-v0", "{:.1f} ± {:.1f}", [ITS_README, WALKING, "README.md"]),
]
"""Where the return of a policy that ships is written by hand, and how."""


@pytest.mark.parametrize(("task", "style", "pages"), RESULTS)
def test_what_is_written_by_hand_is_what_the_evaluation_found(task: str, style: str, pages: list[str]) -> None:
    (policy,) = reference.ROOT.glob(f"src/*/pretrained/{task}")
    metrics = json.loads((policy / "eval.json").read_text())["metrics"]
    low, high = metrics["return_ci95"] or (metrics["return_mean"],) * 2  # no interval where all episodes are the same
    text = style.format(metrics["return_mean"], (high - low) / 2).replace("-", "−")
    for page in pages:
        path = page.format(policy=policy.relative_to(reference.ROOT))
        assert text in (reference.ROOT / path).read_text(encoding="utf-8"), f"{path} does not say {text}"


def test_every_policy_that_ships_is_held_to_what_pages_say() -> None:
    assert {task for task, _, _ in RESULTS} == {path.name for path in reference.ROOT.glob("src/*/pretrained/*")}


def test_runs_and_published_numbers_stand_in_one_table(tmp_path: Path) -> None:
    home = tmp_path / "reference" / TASK / "2026-01-02"
    published: dict[str, Any] = {
        "seed": 1,
        "return": 39.977,
        "std": 0.002,
        "length": 1000,
        "budget": "150",
        "success": None,
    }
    write(
        tmp_path / "reference" / "published.json",
        {"tasks": {TASK: {"runs": [published | {k: k for k in ("train", "eval", "hardware")}]}}},
    )
    write(
        home / "seed_2" / "eval.json", evaluation(39.5, versions={"genelab": "0.1.0"}, evaluated_at="2026-01-02T03:04")
    )
    record: dict[str, Any] = {"budget": 20, "unit": "iterations", "num_envs": 256, "wall_seconds": 12.0, "seed": 2}
    record |= {
        "hardware": {"cpu": "EPYC", "cores": 2, "gpus": []},
        "overrides": ["env.simulation.threads=1"],
        "versions": {"genelab": "0.0.9", "numpy": "2.0"},
        "command": "genelab train T --eval-every=2 --seed 2",
    }
    write(home / "seed_2" / "run.json", record)
    curve = [{"return_mean": value, "spent": 2 * i} for i, value in enumerate([5.0, 39.6, 20.0, 39.4, 39.7], start=1)]
    write(home / "seed_2" / "evaluations.json", curve)
    write(home / "seed_10" / "eval.json", "no JSON at all")
    lines = section(reference.render(tmp_path))
    assert (
        lines[2] == "| 2 | 39.500 | 0.500 | 1000.0 | | 20 iterations × 256 | 8 | 12 s | 12.3 s | 2 × EPYC, 1 thread |"
    )
    assert lines[3:6] == ["| 10 | | | | | | | | | |", "| 1 | | | | | | | | | |", "| 3 | | | | | | | | | |"]
    assert lines[6] == "| published, 1 | 39.977 | 0.002 | 1000.0 | | 150 | | train | eval | hardware |"
    command = "`genelab train T --eval-every=2 --seed S` with genelab 0.0.9"
    assert lines[8] == f"- seed 2: {command}; 100 episodes on mujoco on 2026-01-02 with genelab 0.1.0"


def test_a_policy_that_was_judged_twice_has_two_rows(tmp_path: Path) -> None:
    home = tmp_path / "reference" / TASK / "2026-01-02" / "seed_1"
    write(home / "eval.json", evaluation(39.5, num_envs=64))
    write(home / "eval-a-low-ceiling.json", evaluation(30.0, num_envs=8, overrides=["env.x=1"]))
    write(
        home / "run.json",
        {
            "git": {"commit": "ofwhereitwasstarted", "dirty": False},
            "genelab_git": {"commit": "0123456789abcdef", "dirty": True},
            "command": "genelab train T --seed 1",
        },
    )
    page = reference.render(tmp_path)
    lines = section(page)
    assert lines[2].startswith("| 1 | 39.500 |")
    assert lines[3].startswith("| 1, a low ceiling* | 30.000 |")
    command = "`genelab train T --seed S` at commit 0123456 (with uncommitted changes)"
    assert lines[7] == f"- seed 1: {command}; 100 episodes on mujoco on ?"
    assert lines[8] == f"- seed 1 on a low ceiling: {command}; 100 episodes on mujoco on ?, `--num-envs 8` `env.x=1`"
    assert f"| [{TASK}](#{TASK.lower()}) | 1 | 39.50 | |" in page, "the overview is of what all were judged by"


def test_a_run_with_a_note_is_marked_and_left_out_of_the_overview(tmp_path: Path) -> None:
    home = tmp_path / "reference" / TASK / "2026-01-02"
    write(home / "seed_1" / "eval.json", evaluation(39.5))
    write(home / "seed_2" / "eval.json", evaluation(54.0))
    write(home / "seed_2" / "note.txt", "Judged by an easier reward;\nthe weights are gone.\n")
    page = reference.render(tmp_path)
    lines = section(page)
    assert lines[2].startswith("| 1 | 39.500 |")
    assert lines[3].startswith("| 2† | 54.000 |")
    assert any(line.endswith("**Judged by an easier reward; the weights are gone.**") for line in lines)
    assert f"| [{TASK}](#{TASK.lower()}) | 1 | 39.50 | |" in page


def test_a_run_whose_policy_ships_has_one_row(tmp_path: Path) -> None:
    shipped = tmp_path / "src" / "genelab_x" / "pretrained" / TASK
    write(shipped / "eval.json", evaluation(39.5))
    write(shipped / "params" / "agent.json", {"seed": 1, "max_iterations": 20})
    for seed in (1, 2):
        home = tmp_path / "reference" / TASK / "2026-01-02" / f"seed_{seed}"
        write(home / "eval.json", evaluation(39.5))
        write(home / "run.json", {"wall_seconds": 12.0 + seed, "command": f"genelab train T --seed {seed}"})
    lines = section(reference.render(tmp_path))
    assert lines[2] == "| 1, shipped | 39.500 | 0.500 | 1000.0 | | 20 iterations | | 13 s | 12.3 s | |"
    assert lines[3] == "| 2 | 39.500 | 0.500 | 1000.0 | | | | 14 s | 12.3 s | |"
    assert lines[6].startswith("- the shipped policy, seed 2: `genelab train T --seed S`;")


def test_the_protocol_of_the_page_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (reference.ROOT / reference.PAGE).read_text(encoding="utf-8")
    script = text.split("## How to make them again")[1].split("```sh\n")[1].split("```")[0]
    bin_ = Path(sys.executable).parent
    for word, here in (
        ("genelab train TASK", f"{bin_}/genelab train TASK --max-iterations 2 --num-envs 8 --eval-episodes 2"),
        ("genelab eval TASK", f"{bin_}/genelab eval TASK --env.episode_length_s 0.2"),
        ("--eval-every K", "--eval-every 1"),
        ("python -m benchmarks.reference", f"{bin_}/python -m benchmarks.reference --root ."),
        ("TASK", TASK),
        ("DATE", "2026-01-02"),
    ):
        assert word in script
        script = script.replace(word, here)
    environment = {**os.environ, "PYTHONPATH": str(reference.ROOT)}
    subprocess.run(["bash", "-euc", script], cwd=tmp_path, env=environment, check=True)
    rows = section((tmp_path / reference.PAGE).read_text(encoding="utf-8"))[2:5]
    for seed, row in enumerate(rows, start=1):
        assert re.match(rf"\| {seed}\* \| \d\.\d+ \| \d\.\d+ \| 20\.0 \| \| 2 iterations × 8 \| \d \| \d+ s \|", row), (
            row
        )


def test_nothing_at_all_is_empty_cells(tmp_path: Path) -> None:
    lines = section(reference.render(tmp_path))
    assert lines[2:] == [f"| {seed} | | | | | | | | | |" for seed in (1, 2, 3)]
    assert "## Probes" not in reference.render(tmp_path)


def test_probes_and_metrics_have_tables(tmp_path: Path) -> None:
    directions = {"forward": {"fraction": 0.975, "falls": 0}, "stand": {"achieved": 0.0012, "falls": 1}}
    probe = {"envs_per_direction": 64, "falls": 1, "directions": directions}
    file = tmp_path / "src" / "genelab_x" / "pretrained" / "Genelab-Velocity-Flat-Unitree-Go1-v0" / "eval.json"
    write(file, {"engines": {"mujoco": evaluation(50, velocity_probe=probe, task_metrics={"error": 0.12345})}})
    page = reference.render(tmp_path)
    assert "| Velocity-Flat-Unitree-Go1 | , shipped | 98 % | | | | | | | | 0.001 | 1 of 128 copies |" in page
    assert "| Velocity-Flat-Unitree-Go1 | , shipped | error | 0.1235 |" in page
    write(file, evaluation(50, velocity_probe={**probe, "trials": 97}, observation_noise=True))
    page = reference.render(tmp_path)
    assert "| 0.001 | 1 of 128, 97 trials |" in page
    assert "`--published-noise`" in page
    assert "| Tracking-Flat-Unitree-G1 | | | |" in page
    assert "Probes of the trackers" not in page
    clips = {"dance": {"robots": 64, "reached_end": 63, "mpkpe": 0.06688, "joint_vel": None}}
    path = tmp_path / "src" / "genelab_x" / "pretrained" / "Genelab-Tracking-Flat-Unitree-G1-v0" / "eval.json"
    write(path, evaluation(143, motion_probe={"clips": clips}))
    page = reference.render(tmp_path)
    assert "| Tracking-Flat-Unitree-G1 | , shipped | dance | 63 of 64 | 0.06688 | | | | |" in page


def test_what_is_kept_of_a_run_names_no_machine(tmp_path: Path) -> None:
    source = tmp_path / "logs" / TASK / "2026-01-02"
    words = "--eval-every=2 --agent.demo_path=/home/me/d.npz --env.simulation.threads=1 --seed 1 --log-dir /home/me/x"
    command = f"/home/me/venv/genelab/cli/main.py train {TASK} {words}"
    git = {"commit": "0123456", "branch": "mine", "dirty": False}
    record = {"task": TASK, "seed": 1, "pid": 7, "host": "mine", "command": command, "git": git}
    write(source / "seed_1" / "run.json", record)
    write(source / "seed_1" / "eval.json", evaluation(1.0, checkpoint="/home/me/x/seed_1/model_final.pt"))
    write(source / "seed_1" / "model_final.pt", "weights")
    (kept,) = reference.collect(source, tmp_path)
    assert kept == tmp_path / "reference" / TASK / "2026-01-02" / "seed_1"
    assert sorted(path.name for path in kept.iterdir()) == ["eval.json", "run.json"]
    kept_words = "--eval-every=2 --agent.demo_path=d.npz --env.simulation.threads=1 --seed 1"
    assert json.loads((kept / "run.json").read_text())["command"] == f"genelab train {TASK} {kept_words}"
    assert json.loads((kept / "run.json").read_text())["git"] == {"commit": "0123456", "dirty": False}
    assert "me" not in "".join(path.read_text() for path in kept.iterdir()).replace("metrics", "").replace("mean", "")
    with pytest.raises(UsageError, match=r"has no seed_<S>/run\.json"):
        reference.collect(tmp_path, tmp_path)


def test_a_page_is_written_where_runs_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main(["--root", str(tmp_path)]) == 2
    assert "has no directory `reference`" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
