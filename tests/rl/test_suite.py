"""The gate: worse policies fail it, the same ones pass, and no row goes unseen."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from genelab.cli.main import run
from genelab.errors import GenelabError, UsageError
from genelab.rl import train_task
from genelab.rl.suite import RowIdentity, judge, match, read_suite, run_suite

SINGLE, DOUBLE = "GeneLab-Inverted-Pendulum-v0", "GeneLab-Double-Inverted-Pendulum-v0"


@pytest.fixture
def returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Evaluations that return what the test says, by checkpoint; an error is raised."""
    values: dict[str, Any] = {}

    def evaluate(task: str, checkpoint: str | Path, settings: Any, **options: Any) -> dict[str, Any]:
        value = values[str(checkpoint)]
        if isinstance(value, BaseException):
            raise value
        return {"task": task, "checkpoint": str(checkpoint), "metrics": {"return_mean": value}}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("genelab.rl.suite.evaluate_task", evaluate)
    return values


def row(task: str, checkpoint: str, **more: Any) -> dict[str, Any]:
    return {"task": task, "checkpoint": checkpoint, **more}


def gate(rows: Any, *words: str, out: str = "report.json") -> tuple[int, dict[str, Any]]:
    """The exit code and the report."""
    write_suite(rows)
    code = run(["benchmark", "--suite", "suite.json", "--out", out, *words])
    return code, json.loads(Path(out).read_text()) if Path(out).exists() else {}


def baseline(rows: Any) -> None:
    assert gate(rows, out="baseline.json")[0] == 0


AGAINST = ("--reference", "baseline.json")


