"""The tables of a report."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from genelab.report.runs import Group, Run
from genelab.statistics import Interval, mean_interval
from genelab.text import markdown

MOST_DIFFERENCES = 40
_ANY: Interval = (-math.inf, math.inf)
_SHARE: Interval = (0.0, 1.0)
"""Between what a share of episodes can be."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text under a head."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def markdown(self) -> str:
        """As Markdown."""
        lines = [self.head, tuple("---" for _ in self.head), *self.rows]
        cells = ([markdown(cell) for cell in line] for line in lines)
        return "\n".join("| " + " | ".join(line) + " |" for line in cells) + "\n"


def evaluation_table(groups: Sequence[Group]) -> Table:
    """How good each group got, with 95 % intervals: over episodes for one run, over the means of several runs."""
    rows = []
    for group in groups:
        engines = list(dict.fromkeys(one["engine"] for run in group.runs for one in run.evaluations))
        for engine in engines or [None]:
            rows.append((*_who(group), *_judged(group, engine), *_effort(group)))
    head = ("task", "run", "seeds", "return", "length", "success", "judged by", "environments", "control steps", "time")
    return Table(head=head, rows=rows)


def _who(group: Group) -> tuple[str, str, str]:
    seeds = group.seeds
    told = str(seeds[0]) if len(seeds) == 1 else f"{len(seeds)} ({_listed(seeds)})"
    again = Counter(run.record["seed"] for run in group.repeats)
    told += "".join(f"; {count + 1} runs of seed {seed} count once" for seed, count in again.items())
    return group.task, group.label, told


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(str(seed) for seed in seeds[:5]) + (" …" if len(seeds) > 5 else "")


def _judged(group: Group, engine: str | None) -> tuple[str, str, str, str]:
    """Return, length and success on an engine, and how they were found."""
    reports = [found for run in group.runs if (found := _newest(run, engine)) is not None]
    if not reports:
        return _judged_in_training(group)
    metrics = [report["metrics"] for report in reports]
    cells = []
    for name, interval, digits in (("return_mean", "return_ci95", 3), ("length_mean", "length_ci95", 1)):
        means = [one[name] for one in metrics]
        cells.append(_mean(means, metrics[0].get(interval), digits))
    rates = [one["success_rate"] for one in metrics if one["success_rate"] is not None]
    cells.append(_mean(rates, metrics[0].get("success_ci95"), 3, _SHARE) if rates else "–")
    episodes = sorted({report["num_episodes"] for report in reports})
    how = f"{' or '.join(str(n) for n in episodes)} episodes on {engine}"
    missing = len(group.runs) - len(reports)
    return cells[0], cells[1], cells[2], how + (f", {missing} runs not judged" if missing else "")


def _judged_in_training(group: Group) -> tuple[str, str, str, str]:
    """The last evaluation of the training, or else its own episodes."""
    for prefix, names, how in (
        ("Eval/", ("return_mean", "length_mean", "success_rate"), "last evaluation in training"),
        ("Train/", ("mean_reward", "mean_episode_length", None), "episodes of the training itself"),
    ):
        if all(f"{prefix}{names[0]}" in run.curves for run in group.runs):
            cells = []
            for name, digits, limits in zip(names, (3, 1, 3), (_ANY, _ANY, _SHARE), strict=True):
                tag = f"{prefix}{name}"
                ends = [float(run.curves[tag].values[-1]) for run in group.runs if tag in run.curves]
                cells.append(_mean(ends, None, digits, limits) if ends else "–")
            return cells[0], cells[1], cells[2], how
    return "–", "–", "–", "no episode ended"


def _newest(run: Run, engine: str | None) -> dict[str, Any] | None:
    return next((one for one in reversed(run.evaluations) if one["engine"] == engine), None)


