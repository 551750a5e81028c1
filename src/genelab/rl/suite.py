"""Many evaluations at once, held against an earlier report: a gate for continuous integration."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from genelab.config import TASKS, check_out, expect, read_json, write_json_out
from genelab.errors import ConfigError, GenelabError, UsageError, did_you_mean, summary
from genelab.rl.evaluator import EvalSettings, evaluate_task
from genelab.rl.fetch import is_uri

_WORDS = ("latest", "pretrained")


@dataclass(frozen=True, kw_only=True)
class SuiteRow:
    """One evaluation of a suite."""

    task: str
    checkpoint: str
    """A file, a run directory, `latest` or `pretrained`."""
    best: bool = False
    """Of a run, the checkpoint with the best evaluation in training."""
    episodes: int = 100
    seed: int = 0
    num_envs: int = 64


class RowIdentity(NamedTuple):
    """What tells a row from others."""

    task: str
    checkpoint: str
    seed: int
    rest: str
    """Everything else that changes the evaluation."""


@dataclass(kw_only=True)
class Outcome:
    """What became of a row."""

    given: Any
    """The row as it stands in the suite."""
    row: SuiteRow | None = None
    """The row as it was understood."""
    evaluation: dict[str, Any] | None = None
    error: str | None = None
    """Why there is no evaluation."""
    bad_input: bool = False
    """Whether the error is one of the row, not of the policy."""
    comparison: dict[str, Any] | None = None
    """How it compares with the baseline; None without one, or without an evaluation."""

    @property
    def status(self) -> Literal["ok", "new", "regressed", "bad input", "failed", "not run"]:
        """One word for the table."""
        if self.error is not None:
            return "bad input" if self.bad_input else "failed"
        if self.evaluation is None:
            return "not run"
        return "ok" if self.comparison is None else self.comparison["status"]

    def report(self) -> dict[str, Any]:
        """For the report file."""
        given = self.given if self.row is None else dataclasses.asdict(self.row)
        fields = given if isinstance(given, dict) else {"given": given}
        result = {name: getattr(self, name) for name in ("status", "error", "comparison", "evaluation")}
        return {**fields, **result}


@dataclass(kw_only=True)
class SuiteResult:
    """What became of a suite."""

    outcomes: list[Outcome]
    """In the order of the suite."""
    missing: list[dict[str, Any]]
    """Rows of the baseline that no row of the suite answers to."""

    @property
    def exit_code(self) -> int:
        """1 if a policy got worse or could not be judged, otherwise 2 if the input was wrong, otherwise 0.

        A regression stands whatever else is wrong. A row of the baseline that the suite lacks is wrong input: leaving
        a row out must not pass for mending it.
        """
        found = {outcome.status for outcome in self.outcomes}
        if found & {"regressed", "failed", "not run"}:
            return 1
        return 2 if "bad input" in found or self.missing else 0


def run_suite(
    suite: str | Path,
    out: str | Path,
    *,
    reference: str | Path | None = None,
    tolerance: float = 0.1,
    notify: Callable[[str], None] = lambda message: None,
) -> SuiteResult:
    """Evaluate every row of a suite and write the report, after each row; one that fails does not stop the others.

    With a reference, an earlier report, a return that drops by more than `tolerance` × its size is a regression.
    """
    if not 0 <= tolerance < math.inf:  # with a NaN nothing would ever be a regression
        raise UsageError(f"`tolerance` must be a number of at least 0, got {tolerance}")
    suite, out, reference = Path(suite), Path(out), None if reference is None else Path(reference)
    outcomes = read_suite(suite)
    baseline = None if reference is None else read_baseline(reference)
    if reference is not None and reference.resolve() == out.resolve():
        raise UsageError(f"`out`: {out} is the reference, which would be lost; give another file")
    check_out(out)

    def write() -> SuiteResult:
        missing = [] if baseline is None else compare(outcomes, baseline, tolerance)
        result = SuiteResult(outcomes=outcomes, missing=missing)
        report = {
            "suite": str(suite),
            "created_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "reference": None if reference is None else str(reference),
            "tolerance": None if reference is None else tolerance,
            "exit_code": result.exit_code,
            "rows": [outcome.report() for outcome in outcomes],
            "missing": missing,
        }
        write_json_out(report, out)
        return result

    for number, outcome in enumerate(outcomes, start=1):
        if outcome.row is not None:
            notify(f"row {number}/{len(outcomes)}: {outcome.row.task} {outcome.row.checkpoint}")
            _evaluate(outcome, outcome.row, suite.parent, notify)
            write()  # whatever becomes of the next row
    return write()


def read_suite(path: Path) -> list[Outcome]:
    """The rows of a suite; a bad one has its error already."""
    rows = _read_json(path, "suite")
    if not isinstance(rows, list) or not rows:
        raise UsageError(f'`suite`: {path} must be a list of rows like {{"task": ..., "checkpoint": ...}}')
    outcomes = []
    seen: dict[SuiteRow, int] = {}
    for number, given in enumerate(rows, start=1):
        outcome = Outcome(given=given)
        try:
            outcome.row = _parse_row(given)
            if outcome.row in seen:
                raise UsageError(f"the same as row {seen[outcome.row]}")
            seen[outcome.row] = number
        except UsageError as error:
            outcome.row, outcome.error, outcome.bad_input = None, str(error), True
        outcomes.append(outcome)
    return outcomes


def read_baseline(path: Path) -> list[dict[str, Any]]:
    """The evaluated rows of an earlier report."""
    report = _read_json(path, "reference")
    try:
        rows = [row for row in report["rows"] if row["evaluation"] is not None]
        for row in rows:
            expect(row, {"task": str, "checkpoint": str, "seed": int}, "row")
            expect(row["evaluation"], {"metrics": {"return_mean": float}}, "evaluation")
    except (KeyError, TypeError, ConfigError) as error:
        raise UsageError(f"`reference`: {path} is not a report of a suite") from error
    if not rows:
        raise UsageError(f"`reference`: {path} has no evaluated row to compare with")
    return rows


def compare(outcomes: Sequence[Outcome], baseline: Sequence[dict[str, Any]], tolerance: float) -> list[dict[str, Any]]:
    """Give every row its comparison; returns what the baseline has and the suite lacks."""
    # A bad row is compared with nothing, but it still answers to its row of the baseline.
    rows = [outcome.given if outcome.row is None else dataclasses.asdict(outcome.row) for outcome in outcomes]
    pairs = match([_identity(row) for row in rows], [_identity(row) for row in baseline])
    returns = [row["evaluation"]["metrics"]["return_mean"] for row in baseline]
    for i, outcome in enumerate(outcomes):
        if outcome.evaluation is not None:
            before = returns[pairs[i]] if i in pairs else None
            outcome.comparison = judge(outcome.evaluation["metrics"]["return_mean"], before, tolerance)
    names = ("task", "checkpoint", "seed")
    answered = set(pairs.values())
    return [
        {**{name: row[name] for name in names}, "return_mean": value}
        for j, (row, value) in enumerate(zip(baseline, returns, strict=True))
        if j not in answered
    ]


def judge(value: float, reference: float | None, tolerance: float) -> dict[str, Any]:
    """A return beside the one of the baseline; a drop of more than `tolerance` × |reference| is a regression."""
    if reference is None:
        return {"status": "new", "reference": None, "value": value, "regressed": False}
    change = value - reference
    regressed = -change > tolerance * abs(reference)
    return {
        "status": "regressed" if regressed else "ok",
        "reference": reference,
        "value": value,
        "change": change,
        "relative_change": change / abs(reference) if reference else None,
        "regressed": regressed,
    }


def match(suite: Sequence[RowIdentity], baseline: Sequence[RowIdentity]) -> dict[int, int]:
    """Which row of the baseline each row of the suite answers to, whatever their order.

    A task that stands once on both sides is the same row, whatever its checkpoint. Otherwise the checkpoint or the seed
    must tell the rows of the task apart.
    """
    keys: tuple[Callable[[RowIdentity], Hashable], ...] = (
        lambda row: row,
        lambda row: (row.task, row.checkpoint, row.seed),
        lambda row: (row.task, row.checkpoint),
        lambda row: (row.task, "seed", row.seed),
        lambda row: row.task,
    )
    pairs: dict[int, int] = {}
    for key in keys:
        ours, theirs = _unique(suite, key), _unique(baseline, key)
        for name in ours.keys() & theirs.keys():
            if ours[name] not in pairs and theirs[name] not in pairs.values():
                pairs[ours[name]] = theirs[name]
    return pairs


def _identity(row: Any) -> RowIdentity:
    row = row if isinstance(row, dict) else {}
    rest = [
        row.get("episodes", SuiteRow.episodes),
        row.get("num_envs", SuiteRow.num_envs),
        row.get("best", SuiteRow.best),
    ]
    seed = row.get("seed", SuiteRow.seed)
    task, checkpoint = str(row.get("task", "")).casefold(), str(row.get("checkpoint", ""))
    return RowIdentity(task, checkpoint, seed if isinstance(seed, int) else SuiteRow.seed, json.dumps(rest))


def _unique(rows: Sequence[RowIdentity], key: Callable[[RowIdentity], Hashable]) -> dict[Hashable, int]:
    """The rows that no other row shares the key with, by key; of rows that repeat each other the first."""
    found: dict[Hashable, dict[RowIdentity, int]] = {}
    for i, row in enumerate(rows):
        found.setdefault(key(row), {}).setdefault(row, i)
    return {name: next(iter(places.values())) for name, places in found.items() if len(places) == 1}


def _evaluate(outcome: Outcome, row: SuiteRow, home: Path, notify: Callable[[str], None]) -> None:
    settings = EvalSettings(episodes=row.episodes, seed=row.seed, num_envs=row.num_envs, probe=False)
    try:
        checkpoint = _checkpoint(row.checkpoint, home)
        outcome.evaluation = evaluate_task(row.task, checkpoint, settings, best=row.best, notify=notify)
    except GenelabError as error:
        outcome.error, outcome.bad_input = str(error), error.exit_code == UsageError.exit_code
    except Exception as error:  # whatever is wrong with one row, the others are still worth running
        outcome.error = summary(error)


def _checkpoint(word: str, home: Path) -> str | Path:
    """A path is meant from the suite's directory or, if it is not there, from the current one."""
    if word in _WORDS or is_uri(word):
        return word
    beside = home / word
    return beside if beside.exists() else Path(word)


def _parse_row(given: Any) -> SuiteRow:
    if not isinstance(given, dict):
        raise UsageError(f"a row must be an object with task and checkpoint, got {json.dumps(given)}")
    fields = {field.name: field for field in dataclasses.fields(SuiteRow)}
    for name in given:
        if name not in fields:
            raise UsageError(f"unknown key {name!r}.{did_you_mean(name, fields) or ' Known: ' + ', '.join(fields)}")
    for name in ("task", "checkpoint"):
        if not isinstance(given.get(name), str) or not given[name]:
            raise UsageError(f"{name} is missing or no text")
    for name, least in (("episodes", 1), ("seed", 0), ("num_envs", 1)):
        value = given.get(name, least)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UsageError(f"{name} must be a whole number of at least {least}, got {json.dumps(value)}")
    if not isinstance(given.get("best", False), bool):
        raise UsageError(f"best must be true or false, got {json.dumps(given['best'])}")
    return SuiteRow(**{**given, "task": TASKS.entry(given["task"]).id})


def _read_json(path: Path, name: str) -> Any:
    try:
        return read_json(path)
    except UsageError as error:
        raise UsageError(f"`{name}`: {error}") from error