def test_a_drop_beyond_the_tolerance_fails(returns: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> None:
    rows = [row(SINGLE, "a.pt"), row(DOUBLE, "b.pt")]
    returns.update({"a.pt": 40.0, "b.pt": 60.0})
    baseline(rows)
    assert gate(rows, *AGAINST)[0] == 0
    returns["b.pt"] = 54.0  # ten percent less is within the tolerance
    assert gate(rows, *AGAINST)[0] == 0
    returns["b.pt"] = 53.9
    code, report = gate(rows, *AGAINST)
    assert code == report["exit_code"] == 1
    assert [one["status"] for one in report["rows"]] == ["ok", "regressed"]
    comparison = report["rows"][1]["comparison"]
    assert (comparison["reference"], comparison["value"], comparison["regressed"]) == (60.0, 53.9, True)
    assert comparison["change"] == pytest.approx(-6.1)
    assert comparison["relative_change"] == pytest.approx(-6.1 / 60)
    assert "row 2 regressed: return 60.000 → 53.900" in capfd.readouterr().out
    assert gate(rows, *AGAINST, "--tolerance", "0.2")[0] == 0


@pytest.mark.parametrize(
    ("reference", "value", "regressed"),
    [(-10.0, -10.9, False), (-10.0, -11.1, True), (-10.0, 5.0, False), (0.0, 0.0, False), (0.0, -0.1, True)],
)
def test_a_drop_is_measured_by_the_size_of_the_reference(reference: float, value: float, regressed: bool) -> None:
    assert judge(value, reference, 0.1)["regressed"] is regressed


def test_the_order_of_rows_changes_nothing(returns: dict[str, Any]) -> None:
    rows = [row(SINGLE, f"{name}.pt", seed=seed) for name in "abc" for seed in (0, 1)] + [row(DOUBLE, "d.pt")]
    returns.update({"a.pt": 10.0, "b.pt": 20.0, "c.pt": 30.0, "d.pt": 40.0})
    baseline(rows)
    rng = random.Random(0)
    for _ in range(5):
        rng.shuffle(rows)
        code, report = gate(rows, *AGAINST)
        assert code == 0
        assert [one["checkpoint"] for one in report["rows"]] == [one["checkpoint"] for one in rows]
        assert all(one["comparison"]["change"] == 0.0 for one in report["rows"])
    returns["b.pt"] = 10.0
    assert gate(rows, *AGAINST)[0] == 1


def key(task: str, checkpoint: str, seed: int = 0) -> RowIdentity:
    return RowIdentity(task, checkpoint, seed, "")


@pytest.mark.parametrize(
    ("suite", "reference", "pairs"),
    [
        ([key("A", "new")], [key("B", "b"), key("A", "old", 7)], {0: 1}),  # once on both sides: the same row
        ([key("A", "y"), key("A", "x")], [key("A", "x"), key("A", "z")], {1: 0}),  # y is new, z is missing
        ([key("A", "n", 1), key("A", "n", 2)], [key("A", "o", 2), key("A", "o", 1)], {0: 1, 1: 0}),  # by seed
        ([key("A", "x", 3)], [key("A", "x", 1), key("A", "y", 1)], {0: 0}),  # by checkpoint
        ([key("A", "n")], [key("A", "x"), key("A", "y")], {}),  # nothing tells which
        ([key("A", "x"), key("A", "x")], [key("A", "x")], {0: 0}),  # a row that stands twice
    ],
)
def test_rows_are_matched_by_what_tells_them_apart(
    suite: list[RowIdentity], reference: list[RowIdentity], pairs: dict[int, int]
) -> None:
    assert match(suite, reference) == pairs


def test_new_rows_pass_and_rows_that_are_gone_do_not(
    returns: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    returns.update({"a.pt": 1.0, "b.pt": 2.0})
    baseline([row(SINGLE, "a.pt")])
    code, report = gate([row(SINGLE, "a.pt"), row(DOUBLE, "b.pt")], *AGAINST)
    assert code == 0
    assert report["rows"][1]["comparison"] == {"status": "new", "reference": None, "value": 2.0, "regressed": False}
    code, report = gate([row(DOUBLE, "b.pt")], *AGAINST)
    assert code == 2
    assert report["missing"] == [{"task": SINGLE, "checkpoint": "a.pt", "seed": 0, "return_mean": 1.0}]
    assert f"in the reference, not in the suite: {SINGLE} a.pt seed 0" in capfd.readouterr().out


def test_a_bad_row_is_reported_and_the_others_run(returns: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> None:
    returns.update({"a.pt": 40.0, "gone.pt": UsageError("gone.pt: no such checkpoint")})
    bad: list[tuple[Any, str]] = [
        (row(SINGLE, "gone.pt"), "gone.pt: no such checkpoint"),
        (row("GeneLab-Nope-v0", "a.pt"), "unknown task 'GeneLab-Nope-v0'."),
        ({"task": SINGLE}, "checkpoint is missing or no text"),
        (row(SINGLE, "a.pt", episode=3), "unknown key 'episode'. Did you mean 'episodes'?"),
        (row(SINGLE, "a.pt", episodes=0), "episodes must be a whole number of at least 1, got 0"),
        (row(SINGLE, "a.pt", seed=True), "seed must be a whole number of at least 0, got true"),
        (row(SINGLE, "a.pt", num_envs="4"), 'num_envs must be a whole number of at least 1, got "4"'),
        (row(SINGLE, "a.pt", best=1), "best must be true or false, got 1"),
        ("a.pt", 'a row must be an object with task and checkpoint, got "a.pt"'),
        (row(SINGLE.lower(), "a.pt"), "the same as row 11"),
    ]
    code, report = gate([*(given for given, _ in bad[:-1]), None, row(SINGLE, "a.pt"), bad[-1][0]])
    assert code == 2
    rows = report["rows"]
    assert len(rows) == 12
    assert rows[10]["evaluation"]["metrics"]["return_mean"] == 40.0
    text = capfd.readouterr().out
    for number, message in [*((i, message) for i, (_, message) in enumerate(bad[:-1])), (11, bad[-1][1])]:
        assert message in rows[number]["error"]
        assert rows[number]["status"] == "bad input"
        assert f"row {number + 1}: {message}" in text


def test_a_regression_stands_beside_a_bad_row(returns: dict[str, Any]) -> None:
    returns.update({"a.pt": 40.0, "b.pt": 60.0})
    rows = [row(SINGLE, "a.pt"), row(DOUBLE, "b.pt")]
    baseline(rows)
    returns.update({"a.pt": UsageError("a.pt: no such checkpoint"), "b.pt": 1.0})
    code, report = gate(rows, *AGAINST)
    assert code == 1
    assert report["missing"] == []  # the bad row is there, if not as it should be
    returns["b.pt"] = 60.0
    assert gate(rows, *AGAINST)[0] == 2


@pytest.mark.parametrize("error", [GenelabError("the physics diverged"), RuntimeError("a bug")])
def test_a_policy_that_cannot_be_judged_fails(returns: dict[str, Any], error: Exception) -> None:
    returns.update({"a.pt": error, "b.pt": 60.0})
    code, report = gate([row(SINGLE, "a.pt"), row(DOUBLE, "b.pt")])
    assert code == 1
    assert [one["status"] for one in report["rows"]] == ["failed", "ok"]
    assert str(error) in report["rows"][0]["error"]


def test_rows_that_were_run_are_kept_if_the_next_ends_the_process(returns: dict[str, Any]) -> None:
    rows = [row(SINGLE, "a.pt"), row(SINGLE, "b.pt", seed=1), row(DOUBLE, "c.pt")]
    returns.update({"a.pt": 40.0, "b.pt": KeyboardInterrupt(), "c.pt": 60.0})
    with pytest.raises(KeyboardInterrupt):
        run_suite(write_suite(rows), Path("report.json"))
    report = json.loads(Path("report.json").read_text())
    assert [one["status"] for one in report["rows"]] == ["ok", "not run", "not run"]
    assert report["rows"][0]["evaluation"]["metrics"]["return_mean"] == 40.0
    assert report["exit_code"] == 1


def write_suite(rows: Any) -> Path:
    path = Path("suite.json")
    path.write_text(json.dumps(rows))
    return path


def test_a_path_is_meant_from_the_suite_or_from_here(returns: dict[str, Any]) -> None:
    Path("lab").mkdir()
    Path("lab/a.pt").touch()
    Path("b.pt").touch()
    rows = [row(SINGLE, "a.pt"), row(SINGLE, "b.pt"), row(SINGLE, "latest"), row(DOUBLE, "pretrained")]
    Path("lab/suite.json").write_text(json.dumps(rows))
    returns.update({"lab/a.pt": 1.0, "b.pt": 2.0, "latest": 3.0, "pretrained": 4.0})
    assert run(["benchmark", "--suite", "lab/suite.json"]) == 0
    found = [one["evaluation"]["checkpoint"] for one in json.loads(Path("report.json").read_text())["rows"]]
    assert found == ["lab/a.pt", "b.pt", "latest", "pretrained"]


def test_the_suite_of_the_guide_reads(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "eval-and-export.md").read_text()
    (tmp_path / "suite.json").write_text(guide.split("```json\n")[1].split("```")[0])
    assert [outcome.error for outcome in read_suite(tmp_path / "suite.json")] == [None, None]


def test_wrong_files_are_refused_before_anything_runs(
    returns: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    returns["a.pt"] = UsageError("evaluated")
    Path("ok.json").write_text(json.dumps([row(SINGLE, "a.pt")]))
    Path("empty.json").write_text("[]")
    Path("text.json").write_text("{")
    Path("list.json").write_text("[1]")
    Path("nan.json").write_text('[{"task": "x", "checkpoint": "y", "seed": NaN}]')
    report = {"rows": [{**row(SINGLE, "a.pt", seed=0), "evaluation": {"metrics": {"return_mean": 9}}}]}
    Path("good.json").write_text(json.dumps(report))
    for name, value in (("nan", "NaN"), ("huge", "1e999"), ("word", '"9"')):
        Path(f"{name}_report.json").write_text(json.dumps(report).replace("9", value))
    Path("failed.json").write_text('{"rows": [{"evaluation": null}]}')
    here = sorted(Path().iterdir())
    for words, message in (
        ([], "what is to be measured? Pass --suite FILE"),
        (["--suite", "no.json"], "--suite: cannot read no.json: No such file or directory"),
        (["--suite", "text.json"], "--suite: text.json is not JSON"),
        (["--suite", "empty.json"], "--suite: empty.json must be a list of rows"),
        (["--suite", "ok.json", "--reference", "no.json"], "--reference: cannot read no.json"),
        (["--suite", "ok.json", "--reference", "list.json"], "--reference: list.json is not a report of"),
        (["--suite", "nan.json"], "--suite: nan.json is not JSON: NaN is no number"),
        (["--suite", "ok.json", "--reference", "nan_report.json"], "nan_report.json is not JSON: NaN is no number"),
        (["--suite", "ok.json", "--reference", "huge_report.json"], "huge_report.json is not JSON: 1e999 is no number"),
        (["--suite", "ok.json", "--reference", "word_report.json"], "--reference: word_report.json is not a report of"),
        (["--suite", "ok.json", "--reference", "failed.json"], "failed.json has no evaluated row to compare with"),
        (["--suite", "ok.json", "--reference", "good.json", "--tolerance", "nan"], "--tolerance must be a number of"),
        (["--suite", "ok.json", "--reference", "good.json", "--tolerance", "inf"], "--tolerance must be a number of"),
        (["--suite", "ok.json", "--tolerance", "0.2"], "--tolerance is for the comparison with --reference"),
        (["--suite", "ok.json", "--out", "/proc/no/r.json"], "--out: cannot write /proc/no/r.json"),
    ):
        assert run(["benchmark", *words]) == 2
        error = capfd.readouterr().err
        assert message in error
        assert len(error.splitlines()) == 1
    assert sorted(Path().iterdir()) == here


def test_the_reference_is_never_overwritten(returns: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> None:
    returns["a.pt"] = 1.0
    baseline([row(SINGLE, "a.pt")])
    before = Path("baseline.json").read_text()
    assert gate([row(SINGLE, "a.pt")], *AGAINST, out="baseline.json")[0] == 2
    assert "--out: baseline.json is the reference, which would be lost" in capfd.readouterr().err
    assert Path("baseline.json").read_text() == before


def test_a_checkpoint_made_worse_fails_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = train_task(SINGLE, num_envs=4, max_iterations=1, seed=1, log_dir=Path("run")).checkpoint
    rows = [row(SINGLE, "run", episodes=8, num_envs=8)]
    baseline(rows)
    code, report = gate(rows, *AGAINST)
    assert code == 0
    assert report["rows"][0]["comparison"]["change"] == 0.0
    spoil(checkpoint)
    code, report = gate(rows, *AGAINST)
    assert code == 1
    assert report["rows"][0]["comparison"]["relative_change"] < -0.1


@pytest.fixture
def spoil() -> Callable[[Path], None]:
    """Makes a policy push the cart to one side with all its strength."""

    def push(checkpoint: Path) -> None:
        content = torch.load(checkpoint, weights_only=True)
        weights = content["actor_state_dict"]
        last = [name for name in weights if name.endswith("bias")][-1]
        weights[last].fill_(5.0)
        torch.save(content, checkpoint)

    return push
