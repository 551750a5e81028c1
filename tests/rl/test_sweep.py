"""Sweeps: what is searched, what is looked for, and a study that is stopped, killed and gone on with.

Most trainings here are a stand-in that writes the evaluations a training would, from the settings it is given; one
sweep trains for real.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from genelab.cli.main import run
from genelab.cli.sweep import command as sweep_command
from genelab.errors import GenelabError, UsageError
from genelab.rl.sweep.objective import NEVER, Objective
from genelab.rl.sweep.search import SweepResult, Where, resume_sweep, sweep_task
from genelab.rl.sweep.space import check_ranges, parse_ranges
from genelab.rl.sweep.study import STUDY_FILE, SweepSettings, Trial, _storage, create_study, read_study

TASK = "GeneLab-Inverted-Pendulum-v0"
RATE = "agent.algorithm.learning_rate"
RANGE = f"{RATE}=log(1e-4,1e-2)"

CHILD = """
import json, math, os, sys, time
words = dict(word[2:].split("=", 1) for word in sys.argv[1:] if word.startswith("--") and "=" in word)
home = sys.argv[sys.argv.index("--log-dir") + 1]
os.makedirs(home)
rate = float(words["agent.algorithm.learning_rate"])
if os.environ.get("FAILS_ABOVE") and rate > float(os.environ["FAILS_ABOVE"]):
    sys.exit("genelab: it diverged")
goodness = 40 - 10 * abs(math.log10(rate) + 2.5)  # best at 10 ** -2.5
found = []
try:
    for i in range(1, 6):
        found.append({"iteration": i, "env_steps": 100 * i, "seconds": i / 10, "return_mean": goodness * i / 5,
                      "length_mean": 10.0 * i, "success_rate": None})
        with open(home + "/new", "w") as file:
            json.dump(found, file)
        os.replace(home + "/new", home + "/evaluations.json")
        time.sleep(float(os.environ.get("PAUSE", "0.25")))
except KeyboardInterrupt:
    sys.exit(130)
