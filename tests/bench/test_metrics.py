"""Numbers that can be checked by hand."""

from __future__ import annotations

import math

import pytest

from genelab.bench.metrics import StepTimes, SuccessCount, learning_curve, mean_std, pooled, step_timing, throughput
from genelab.bench.schema import LearningCurve, MeanStd


def test_mean_and_spread_with_n_minus_one() -> None:
    assert mean_std([1.0, 2.0, 3.0]) == MeanStd(mean=2.0, std=1.0, peak=3.0)
    assert mean_std([5.0]) == MeanStd(mean=5.0, std=0.0, peak=5.0)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_no_samples_and_what_is_no_number_are_none_not_zero(values: list[float]) -> None:
    assert mean_std(values) is None


def test_a_rate_is_all_work_over_all_time() -> None:
    """Two samples of 100 and 10 a second: their mean is 55, but 20 in 1.1 s is 18.2."""
    rate = throughput([10, 10], [0.1, 1.0])
    assert rate is not None
    assert rate.mean == pytest.approx(20 / 1.1)
    assert rate.std == pytest.approx(math.sqrt(2 * 45**2))
    assert rate.peak == pytest.approx(100.0)
    assert throughput([], []) is None


def test_the_time_of_a_step_is_split() -> None:
    times = StepTimes(environment=[1.0, 3.0], simulation=[0.5, 1.5], simulation_calls=[3, 5])
    timing = step_timing(times, num_envs=4, warmup_steps=5)
    assert timing is not None
    assert timing.environment_step_time_s == MeanStd(mean=2.0, std=math.sqrt(2), peak=3.0)
    assert timing.environment_step_fps.mean == pytest.approx(2.0)
    assert timing.outside_simulation_step_time_s == timing.simulation_step_time_s
    assert timing.outside_simulation_step_fraction == pytest.approx(0.5)
    assert (timing.environment_step_calls, timing.simulation_step_calls, timing.warmup_steps) == (2, 8, 5)
    assert timing.measurement_mode == "host_return"


def test_the_first_steps_can_be_left_out() -> None:
    times = StepTimes(
        starts=[0.0, 5.0, 9.0], environment=[4.0, 1.0, 3.0], simulation=[2.0, 0.5, 1.5], simulation_calls=[2, 3, 5]
    )
    rest = times.after(1)
    assert (times.wall_s, rest.wall_s, StepTimes().wall_s) == (12.0, 7.0, 0.0)
    timing = step_timing(rest, num_envs=4, warmup_steps=1)
    assert timing is not None
    assert timing.environment_step_fps.mean == 2.0
    assert (timing.environment_step_calls, timing.simulation_step_calls) == (2, 8)


def test_what_cannot_be_told_apart_is_none() -> None:
    timing = step_timing(StepTimes(environment=[1.0], synchronized=True), num_envs=1, warmup_steps=0)
    assert timing is not None
    assert (timing.simulation_step_time_s, timing.simulation_step_calls) == (None, None)
    assert timing.outside_simulation_step_fraction is None
    assert timing.measurement_mode == "serialized_synchronized"
    assert step_timing(StepTimes(), num_envs=1, warmup_steps=0) is None


def test_a_curve_is_smoothed_over_what_it_has() -> None:
    series = [None, 1.0, math.nan, 3.0]
    kept = LearningCurve(final_raw=3.0, final_ema=1.5, series_per_iter=(None, 1.0, None, 3.0))
    assert learning_curve(series, 0.25, keep=True) == kept
    assert learning_curve(series, 0.25, keep=False) == LearningCurve(final_raw=3.0, final_ema=1.5)
    assert learning_curve([None, None], 0.1, keep=True) is None


def test_success_is_counted_by_episodes_not_by_iterations() -> None:
    counts = [SuccessCount(hits=1, episodes=1), SuccessCount(hits=0, episodes=9), SuccessCount()]
    assert pooled(counts).rate == 0.1
    assert SuccessCount().rate is None
