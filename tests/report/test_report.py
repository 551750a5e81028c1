"""Reports of runs: what is in them, to the number."""

from __future__ import annotations

import base64
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.tensorboard import SummaryWriter

from genelab.cli.main import run
from genelab.errors import UsageError
from genelab.report import write_report
from genelab.report.curves import band, draw_curves, last_share, thin
from genelab.report.runs import read_groups, read_run
from genelab.report.tables import difference_table, evaluation_table, machine_table, run_table
from genelab.rl import train_task

TASK = "GeneLab-Inverted-Pendulum-v0"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make_run(
    name: str,
    *,
    seed: int = 1,
    returns: tuple[float, ...] = (1.0, 2.0),
    task: str = TASK,
    rate: float = 0.001,
    judged: dict[str, Any] | None = None,
    **facts: Any,
) -> Path:
    """A run directory as training leaves it: a point per iteration of 100 control steps, 30 s each."""
    path = Path(name)
    (path / "params").mkdir(parents=True)
    (path / "params" / "env.json").write_text(json.dumps({"scene": {"num_envs": 4}, "seed": seed}))
    (path / "params" / "agent.json").write_text(json.dumps({"seed": seed, "learning_rate": rate}))
    record = {
        "task": task,
        "backend": "rsl_rl",
        "engine": "mujoco",
        "device": "cpu",
        "seed": seed,
        "num_envs": 4,
        "command": "genelab train <&> --seed 1",
        "status": "completed",
        "started_at": "2026-01-02T03:04:05+00:00",
        "wall_seconds": 3900.0,
        "env_steps": 200,
        "steps_per_second": 1234.5,
        "hardware": {"cpu": "Some CPU", "cores": 2, "gpus": []},
        "versions": {"python": "3.11.7", "torch": "2.6", "skrl": None},
        "git": {"commit": "0123456789abcdef", "dirty": True},
        **facts,
    }
    (path / "run.json").write_text(json.dumps(record))
    if judged is not None:
        report = {"task": task, "checkpoint": "m.pt", "num_episodes": 10, "engine": "mujoco", "evaluated_at": "2026"}
        (path / "eval.json").write_text(json.dumps({**report, "metrics": judged}))
    writer = SummaryWriter(str(path))
    for i, value in enumerate(returns, start=1):
        scalars: dict[str, float] = {"Train/env_steps": 100 * i, "Perf/collection_time": 20, "Perf/learning_time": 10}
        scalars |= {"Train/mean_reward": value, "Train/mean_episode_length": 7.0, "Episode_Reward/alive": value / 2}
        for tag, number in scalars.items():
            writer.add_scalar(tag, number, i)
    writer.close()
    return path


FILM = b"\0\0\0\x18ftypmp42"
TIMES = ("Perf/collection_time", "Perf/learning_time")


def metrics(value: float, interval: tuple[float, float] | None = None, success: float | None = None) -> dict[str, Any]:
    return {
        "return_mean": value,
        "return_ci95": interval,
        "length_mean": 7.0,
        "length_ci95": None,
        "success_rate": success,
        "success_ci95": None if success is None else (0.1, 0.9),
    }


def test_seeds_make_a_band_from_the_lowest_to_the_highest() -> None:
    for seed, value in ((1, 1.0), (2, 2.0), (3, 6.0)):
        make_run(f"runs/seed_{seed}", seed=seed, returns=(value, value + 1, value + 2))
    (group,) = read_groups([Path("runs")])
    assert group.label == "runs"
    assert group.seeds == [1, 2, 3]
    found = band(group.runs, "Train/mean_reward", "steps")
    assert found is not None
    x, mean, low, high = found
    assert x == pytest.approx([100, 200, 300])
    assert mean == pytest.approx([3, 4, 5])
    assert low == pytest.approx([1, 2, 3])
    assert high == pytest.approx([6, 7, 8])


