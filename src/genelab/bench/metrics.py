"""From samples to the numbers of a bundle."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from genelab.bench.schema import EnvironmentStepTiming, LearningCurve, MeanStd
from genelab.statistics import Interval, share_interval


def mean_std(values: Sequence[float]) -> MeanStd | None:
    """Mean, spread and largest of the samples; None without any, or if one is no finite number."""
    if not values or not all(math.isfinite(value) for value in values):
        return None
    mean = math.fsum(values) / len(values)
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return MeanStd(mean=mean, std=spread, peak=max(mean, *values))


def throughput(work: Sequence[float], seconds: Sequence[float]) -> MeanStd | None:
    """Work per second: all work over all time, which is not the mean of the rates; their spread and the fastest."""
    rates = mean_std([amount / max(time, 1e-9) for amount, time in zip(work, seconds, strict=True)])
    if rates is None or rates.peak is None:
        return None
    mean = math.fsum(work) / max(math.fsum(seconds), 1e-9)
    return MeanStd(mean=mean, std=rates.std, peak=max(mean, rates.peak))


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """What was measured of `env.step`, a sample per control step."""

    starts: Sequence[float] = ()
    """When each call began, s."""
    environment: Sequence[float] = ()
    """Seconds of each call."""
    simulation: Sequence[float] | None = None
    """Seconds of the engine within each call; None if they cannot be told apart."""
    simulation_calls: Sequence[int] = ()
    """Calls of the engine within each call."""
    synchronized: bool = False
    """Whether each call ended with waiting for the device."""

    @property
    def wall_s(self) -> float:
        """From the start of the first call to the end of the last."""
        return self.starts[-1] + self.environment[-1] - self.starts[0] if self.starts else 0.0

    def after(self, steps: int) -> StepTimes:
        """Without the first ones."""
        return replace(
            self,
            starts=self.starts[steps:],
            environment=self.environment[steps:],
            simulation=None if self.simulation is None else self.simulation[steps:],
            simulation_calls=self.simulation_calls[steps:],
        )


def step_timing(times: StepTimes, num_envs: int, warmup_steps: int) -> EnvironmentStepTiming | None:
    """Where the time of `env.step` went; None if there was no step."""
    environment = mean_std(times.environment)
    fps = throughput([num_envs] * len(times.environment), times.environment)
    if environment is None or fps is None:
        return None
    simulation = outside = fraction = None
    if times.simulation is not None:
        rest = [whole - part for whole, part in zip(times.environment, times.simulation, strict=True)]
        simulation, outside = mean_std(times.simulation), mean_std(rest)
        fraction = math.fsum(rest) / max(math.fsum(times.environment), 1e-9)
    return EnvironmentStepTiming(
        environment_step_time_s=environment,
        environment_step_fps=fps,
        simulation_step_time_s=simulation,
        outside_simulation_step_time_s=outside,
        outside_simulation_step_fraction=fraction,
        environment_step_calls=len(times.environment),
        simulation_step_calls=None if times.simulation is None else sum(times.simulation_calls),
        measurement_mode="serialized_synchronized" if times.synchronized else "host_return",
        warmup_steps=warmup_steps,
    )


def learning_curve(series: Sequence[float | None], alpha: float, *, keep: bool) -> LearningCurve | None:
    """A series with its last value, raw and smoothed; None if it has none. `keep` keeps the series itself."""
    clean = [value if value is not None and math.isfinite(value) else None for value in series]
    known = [value for value in clean if value is not None]
    if not known:
        return None
    smooth = known[0]
    for value in known[1:]:
        smooth += alpha * (value - smooth)
    return LearningCurve(final_raw=known[-1], final_ema=smooth, series_per_iter=tuple(clean) if keep else None)


@dataclass(kw_only=True)
class SuccessCount:
    """Episodes that ended, and how many of them succeeded."""

    hits: int = 0
    episodes: int = 0

    @property
    def rate(self) -> float | None:
        """Share of the episodes that succeeded; None before one has ended."""
        return self.hits / self.episodes if self.episodes else None

    @property
    def interval(self) -> Interval | None:
        """95 % interval of the rate; None before an episode has ended."""
        return share_interval(self.hits, self.episodes) if self.episodes else None


def pooled(counts: Sequence[SuccessCount]) -> SuccessCount:
    """All episodes together, so that an iteration with few of them counts for little."""
    return SuccessCount(hits=sum(one.hits for one in counts), episodes=sum(one.episodes for one in counts))
