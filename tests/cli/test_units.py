"""A budget is iterations for one RL library and timesteps for another: whatever prints one says which."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from genelab.cli.main import run
from genelab.cli.progress import seeds_table
from genelab.config import iter_fields
from genelab.report import write_report
from genelab.report.curves import axis_label
from genelab.report.runs import read_groups
from genelab.rl.backends.registry import BACKENDS
from genelab.rl.launch.seeds import SeedRun


@dataclass(frozen=True, kw_only=True)
class Library:
    """A task of a library, and how it trains here."""

    task: str
    unit: str
    budget: int
    iterations: int

    @property
    def all_of_it(self) -> str:
        """As it stands in a sentence."""
        return f"{self.budget} {self.unit}"


LIBRARIES = {
    "rsl_rl": Library(task="GeneLab-Inverted-Pendulum-v0", unit="iterations", budget=2, iterations=2),
    "skrl": Library(task="GeneLab-Inverted-Pendulum-Skrl-v0", unit="timesteps", budget=48, iterations=2),
}


@pytest.fixture(params=LIBRARIES.values(), ids=list(LIBRARIES))
def library(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    monkeypatch.chdir(tmp_path)
    found: Library = request.param
    return found


def train(library: Library, *words: str) -> int:
    short = ["--num-envs", "2", "--env.episode_length_s", "0.2", "--max-iterations", str(library.budget)]
    return run(["train", library.task, *short, *words])


def test_training_names_it_from_the_first_line_to_the_report(
    library: Library, capfd: pytest.CaptureFixture[str]
) -> None:
    one = library.unit.removesuffix("s")
    assert train(library, "--log-dir", "run", "--eval-every", "1", "--eval-episodes", "2") == 0
    out, err = capfd.readouterr()
    assert f"{one} {library.budget}/{library.budget} · 100%" in err
    assert f"evaluation at {one} {library.budget}: " in err
    assert out.startswith(f"completed: {library.all_of_it}, {library.iterations * 48} env steps in ")
    record = json.loads(Path("run/run.json").read_text())
    assert (record["budget"], record["unit"]) == (library.budget, library.unit)
    best = json.loads(Path("run/best_model_meta.json").read_text())
    assert best["unit"] == library.unit

    assert run(["train", library.task, "--resume", "run"]) == 2
    assert f"has spent its {library.unit}; give a larger --max-iterations" in capfd.readouterr().err

    report = write_report([Path("run")], Path("report.html"), unit="iterations")
    assert f"<td>{library.all_of_it}</td>" in report.page.read_text()
    assert axis_label(read_groups([Path("run")]), "iterations") == library.unit


def test_the_table_of_seeds_names_it(library: Library, capfd: pytest.CaptureFixture[str]) -> None:
    progress = {"done": 1, "total": library.budget, "unit": library.unit, "env_steps": 1, "elapsed": 1.0, "eta": 1.0}
    progress |= dict.fromkeys(("collect_fps", "total_fps", "learn_share"), 1.0)
    Path("seed_1").mkdir()
    seed = SeedRun(seed=1, path=Path("seed_1"), state="running")
    seed.progress_file.write_text(json.dumps({**progress, "return_mean": None, "length_mean": None}))
    assert f"1/{library.all_of_it}" in list(seeds_table([seed]).columns[2].cells)


def test_a_benchmark_counts_iterations_and_says_what_the_budget_counts(
    library: Library, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--num-envs", "2", "--max-iterations", "2", "--out", "bench", "--formatter", "schema,summary"]
    assert run(["benchmark", "training", library.task, *words]) == 0
    out, err = capfd.readouterr()
    one = library.unit.removesuffix("s")
    assert f"{one} {library.budget}/{library.budget} · 100%" in err
    assert re.search(r"runtime\.iterations_completed +│ +2 ", out)
    (file,) = Path("bench").glob("*.json")
    bundle = json.loads(file.read_text())
    assert (bundle["run"]["max_iterations"], bundle["run"]["config"]["budget_unit"]) == (2, library.unit)


def test_runs_of_two_libraries_in_one_panel_name_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, library in LIBRARIES.items():
        assert train(library, "--log-dir", name, "-q") == 0
    assert axis_label(read_groups([Path(name) for name in LIBRARIES]), "iterations") == "iterations or timesteps"


@pytest.mark.parametrize("name", BACKENDS.names())
def test_the_config_path_of_a_budget_names_it(name: str) -> None:
    """`genelab info` shows it under its path, and so does whatever else prints a config."""
    backend = BACKENDS.entry(name).load()
    agent = backend.default_agent()
    backend.set_budget(agent, 123_457)
    (path,) = [item.path for item in iter_fields({"agent": agent}) if item.text == "123457"]
    assert backend.unit in path


@pytest.mark.parametrize(
    ("verb", "option"),
    [
        (["train"], "--max-iterations"),
        (["train"], "--eval-every"),
        (["train"], "--video-interval"),
        (["benchmark", "training"], "--max-iterations"),
        (["benchmark", "training"], "--success-window"),
        (["report"], "--x"),
    ],
)
def test_the_help_of_an_option_that_counts_names_it(
    verb: list[str], option: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*verb, "--help"]) == 0
    text = " ".join(capfd.readouterr().out.split())
    about = text.partition(f" {option} ")[2].partition(" --")[0]
    assert re.search("[Ii]terations", about)
    if option in ("--max-iterations", "--x") and verb != ["benchmark", "training"]:
        assert "timesteps" in about
