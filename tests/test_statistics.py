"""Intervals, against tables and by trial."""

from __future__ import annotations

import random

import pytest

from genelab.statistics import mean_interval, share_interval, student_t
from tests.narrow import present


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (99, 1.984), (10**6, 1.960)]
)
def test_students_t_is_that_of_the_tables(freedom: int, quantile: float) -> None:
    assert student_t(freedom) == pytest.approx(quantile, rel=1e-3)


def test_the_interval_of_a_mean_by_hand() -> None:
    # Mean 2, deviation 1, three values: 2 ± 4.303 / √3.
    assert mean_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.484, 2 + 2.484), abs=1e-3)
    assert mean_interval([5.0]) is None


def test_samples_that_are_all_the_same_have_no_interval() -> None:
    assert mean_interval([5.0, 5.0]) is None
    assert mean_interval([0.0] * 9) is None
    assert mean_interval([141.90448, 141.904481, 141.904479]) is None  # the rounding of a sum in single precision
    assert mean_interval([1000.0] * 99 + [999.0]) is not None


def test_the_interval_of_strata_by_hand() -> None:
    # Within both strata the variance is 2, over two values: 2 of 4 samples each, 1/4 · 2/2 + 1/4 · 2/2 = 1/2.
    low, high = present(mean_interval([0.0, 2.0, 10.0, 12.0], ["a", "a", "b", "b"]))
    assert (low + high) / 2 == pytest.approx(6.0)
    assert high - low == pytest.approx(2 * 4.303 * 0.5**0.5, rel=1e-3)  # two degrees of freedom
    # A stratum of one sample is taken to vary as the others do.
    one = present(mean_interval([0.0, 2.0, 10.0], ["a", "a", "b"]))
    assert one[1] - one[0] == pytest.approx(2 * 12.706 * (4 / 9 * 1.0 + 1 / 9 * 2.0) ** 0.5, rel=1e-3)
    # Where strata do not vary, nothing is known within them.
    assert mean_interval([1.0, 1.0, 3.0, 3.0], ["a", "a", "b", "b"]) == mean_interval([1.0, 1.0, 3.0, 3.0])


def test_19_of_20_intervals_of_strata_hold_the_true_mean_and_are_narrower() -> None:
    rng = random.Random(0)
    hits, narrower = 0, 0
    strata = ["easy"] * 6 + ["hard"] * 4
    for _ in range(2000):
        values = [rng.gauss(10.0, 1.0) for _ in range(6)] + [rng.gauss(2.0, 3.0) for _ in range(4)]
        low, high = present(mean_interval(values, strata))
        hits += low <= 6.8 <= high
        simple = present(mean_interval(values))
        narrower += high - low < simple[1] - simple[0]
    assert hits / 2000 == pytest.approx(0.95, abs=0.02)
    assert narrower > 1900


def test_19_of_20_intervals_hold_the_true_mean() -> None:
    rng = random.Random(0)
    hits = 0
    for _ in range(2000):
        interval = mean_interval([rng.gauss(3.0, 2.0) for _ in range(5)])
        assert interval is not None
        low, high = interval
        hits += low <= 3.0 <= high
    assert hits / 2000 == pytest.approx(0.95, abs=0.015)


def test_the_interval_of_a_share_is_wilsons() -> None:
    assert share_interval(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert share_interval(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert [share_interval(0, n)[0] for n in range(1, 200)] == [0.0] * 199  # not 7e-18
    assert share_interval(96, 100) == pytest.approx((0.9016, 0.9843), abs=1e-4)
