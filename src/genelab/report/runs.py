"""Run directories as a report reads them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from genelab.config import expect, read_json
from genelab.config.files import inside
from genelab.errors import UsageError, refusing
from genelab.rl.run import RunDirectory

_OF_A_SEED = ("agent.seed", "env.seed")
"""Config paths in which the runs of one group may differ."""

_INTERVAL = tuple[float, float] | None
_EVALUATION: dict[str, Any] = {
    "engine": str,
    "checkpoint": str,
    "num_episodes": int,
    "evaluated_at": str,
    "metrics": {
        "return_mean": float,
        "return_ci95": _INTERVAL,
        "length_mean": float,
        "length_ci95": _INTERVAL,
        "success_rate": float | None,
        "success_ci95": _INTERVAL,
    },
}
"""What is told of an evaluation."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One logged number over a run."""

    iteration: np.ndarray
    """What was spent of the budget, in the backend's unit."""
    values: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run."""

    path: Path
    record: dict[str, Any]
    """`run.json`."""
    params: dict[str, str]
    """Every leaf of the env and agent configs by its dotted path."""
    curves: dict[str, Curve]
    """By tag."""
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    """What `genelab eval` wrote into the run directory, the newest last."""
    film: Path | None = None
    """The newest film in the run directory."""

    @property
    def task(self) -> str:
        """The task it learned."""
        return self.record["task"]

    def axis(self, iteration: np.ndarray, unit: str) -> np.ndarray:
        """What was spent of the budget as `steps` or `minutes`, or, for `iterations`, as it is."""
        if unit == "iterations":
            return iteration
        if unit == "steps":
            steps = self.curves["Train/env_steps"]
            return np.interp(iteration, steps.iteration, steps.values)
        return np.interp(iteration, *self._minutes())

    @property
    def unit(self) -> str:
        """What its library's budget counts."""
        return self.record.get("unit") or "iterations"

    @property
    def seconds(self) -> float | None:
        """How long it took, without the pauses before it was resumed."""
        return self.record["wall_seconds"]

    def _minutes(self) -> tuple[np.ndarray, np.ndarray]:
        """Time spent collecting and learning; the clock on the wall would count the pause before a resume."""
        collect, learn = self.curves["Perf/collection_time"], self.curves["Perf/learning_time"]
        return collect.iteration, np.cumsum(collect.values + learn.values) / 60.0


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs that differ in nothing but their seed."""

    label: str
    runs: list[Run]
    """One of each seed: the same seed in the same config is the same sample, however often it was run or copied."""
    repeats: list[Run] = field(default_factory=list)
    """The other runs of these seeds."""

    @property
    def task(self) -> str:
        """The task they learned."""
        return self.runs[0].task

    @property
    def seeds(self) -> list[int]:
        """Their seeds."""
        return [run.record["seed"] for run in self.runs]


def read_groups(paths: Sequence[Path]) -> list[Group]:
    """The runs in these directories, by task and by config; a directory with `seed_*` in it stands for those."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in [read_run(path) for path in _expand(paths)]:
        settings = {key: value for key, value in run.params.items() if key not in _OF_A_SEED}
        groups.setdefault((run.task, json.dumps(settings, sort_keys=True)), []).append(run)
    tasks = list(dict.fromkeys(task for task, _ in groups))
    named = [_group(runs) for task in tasks for (of, _), runs in groups.items() if of == task]
    return _unique(named)


def _group(runs: Sequence[Run]) -> Group:
    """A group of runs, of which one is taken for each seed: the longest, and of those one that was judged."""
    best: dict[int, Run] = {}
    for run in runs:
        best[run.record["seed"]] = max(best.get(run.record["seed"], run), run, key=_worth)
    samples = list(best.values())
    repeats = [run for run in runs if all(run is not sample for sample in samples)]
    return Group(label=_label(runs), runs=samples, repeats=repeats)