"""
WHERE = Where(words=["-c", CHILD])


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAUSE", "0")


def sweep(params: Sequence[str] = (RANGE,), **options: Any) -> SweepResult:
    given: dict[str, Any] = {"where": WHERE, "trials": 6, "seed": 3, "log_dir": Path("sweep"), **options}
    return sweep_task(TASK, params, **given)


def facts(trials: Sequence[Trial]) -> list[tuple[Any, ...]]:
    """What trials tried and found, but for those that were killed."""
    return [(one.state, dict(one.params), one.value) for one in trials if one.state != "killed"]


def test_ranges_are_read_and_fitted_to_the_task() -> None:
    texts = [RANGE, "agent.num_steps_per_env=log(8,32)", "agent.actor.hidden_dims=choice((64,64), (128, 128))"]
    texts += ["env.rewards.upright.weight=uniform(1,2.5)", "--agent.save-interval=int(5,50)"]
    ranges, own = check_ranges(TASK, parse_ranges(texts), {})
    assert [one.path for one in ranges][4] == "agent.save_interval"
    assert [one.whole for one in ranges] == [False, True, False, False, True]
    assert ranges[2].choices == ("(64,64)", "(128, 128)")
    assert ranges[0].examples == ("0.0001", "0.01")
    assert ranges[1].examples == ("8", "32")
    # The task's own weight is 3, which is not in its range.
    assert own == {
        RATE: 1e-3,
        "agent.num_steps_per_env": 24,
        "agent.actor.hidden_dims": "(128, 128)",
        "agent.save_interval": 10,
    }


@pytest.mark.parametrize(
    ("param", "message"),
    [
        ("gamma", "expected PATH=RANGE"),
        ("agent.algorithm.gamma=0.9", "expected log(a,b), uniform(a,b), int(a,b) or choice(x,y,…), got '0.9'"),
        ("agent.algorithm.gamma=unifrom(0.9,1)", "Did you mean 'uniform'?"),
        ("agent.algorithm.gamma=uniform(0.9)", "expected two numbers"),
        ("agent.algorithm.gamma=uniform(1,0.9)", "must be less than the second"),
        ("agent.algorithm.gamma=uniform(0.9,inf)", "both finite"),
        ("agent.algorithm.gamma=uniform(0.9,1.2)", "agent.algorithm.gamma: must be at most 1, got 1.2"),
        ("agent.algorithm.gamma=log(0,1)", "log needs positive numbers"),
        ("agent.algorithm.gamma=choice((0.9,1)", "brackets or quotes do not match"),
        ("agent.algorithm.gamma=choice(0.9)", "two or more different values"),
        ("agent.algorithm.gama=uniform(0.9,1)", "Did you mean 'gamma'"),
        ("agent.num_steps_per_env=uniform(8,32)", "takes whole numbers: write int(8,32)"),
        ("agent.num_steps_per_env=int(8.5,32)", "int needs whole numbers"),
        ("agent.actor.activation=choice(elu,rel)", "Did you mean 'relu'"),
        ("agent.actor.activation=uniform(0,1)", "agent.actor.activation: expected 'elu'"),
        ("env.seed=int(1,3)", "env.seed: a training decides this itself: pass --seed"),
        ("robot.mass=int(1,3)", "a path begins with env or agent"),
    ],
)
def test_a_bad_range_is_one_line_and_nothing_starts(
    param: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["sweep", TASK, "--param", param]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert message in captured.err
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([TASK], "--param: nothing to search"),
        (["Genelab-Nope-v0", "--param", RANGE], "unknown task 'Genelab-Nope-v0'"),
        (["GeneLab-Rubiks-Play-v0", "--param", RANGE], "it can be played, not trained"),
        ([TASK, "--param", RANGE, "--param", RANGE], f"{RATE} is given twice"),
        ([TASK, "--param", RANGE, f"{RATE}=0.1"], f"{RATE} is searched and cannot be set to '0.1' as well"),
        ([TASK, "--param", RANGE, "--objective", "steps"], "steps until which return? give --target"),
        ([TASK, "--param", RANGE, "--target", "39"], "--target goes with an --objective"),
        ([TASK, "--param", RANGE, "--ray-address", "x:1"], "--ray-address goes with --launcher ray"),
        ([TASK, "--resume", "nowhere"], "nowhere has no study.db: it is no directory of a sweep"),
        ([TASK, "--resume", "nowhere", "--seed", "1"], "--resume goes on with the sweep's own settings"),
    ],
)
def test_wrong_words_are_one_line(words: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", *words]) == 2
    captured = capfd.readouterr()
    assert len(captured.err.splitlines()) == 1
    assert message in captured.err
    assert not list(Path().iterdir())


def test_optuna_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match=r"optuna is not installed: pip install 'genelab\[sweep\]'"):
        sweep()


def test_objectives_are_of_the_last_evaluation_or_of_the_first_that_reaches_a_target() -> None:
    evaluations = [
        {"iteration": i, "env_steps": 100 * i, "seconds": i / 2, "return_mean": value, "success_rate": value / 50}
        for i, value in ((1, 10.0), (2, 39.0), (3, 38.0))
    ]
    assert Objective().value(evaluations) == 38.0
    assert Objective(goal="success").value(evaluations) == 0.76
    assert Objective(goal="steps", target=38.0).value(evaluations) == 200.0
    assert Objective(goal="seconds", target=38.0).value(evaluations) == 1.0
    assert Objective(goal="iterations", target=40.0).value(evaluations) == NEVER
    assert Objective(goal="steps", target=38.0).value([]) is None
    assert Objective(goal="steps", target=38.0).direction == "minimize"


def test_a_sweep_begins_with_the_tasks_own_settings_and_finds_better_ones() -> None:
    said: list[str] = []
    result = sweep(trials=8, notify=said.append)
    assert result.status == "completed"
    assert [trial.number for trial in result.trials] == list(range(8))
    assert (result.trials[0].is_own, dict(result.trials[0].params)) == (True, {RATE: 1e-3})
    assert result.own is result.trials[0]
    assert result.own.value == pytest.approx(35.0)
    assert result.best is not None
    assert result.best.value is not None
    assert 35.0 < result.best.value <= 40.0
    assert re.fullmatch(rf"1/8 trial 0 completed, 35 \(\d+ s\) {re.escape(RATE)}=0\.001", said[0])
    # What is worse than half of the first five is stopped before its end.
    pruned = [trial for trial in result.trials if trial.state == "pruned"]
    for trial in pruned:
        assert trial.number >= 5
        assert trial.value is None
    assert read_study(Path("sweep"))[1] == result.trials


def test_a_hopeless_training_is_stopped_and_a_race_ends_at_its_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAUSE", "0.4")
    ranges = [f"{RATE}=choice(1e-3,1e-4,3e-3)"]
    result = sweep(ranges, objective="steps", target=20.0, trials=8, sampler="random", seed=0)
    by_rate = {trial.params[RATE]: trial for trial in result.trials if trial.state == "completed"}
    assert by_rate["1e-3"].value == 300.0  # 35 * 3 / 5 is the first that is at least 20
    assert max(by_rate["1e-3"].curve) < 500  # and it was not trained to its end
    assert by_rate["3e-3"].value == 300.0
    assert result.best is result.trials[0]  # the first of several
    hopeless = [trial for trial in result.trials[5:] if trial.params[RATE] == "1e-4"]
    assert hopeless
    assert all(trial.state == "pruned" and max(trial.curve) < 500 for trial in hopeless)


def test_a_failed_training_counts_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILS_ABOVE", "0.002")
    result = sweep(["agent.algorithm.learning_rate=choice(1e-3,5e-3)"], trials=5, prune=False)
    assert len(result.trials) == 5
    assert {trial.state for trial in result.trials} == {"completed", "failed"}
    assert {trial.reason for trial in result.trials if trial.state == "failed"} == {"genelab: it diverged"}


def test_a_sweep_in_which_all_fails_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILS_ABOVE", "0")
    with pytest.raises(GenelabError, match="the first 3 trials failed, the last one with: genelab: it diverged"):
        sweep(trials=20)


def test_an_objective_that_the_task_does_not_have_is_told() -> None:
    with pytest.raises(GenelabError, match="the task publishes no `is_success`"):
        sweep(objective="success")


def stopped_at(trial: Path, number: signal.Signals, search: str) -> None:
    """Search in a process of its own, which gets a signal when a trial has its first evaluation.

    A fork of this process would inherit the locks that its other threads hold, and wait for them forever.
    """
    words = "from pathlib import Path; from tests.rl.test_sweep import WHERE, resume_sweep, sweep; "
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", words + search], env=env) as process:
        try:
            end = time.monotonic() + 240
            while not (trial / "evaluations.json").exists():
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.02)
            process.send_signal(number)
            process.wait(120)
        finally:
            process.kill()


def test_a_sweep_that_is_killed_goes_on_as_if_it_had_not_been(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, home = sweep(log_dir=Path("whole")), Path("stopped")
    monkeypatch.setenv("PAUSE", "0.4")
    stopped_at(home / "trial_0003", signal.SIGKILL, "sweep(log_dir=Path('stopped'))")
    stopped_at(home / "trial_0004", signal.SIGINT, "resume_sweep(Path('stopped'), where=WHERE)")
    monkeypatch.setenv("PAUSE", "0")
    said: list[str] = []
    result = resume_sweep(home, where=WHERE, task=TASK.lower(), notify=said.append)
    assert [trial.number for trial in result.trials if trial.state == "killed"] == [3, 4]
    assert said[0] == "trial 4 was killed: it counts as failed, and is tried again"
    assert [trial.retry_of for trial in result.trials[3:6]] == [None, 3, 4]
    assert facts(result.trials) == facts(whole.trials)


def test_trials_on_ray() -> None:
    where = Where(words=WHERE.words, parallel=2, ray=True)
    result = sweep([f"{RATE}=choice(1e-3,3e-3)"], where=where, trials=2, objective="steps", target=20.0)
    assert [(trial.state, trial.value) for trial in result.trials] == [("completed", 300.0)] * 2


def test_a_sweep_may_be_given_more_trials_and_is_one_tasks() -> None:
    sweep(trials=2)
    more = resume_sweep(Path("sweep"), where=WHERE, trials=3)
    assert len(more.trials) == 3
    assert read_study(Path("sweep"))[0].trials == 3
    assert resume_sweep(Path("sweep"), where=WHERE).status == "completed"
    with pytest.raises(UsageError, match=f"is a sweep of {TASK}, not of Other"):
        resume_sweep(Path("sweep"), where=WHERE, task="Other")
    with pytest.raises(UsageError, match="already holds a sweep; choose another, or `resume_sweep"):
        sweep()


@pytest.mark.parametrize("content", [b"short", b"no database at all, but long enough to be one" * 100])
def test_a_bad_study_is_one_line(content: bytes) -> None:
    Path("sweep").mkdir()
    (Path("sweep") / STUDY_FILE).write_bytes(content)
    with pytest.raises(UsageError, match=r"study\.db: "):
        resume_sweep(Path("sweep"), where=WHERE)


def test_a_sweep_killed_while_its_study_is_made_can_be_started_again() -> None:
    """Its file gets its name when all is in it; one of earlier versions may be empty, and the line says what to do."""
    code = (
        "import os; from pathlib import Path; import optuna; from tests.rl.test_sweep import sweep\n"
        "optuna.Study.set_user_attr = lambda *_: os.kill(os.getpid(), 9)\n"
        "sweep()"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=env, timeout=240, check=False).returncode == -9
    assert not (Path("sweep") / STUDY_FILE).exists()
    (Path("sweep") / ".study.db.0123abcd.tmp-journal").touch()  # SQLite's
    with pytest.raises(UsageError, match=r"has no study\.db"):
        resume_sweep(Path("sweep"), where=WHERE)
    assert len(sweep(trials=1).trials) == 1
    assert [path.name for path in Path("sweep").iterdir() if path.name.startswith(".")] == []
    for empty in ("schema", "nothing"):
        Path(empty).mkdir()
        (Path(empty) / STUDY_FILE).touch()
    _storage(Path("schema") / STUDY_FILE)
    for empty in ("schema", "nothing"):
        with pytest.raises(UsageError, match="was killed at its beginning: delete it and start the sweep again"):
            resume_sweep(Path(empty), where=WHERE)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE trial_intermediate_values SET intermediate_value_type = 'null'",
        "UPDATE trials SET state = 'null'",
        "UPDATE trial_user_attributes SET value_json = '\"x\"'",
        "UPDATE trial_params SET distribution_json = '{}'",
        "UPDATE trial_values SET value_type = 'null'",
        "UPDATE study_directions SET direction = 'null'",
    ],
)
def test_a_study_that_was_tampered_with_is_one_line(change: str, capfd: pytest.CaptureFixture[str]) -> None:
    path = Path("sweep")
    path.mkdir()
    settings = SweepSettings(task=TASK, params=(RANGE,), trials=1, seed=1, eval_every=1)
    study = create_study(path, settings)
    trial = study.ask()
    parse_ranges(settings.params)[0].suggest(trial)
    trial.report(1.0, 100)
    trial.set_user_attr("seconds", 1.0)
    study.tell(trial, 1.0)
    with contextlib.closing(sqlite3.connect(path / STUDY_FILE)) as file, file:
        assert file.execute(change).rowcount > 0
    for words in (["report", "sweep"], ["sweep", TASK, "--resume", "sweep"]):
        assert run(words) == 2
        error = capfd.readouterr().err
        assert "study.db: " in error
        assert error.count("\n") == 1


def test_a_sweep_of_real_trainings_and_its_report(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--param", RANGE, "--param", "agent.num_steps_per_env=int(4,30)", "--trials", "2", "--parallel", "2"]
    words += ["--num-envs", "8", "--max-iterations", "2", "--eval-episodes", "2", "--log-dir", "real"]
    assert run(["sweep", TASK, *words]) == 0
    captured = capfd.readouterr()
    assert "2/2 trial" in captured.err
    assert "objective  mean return of the last evaluation" in captured.out
    settings, trials = read_study(Path("real"))
    assert (settings.eval_every, settings.num_envs, settings.seed) == (1, 8, 42)
    for trial in trials:
        home = Path("real") / f"trial_{trial.number:04}"
        evaluations = json.loads((home / "evaluations.json").read_text())
        assert [one["iteration"] for one in evaluations] == [1, 2]
        assert trial.value == evaluations[-1]["return_mean"]
        assert list(trial.curve) == [one["env_steps"] for one in evaluations]
        agent = json.loads((home / "params" / "agent.json").read_text())
        assert agent["algorithm"]["learning_rate"] == trial.params[RATE]
        assert agent["num_steps_per_env"] == trial.params["agent.num_steps_per_env"]
    assert run(["report", "real", "--out", "found.html"]) == 0
    table = Path("found.md").read_text()
    assert table.count("\n") == 4
    assert "task's own" in table
    assert Path("found.png").stat().st_size > 10_000
    assert "mean return of the last evaluation" in Path("found.html").read_text()


def test_the_commands_of_the_page_parse() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8").replace("\\\n", " ")
    commands = [shlex.split(line, comments=True) for line in page.splitlines() if line.startswith("genelab sweep ")]
    assert len(commands) >= 3
    for command in commands:
        context = sweep_command.make_context("sweep", command[2:])
        if context.params["resume"] is None:
            parse_ranges(context.params["param"])
            assert context.params["overrides"] == {}