def _mean(values: Sequence[float], of_one: Interval | None, digits: int, limits: Interval = _ANY) -> str:
    """A mean with its interval: that of the only value, or over several; what cannot be is not in it."""
    interval = of_one if len(values) == 1 else mean_interval(values)
    text = f"{sum(values) / len(values):.{digits}f}"
    if interval is None:
        return text
    low, high = max(interval[0], limits[0]), min(interval[1], limits[1])
    return f"{text} [{low:.{digits}f}, {high:.{digits}f}]"


def _effort(group: Group) -> tuple[str, str, str]:
    records = [run.record for run in group.runs]
    steps = [record.get("env_steps") or _last_steps(run) for record, run in zip(records, group.runs, strict=True)]
    seconds = [run.seconds for run in group.runs if run.seconds]
    time = duration(sum(seconds) / len(seconds)) if seconds else "–"
    return f"{records[0]['num_envs']:,}", f"{sum(steps) / len(steps):,.0f}", time


def _last_steps(run: Run) -> float:
    return float(run.curves["Train/env_steps"].values[-1])


def run_table(groups: Sequence[Group]) -> Table:
    """Every run by itself."""
    rows = []
    for group in groups:
        for run in (*group.runs, *group.repeats):
            record = run.record
            started = datetime.datetime.fromisoformat(record["started_at"]).strftime("%Y-%m-%d %H:%M")
            speed = f"{record['steps_per_second']:,.0f}" if record.get("steps_per_second") else "–"
            length = duration(run.seconds) if run.seconds else "–"
            budget = "–" if record.get("budget") is None else f"{record['budget']:,} {run.unit}"
            who = (group.label, str(record["seed"]), record["status"])
            rows.append((*who, started, budget, length, speed, str(run.path)))
    head = ("run", "seed", "status", "started, UTC", "budget", "time", "control steps/s", "directory")
    return Table(head=head, rows=rows)


def difference_table(groups: Sequence[Group]) -> Table | None:
    """Where the configs of one task's groups differ; None if there is only one."""
    if len(groups) < 2:
        return None
    configs = [group.runs[0].params for group in groups]
    paths = dict.fromkeys(path for config in configs for path in config)
    seeds = ("agent.seed", "env.seed")
    rows = []
    for path in paths:
        values = tuple(config.get(path, "–") for config in configs)
        if path not in seeds and len(set(values)) > 1:
            rows.append((path, *values))
    if len(rows) > MOST_DIFFERENCES:
        left = len(rows) - MOST_DIFFERENCES
        rows = [*rows[:MOST_DIFFERENCES], (f"and {left} more", *("" for _ in groups))]
    return Table(head=("config", *(group.label for group in groups)), rows=rows)


def machine_table(groups: Sequence[Group]) -> Table:
    """Hardware and versions: one column if they are the same for all runs, otherwise one for each group."""
    columns = [_machine(group.runs[0].record) for group in groups]
    same = all(column == columns[0] for column in columns)
    labels = ("all runs",) if same else tuple(group.label for group in groups)
    shown = columns[:1] if same else columns
    names = dict.fromkeys(name for column in shown for name in column)
    rows = [(name, *(column.get(name, "–") for column in shown)) for name in names]
    return Table(head=("", *labels), rows=rows)


def _machine(record: dict[str, Any]) -> dict[str, str]:
    hardware, git = record.get("hardware") or {}, record.get("git")
    found = {
        "processor": f"{hardware.get('cpu', '?')}, {hardware.get('cores', '?')} cores",
        "GPU": ", ".join(hardware.get("gpus") or []) or "none",
        "engine": f"{record['engine']} on {record['device']}",
        "library": record["backend"],
    }
    if git is not None:
        found["git"] = str(git.get("commit", "?"))[:12] + (", with changes" if git.get("dirty") else "")
    return found | {name: version for name, version in (record.get("versions") or {}).items() if version is not None}


def duration(seconds: float) -> str:
    """Seconds as 1 h 05 min, 12 min or 40 s."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"
