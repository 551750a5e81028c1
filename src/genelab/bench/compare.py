"""Two benchmarks beside each other: was it slower?

The gate is `total_fps`. Both sides must have run the same work on the same machine with the same libraries; several
runs of a side are pooled. Start-up times are shown and never fail: they vary with what is in the caches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from genelab.bench.schema import Bundle, MeanStd, StartupBundle, workflow_of
from genelab.bench.serialize import read_bundle
from genelab.errors import UsageError
from genelab.statistics import Interval, mean_interval

_CHANGING = ("genelab", "git_commit", "git_branch", "git_dirty")
"""Versions that a comparison is about."""
_NO_WORK = ("env.simulation.engine", "env.simulation.vis", "env.seed", "agent.seed")
"""Overrides that are compared elsewhere, or change nothing of the work."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """The runs of one side, pooled."""

    runs: int
    mean: float
    interval: Interval | None
    """95 % interval of the mean; None for a single run."""


@dataclass(frozen=True, kw_only=True)
class ComparedNumber:
    """One number on both sides."""

    name: str
    before: Side
    after: Side
    verdict: Literal["ok", "slower", "regressed", "advisory"]

    @property
    def change(self) -> float:
        """The second over the first, minus one."""
        return self.after.mean / self.before.mean - 1.0


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Everything that both sides have."""

    rows: list[ComparedNumber]

    @property
    def regressed(self) -> bool:
        """Whether the gate has closed."""
        return any(row.verdict == "regressed" for row in self.rows)


def compare_files(
    before: Sequence[Path], after: Sequence[Path], *, fail: float = 0.10, warn: float = 0.05
) -> Comparison:
    """Compare files of bundles."""
    sides = [{path: read_bundle(path) for path in paths} for paths in (before, after)]
    return compare_bundles(*sides, fail=fail, warn=warn)


def compare_bundles(
    before: Mapping[Path, Bundle], after: Mapping[Path, Bundle], *, fail: float = 0.10, warn: float = 0.05
) -> Comparison:
    """Compare bundles, which are named by their files; a throughput that drops by more than `fail` is a regression."""
    if not 0 <= warn <= fail < 1:
        raise UsageError(f"`warn` and `fail` are shares with 0 ≤ warn ≤ fail < 1, got {warn} and {fail}")
    everything = {**before, **after}
    for path, bundle in everything.items():
        if bundle.run.status != "completed":
            raise UsageError(f"{path}: the run {bundle.run.status}; only completed runs can be compared")
        if not isinstance(bundle, StartupBundle) and bundle.runtime.total_fps is None:
            raise UsageError(f"{path}: has no total_fps, which is what the gate compares")
    _check_comparable(everything)
    rows = []
    for name, read in _numbers(next(iter(everything.values()))).items():
        values = [[read(bundle) for bundle in side.values()] for side in (before, after)]
        if any(value is None for side in values for value in side):
            continue
        rate = name.endswith(("_fps", "_per_s"))
        first, second = (_pool([value for value in side if value is not None], rate=rate) for side in values)
        rows.append(_judge(name, first, second, fail, warn))
    return Comparison(rows=rows)


def _judge(name: str, before: Side, after: Side, fail: float, warn: float) -> ComparedNumber:
    drop = 1.0 - after.mean / before.mean
    verdict: Literal["ok", "slower", "regressed", "advisory"] = "advisory"
    if name == "total_fps":
        verdict = "regressed" if drop > fail else "slower" if drop > warn else "ok"
    return ComparedNumber(name=name, before=before, after=after, verdict=verdict)


def _pool(values: Sequence[float], *, rate: bool) -> Side:
    """The mean of runs; of rates, all work over all time, which for equal work is their harmonic mean."""
    samples = [1.0 / value for value in values] if rate else list(values)
    mean, interval = sum(samples) / len(samples), mean_interval(samples)
    if rate:
        mean = 1.0 / mean
        interval = None if interval is None or interval[0] <= 0 else (1.0 / interval[1], 1.0 / interval[0])
    return Side(runs=len(values), mean=mean, interval=interval)


def _numbers(sample: Bundle) -> dict[str, Callable[[Any], float | None]]:
    """What is compared, by name."""

    def mean(read: Callable[[Any], MeanStd | None]) -> Callable[[Any], float | None]:
        return lambda bundle: None if (value := read(bundle)) is None else value.mean

    if isinstance(sample, StartupBundle):
        return {f"{name}_s": partial(_phase_time, name=name) for name in sample.phases}
    return {
        "total_fps": mean(lambda bundle: bundle.runtime.total_fps),
        "collection_fps": mean(lambda bundle: bundle.runtime.collection_fps),
        "environment_step_fps": mean(
            lambda bundle: (timing := bundle.runtime.environment_step_timing) and timing.environment_step_fps
        ),
        "ram_gb": mean(lambda bundle: bundle.resources.ram_gb),
        "env_creation_s": lambda bundle: bundle.runtime.startup_time_s.env_creation,
    }


def _phase_time(bundle: StartupBundle, name: str) -> float | None:
    return bundle.phases[name].total_time_s if name in bundle.phases else None


def workload_of(bundle: Bundle) -> dict[str, Any]:
    """What must be the same for two throughputs to mean the same."""
    run = bundle.run
    work: dict[str, Any] = {
        "workflow": workflow_of(bundle),
        "schema_version": bundle.schema_version,
        "task": run.task,
        "engine": run.config.physics_backend,
        "framework": run.framework,
        "num_envs": run.num_envs,
        "max_iterations": run.max_iterations,
        "overrides": _overrides(run.config.overrides),
    }
    if not isinstance(bundle, StartupBundle):
        timing = bundle.runtime.environment_step_timing
        work["warmup_steps"] = None if timing is None else timing.warmup_steps
        work["steps_per_iteration"] = bundle.runtime.steps_per_iteration
        work["iterations_completed"] = bundle.runtime.iterations_completed
        work["checkpoint"] = bundle.extra.get("checkpoint_sha256")
    versions = asdict(bundle.versions)
    versions = {
        name: value for name, value in {**versions, **versions.pop("packages")}.items() if name not in _CHANGING
    }
    machine = bundle.hardware
    gpus = ", ".join(gpu.name for gpu in machine.gpu_devices) or "none"
    return {**work, **versions, "CPU": machine.cpu_name, "cores": machine.cpu_count, "GPU": gpus}


def _overrides(changes: Sequence[str]) -> str:
    """What they do to the work, in whatever order they were given; of one path the last counts."""
    values = dict(change.split("=", 1) for change in changes)
    return ", ".join(f"{path}={values[path]}" for path in sorted(values) if path not in _NO_WORK) or "none"


def _check_comparable(bundles: Mapping[Path, Bundle]) -> None:
    (first, reference), *others = bundles.items()
    expected = workload_of(reference)
    for path, bundle in others:
        found = workload_of(bundle)
        if different := [name for name in {**expected, **found} if expected.get(name) != found.get(name)]:
            parts = [f"{name} {expected.get(name)} ≠ {found.get(name)}" for name in different]
            raise UsageError(f"{first} and {path} cannot be compared: {'; '.join(parts)}")


def bundle_files(words: str) -> list[Path]:
    """The files that a word stands for: a file, a directory of bundles, or several of either with commas between."""
    found: list[Path] = []
    for word in words.split(","):
        path = Path(word)
        files = sorted(path.glob("benchmark_*.json")) if path.is_dir() else [path]
        found += [file for file in files if not file.name.endswith(".phases.json")]
    if not found:
        raise UsageError(f"{words}: no benchmark_*.json in it")
    return found