def test_a_band_goes_as_far_as_all_seeds_have_come() -> None:
    make_run("runs/seed_1", seed=1, returns=(0.0, 0.0, 0.0, 0.0))
    make_run("runs/seed_2", seed=2, returns=(2.0, 2.0))
    found = band(read_groups([Path("runs")])[0].runs, "Train/mean_reward", "iterations")
    assert found is not None
    assert (found[0][0], found[0][-1]) == (1, 2)
    assert found[1] == pytest.approx(np.ones(len(found[0])))


def test_how_long_was_learned_is_told_in_three_units() -> None:
    one = read_run(make_run("run", returns=(1.0, 2.0, 3.0)))
    points = np.array([1.0, 2.0, 3.0])
    assert one.axis(points, "iterations") == pytest.approx([1, 2, 3])
    assert one.axis(points, "steps") == pytest.approx([100, 200, 300])
    assert one.axis(points, "minutes") == pytest.approx([0.5, 1.0, 1.5])


def test_what_a_killed_run_lost_is_not_told_twice() -> None:
    path = make_run("run", returns=(1.0, 2.0, 3.0, 4.0), resumed_from=2)
    writer = SummaryWriter(str(path), filename_suffix=".later")  # resumed after the second iteration, stopped after one
    for tag, value in {"Train/mean_reward": 9.0, "Train/env_steps": 300, **dict.fromkeys(TIMES, 15.0)}.items():
        writer.add_scalar(tag, value, 3)
    writer.close()
    run = read_run(path)
    rewards = run.curves["Train/mean_reward"]
    assert rewards.iteration.tolist() == [1.0, 2.0, 3.0]
    assert rewards.values.tolist() == [1.0, 2.0, 9.0]
    assert run.axis(rewards.iteration, "minutes").tolist() == [0.5, 1.0, 1.5]


def test_a_run_in_which_no_episode_has_ended_is_drawn_all_the_same() -> None:
    path = make_run("run", returns=())
    writer = SummaryWriter(str(path))
    for tag in ("Train/env_steps", *TIMES):
        writer.add_scalar(tag, 100, 1)
    writer.close()
    write_report([path], Path("new/report.html"))
    assert Path("new/report.png").stat().st_size > 5000


def test_a_long_curve_is_thinned_to_means_and_a_nan_is_left_out() -> None:
    x, values = thin(np.arange(300.0), np.arange(300.0))
    assert len(x) == 150
    assert values[:2] == pytest.approx([0.5, 2.5])
    found = band([read_run(make_run("run", returns=(1.0, float("nan"), 3.0)))], "Train/mean_reward", "steps")
    assert found is not None
    assert found[1] == pytest.approx([1.0, 3.0])
    assert last_share([read_run(Path("run"))], "Train/mean_episode_length") == 7.0


def test_runs_group_by_config_and_the_differences_are_listed() -> None:
    make_run("a", seed=1)
    make_run("b", seed=2)
    make_run("c", seed=1, rate=0.01)
    groups = read_groups([Path("a"), Path("b"), Path("c"), Path("a")])
    assert [(group.label, group.seeds) for group in groups] == [("a", [1, 2]), ("c", [1])]
    table = difference_table(groups)
    assert table is not None
    assert table.head == ("config", "a", "c")
    assert table.rows == [("agent.learning_rate", "0.001", "0.01")]
    assert difference_table(groups[:1]) is None


def test_the_evaluation_of_one_run_has_the_interval_of_its_episodes() -> None:
    make_run("run", judged=metrics(5.0, (4.5, 5.5), success=0.5))
    (row,) = evaluation_table(read_groups([Path("run")])).rows
    judged = ("5.000 [4.500, 5.500]", "7.0", "0.500 [0.100, 0.900]", "10 episodes on mujoco")
    assert row == (TASK, "run", "1", *judged, "4", "200", "1 h 05 min")


