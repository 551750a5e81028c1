"""Intervals, against tables and by trial."""

from __future__ import annotations

import random

import pytest

from genelab.statistics import mean_interval, overlap, share_interval, student_t


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (99, 1.984), (10**6, 1.960)]
)
def test_students_t_is_that_of_the_tables(freedom: int, quantile: float) -> None:
    assert student_t(freedom) == pytest.approx(quantile, rel=1e-3)


def test_the_interval_of_a_mean_by_hand() -> None:
    # Mean 2, deviation 1, three values: 2 ± 4.303 / √3.
    assert mean_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.484, 2 + 2.484), abs=1e-3)
    assert mean_interval([5.0, 5.0]) == (5.0, 5.0)
    assert mean_interval([5.0]) is None


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
    assert share_interval(96, 100) == pytest.approx((0.9016, 0.9843), abs=1e-4)


def test_intervals_overlap_where_they_share_a_point() -> None:
    assert overlap((0, 1), (1, 2)) is True
    assert overlap((0, 5), (1, 2)) is True
    assert overlap((3, 4), (1, 2)) is False
    assert overlap(None, (1, 2)) is None