def _worth(run: Run) -> tuple[float, bool]:
    return float(run.curves["Train/env_steps"].values[-1]), bool(run.evaluations)


def _expand(paths: Sequence[Path]) -> list[Path]:
    found: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise UsageError(f"{path} is no directory; give run directories")
        seeds = sorted((one for one in path.glob("seed_*") if (one / "run.json").is_file()), key=_seed_number)
        for seed in seeds:
            if not inside(seed, path):
                raise UsageError(f"{seed} is a link out of {path}: name the run it points to instead")
        for run in [path] if (path / "run.json").is_file() or not seeds else seeds:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def _seed_number(path: Path) -> tuple[int, str]:
    number = path.name.removeprefix("seed_")
    return (int(number), "") if number.isdecimal() else (0, number)


def _label(runs: Sequence[Run]) -> str:
    path = runs[0].path.resolve()
    return path.parent.name if path.name.startswith("seed_") else path.name


def _unique(groups: Sequence[Group]) -> list[Group]:
    """Groups of one task with the same label are told apart by a number."""
    seen: dict[tuple[str, str], int] = {}
    result = []
    for group in groups:
        key = (group.task, group.label)
        seen[key] = seen.get(key, 0) + 1
        label = group.label if seen[key] == 1 else f"{group.label} ({seen[key]})"
        result.append(replace(group, label=label))
    return result


def read_run(path: Path) -> Run:
    """Everything a report needs of a run directory."""
    directory = RunDirectory(path)
    directory.check_links()
    record = directory.read()
    params: dict[str, str] = {}
    for name in ("env", "agent"):
        try:
            params |= _leaves(read_json(path / "params" / f"{name}.json"), name)
        except (UsageError, RecursionError) as error:
            raise UsageError(f"{path} has no readable params/{name}.json") from error
    films = [film for film in (*path.glob("*.mp4"), *path.glob("videos/*.mp4")) if film.is_file()]
    return Run(
        path=path,
        record=record,
        params=params,
        curves=_read_events(path, record),
        evaluations=_read_evaluations(path),
        film=max(films, key=lambda film: film.stat().st_mtime, default=None),
    )


def _read_events(path: Path, record: dict[str, Any]) -> dict[str, Curve]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = EventAccumulator(str(path), size_guidance={"scalars": 0})
    if any(path.glob("events.out.tfevents.*")):
        with refusing(path, "its event files cannot be read"):
            log.Reload()
    tags = log.Tags()["scalars"]
    if "Train/env_steps" not in tags:
        where = "it was logged to wandb" if record.get("logger") == "wandb" else "no iteration was logged"
        raise UsageError(f"{path} has no curves to show: {where}")
    curves = {}
    for tag in tags:
        points = _last_told((event.step, event.value) for event in log.Scalars(tag))
        iteration, values = np.array(points, dtype=np.float64).T
        curves[tag] = Curve(iteration=iteration, values=values)
    return curves


def _last_told(points: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    """Without the iterations that were lost when a run was killed, and told again when it was resumed before them."""
    kept: list[tuple[int, float]] = []
    for point in points:
        while kept and kept[-1][0] >= point[0]:
            kept.pop()
        kept.append(point)
    return kept


def _read_evaluations(path: Path) -> list[dict[str, Any]]:
    found = []
    for file in path.glob("*.json"):
        with contextlib.suppress(UsageError):  # whatever else lies there
            report = expect(read_json(file), {"engines": dict | None}, file)
            found += [expect(one, _EVALUATION, file) for one in (report.get("engines") or {"": report}).values()]
    return sorted(found, key=lambda one: one["evaluated_at"])


def _leaves(value: Any, path: str) -> dict[str, str]:
    """Every value of nested dicts by its dotted path, as text."""
    if isinstance(value, dict) and value:
        return {key: leaf for name, part in value.items() for key, leaf in _leaves(part, f"{path}.{name}").items()}
    return {path: value if isinstance(value, str) else json.dumps(value)}