def test_the_evaluation_of_many_runs_has_the_interval_of_their_means() -> None:
    for seed in (1, 2, 3):
        judged = metrics(float(seed), (0.0, 9.0), success=1.0 - 0.01 * (seed == 1))
        make_run(f"runs/seed_{seed}", seed=seed, judged=judged)
    make_run("runs/seed_4", seed=4)
    (row,) = evaluation_table(read_groups([Path("runs")])).rows
    assert row[2:4] == ("4 (1, 2, 3, 4)", "2.000 [-0.484, 4.484]")  # ± 4.3027 / √3
    assert row[5] == "0.997 [0.982, 1.000]"  # not the 1.011 that three means and Student would allow
    assert row[6] == "10 episodes on mujoco, 1 runs not judged"


def test_a_run_that_was_not_judged_says_so() -> None:
    make_run("run", returns=(1.0, 2.5))
    (row,) = evaluation_table(read_groups([Path("run")])).rows
    assert row[3:7] == ("2.500", "7.0", "–", "episodes of the training itself")


def test_the_machine_is_told_once_if_it_is_the_same() -> None:
    make_run("a")
    make_run("b", rate=0.1)
    make_run("c", rate=0.2, hardware={"cpu": "Other CPU", "cores": 8, "gpus": ["A GPU"]})
    same = machine_table(read_groups([Path("a"), Path("b")]))
    assert same.head == ("", "all runs")
    assert ("processor", "Some CPU, 2 cores") in same.rows
    assert ("git", "0123456789ab, with changes") in same.rows
    assert all("skrl" not in row for row in same.rows)
    assert ("GPU", "none", "A GPU") in machine_table(read_groups([Path("a"), Path("c")])).rows


