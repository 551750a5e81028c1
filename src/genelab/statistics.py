"""How sure a mean is: 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence

Interval = tuple[float, float]
"""Lower and upper end."""

Z = 1.959963984540054
"""97.5 % quantile of the normal distribution."""


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Where the true mean is, by Student's t; None for fewer than two values, which say nothing about it."""
    n = len(values)
    if n < 2:
        return None
    mean = math.fsum(values) / n
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    half = student_t(n - 1) * math.sqrt(variance / n)
    return mean - half, mean + half


def share_interval(hits: int, n: int) -> Interval:
    """Where the true probability is, by Wilson: never empty, never beyond 0 and 1, even when all are hits."""
    share, z2 = hits / n, Z * Z
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def student_t(freedom: int) -> float:
    """97.5 % quantile of Student's t, to a tenth of a percent (Abramowitz and Stegun 26.7.5)."""
    exact = {1: 12.706204736, 2: 4.302652730, 3: 3.182446305}
    if freedom in exact:
        return exact[freedom]
    z, v = Z, float(freedom)
    terms = (
        (z**3 + z) / 4 / v,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96 / v**2,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384 / v**3,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160 / v**4,
    )
    return z + sum(terms)


def overlap(first: Interval | None, second: Interval | None) -> bool | None:
    """Whether two intervals have something in common; None if one is unknown."""
    if first is None or second is None:
        return None
    return max(first[0], second[0]) <= min(first[1], second[1])