def test_the_page_needs_nothing_besides_itself(capfd: pytest.CaptureFixture[str]) -> None:
    for seed in (1, 2):
        make_run(f"runs/seed_{seed}", seed=seed, judged=metrics(float(seed)))
    make_run("other", task="Other-v0")
    (Path("other") / "videos").mkdir()
    (Path("other") / "videos" / "iteration_2.mp4").write_bytes(FILM)
    assert run(["report", "runs", "other", "--out", "out.html"]) == 0
    shown = capfd.readouterr().out
    assert "1.500 [-4.853, 7.853]" in shown
    assert shown.startswith(Path("out.md").read_text())
    assert "written to out.html, out.md and out.png" in shown
    page = Path("out.html").read_text()
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []
    assert base64.b64encode(FILM).decode() in page
    assert "genelab train &lt;&amp;&gt; --seed 1" in page
    pictures = [base64.b64decode(one) for one in re.findall(r"data:image/svg\+xml;base64,([^\"]+)", page)]
    assert len(pictures) == 4  # curves and reward terms of two tasks
    assert all(b"<svg" in picture for picture in pictures)
    assert Path("out.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["other", "out.html", "out.md", "out.png", "runs"]


def test_what_differs_between_configs_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    for name, weight in (("a", -0.01), ("b", -2.0)):
        path = make_run(name, rate=0.001)
        config = {"scene": {"num_envs": 4}, "seed": 1, "rewards": {"action": {"weight": weight}}}
        (path / "params" / "env.json").write_text(json.dumps(config))
    make_run("c", rate=0.01)
    assert run(["report", "a", "b"]) == 0
    out = capfd.readouterr().out
    assert "| config | a | b |\n| --- | --- | --- |\n| env.rewards.action.weight | -0.01 | -2.0 |\n" in out
    assert "The rewards differ: their returns cannot be compared." in out
    assert out.startswith(Path("report.md").read_text())
    assert "their returns cannot be compared" in Path("report.html").read_text()
    assert run(["report", "a"]) == 0
    assert "config" not in capfd.readouterr().out


def test_a_copy_of_a_run_is_no_second_seed() -> None:
    """An interval over a run and its copy would be of width 0."""
    make_run("run", seed=42, judged=metrics(5.0, (4.5, 5.5)))
    shutil.copytree("run", "copy")
    make_run("short", seed=42, returns=(1.0,))
    make_run("other", seed=43, returns=(3.0, 4.0), judged=metrics(7.0))
    (group,) = read_groups([Path("short"), Path("copy"), Path("run")])
    assert group.seeds == [42]
    assert [run.path.name for run in group.runs] == ["copy"]  # the longest, which was judged
    (row,) = evaluation_table([group]).rows
    assert row[2:4] == ("42; 3 runs of seed 42 count once", "5.000 [4.500, 5.500]")
    assert [line[-1] for line in run_table([group]).rows] == ["copy", "short", "run"]
    (row,) = evaluation_table(read_groups([Path("run"), Path("other"), Path("copy")])).rows
    assert row[2] == "2 (42, 43); 2 runs of seed 42 count once"


def test_nothing_outside_of_a_run_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    secret, folder = Path("secret"), Path("folder")
    folder.mkdir()
    for place in (secret, folder / "film.mp4", folder / "eval.json"):
        place.write_bytes(FILM + b"root:x:0:0")
    for name, target in (("film.mp4", secret), ("videos", folder), ("eval.json", secret)):
        path = make_run(f"run_{name}")
        (path / name).symlink_to(target.absolute())
        assert run(["report", str(path)]) == 2
        error = capfd.readouterr().err
        assert f"{path / name} is a link out of the run" in error
        assert error.count("\n") == 1
    make_run("mine")
    Path("runs").mkdir()
    Path("runs/seed_1").symlink_to(Path("mine").absolute())
    assert run(["report", "runs"]) == 2
    assert "runs/seed_1 is a link out of runs: name the run it points to instead" in capfd.readouterr().err
    path = make_run("run")
    (path / "film.mp4").write_bytes(b"root:x:0:0:root:/root:/bin/bash\n")
    assert run(["report", "run"]) == 0
    page = Path("report.html").read_text()
    assert "<video" not in page
    assert "Not shown, since it is no MP4: <code>run/film.mp4</code>" in page


def test_escapes_of_others_are_printed_as_text(capfd: pytest.CaptureFixture[str]) -> None:
    word = "x\x1b]0;PWN\x07\x9b31m\u202eevil $\\frac$"
    make_run("run", task=word, command=f"/home/me/.venv/bin/genelab train {word}", backend=word)
    assert run(["report", "run"]) == 0
    shown = r"x\x1b]0;PWN\x07\x9b31m\u202eevil"
    for text in (capfd.readouterr().out, Path("report.md").read_text(), Path("report.html").read_text()):
        assert text.replace("\n", "").isprintable()
        assert shown in text.replace(r"\\", "\\")
    assert f"<code>genelab train {shown}" in Path("report.html").read_text()


def test_the_same_runs_draw_the_same_curves() -> None:
    make_run("run")
    groups = read_groups([Path("run")])
    assert draw_curves(groups, "steps", "svg") == draw_curves(groups, "steps", "svg")


def test_a_real_run_is_reported() -> None:
    train_task(TASK, num_envs=4, max_iterations=2, seed=3, log_dir=Path("run"))
    report = write_report([Path("run")], Path("report.html"), unit="minutes")
    assert f"| {TASK} | run | 3 |" in report.markdown
    assert "torch" in Path("report.html").read_text()


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["nowhere"], "nowhere is no directory; give run directories"),
        (["empty"], "empty is not a run directory: it has no readable run.json"),
        (["silent"], "silent has no curves to show: no iteration was logged"),
        (["cloud"], "cloud has no curves to show: it was logged to wandb"),
        (["blank"], "blank has no curves to show: no iteration was logged"),
        (["run", "--out", "/proc/no/report.html"], "cannot write /proc/no/report.html"),
        (["run", "--out", "report.md"], "report.md must end in .html"),
    ],
)
def test_what_cannot_be_reported_is_refused_in_a_line(words: list[str], answer: str, capfd: Any) -> None:
    Path("empty").mkdir()
    make_run("run")
    make_run("silent", returns=())
    make_run("cloud", returns=(), logger="wandb")
    for events in make_run("blank").glob("events.out.*"):
        events.unlink()
    assert run(["report", *words]) == 2
    err = capfd.readouterr().err
    assert answer in err
    assert err.count("\n") == 1


def test_without_matplotlib_a_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    make_run("run")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"pip install 'genelab\[plot\]'"):
        write_report([Path("run")], Path("report.html"))
