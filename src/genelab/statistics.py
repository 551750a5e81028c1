"""How sure a mean is: 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

Interval = tuple[float, float]
"""Lower and upper end."""

Z = 1.959963984540054
"""97.5 % quantile of the normal distribution."""


def mean_interval(values: Sequence[float], strata: Sequence[Hashable] | None = None) -> Interval | None:
    """Return the 95 % interval of a mean by Student's t.

    Args:
        values: Independent samples.
        strata: The stratum of each sample, where samples were dealt to strata in proportion: then only the spread
            within strata counts. A stratum with one sample gets the pooled variance of the others.

    Returns:
        None where the samples say nothing about their spread: for fewer than two, or if all are the same.
    """
    if len(values) < 2 or not spread(values):
        return None
    groups = _grouped(values, strata)
    squares = [_squares(group) for group in groups]
    freedom = [len(group) - 1 for group in groups]
    if not any(squares):  # nothing is known about the spread within strata
        groups, squares, freedom = [values], [_squares(values)], [len(values) - 1]
    pooled = math.fsum(squares) / sum(freedom)
    n, mean = len(values), math.fsum(values) / len(values)
    shares = [
        len(group) * (one / f if f else pooled) / n**2 for group, one, f in zip(groups, squares, freedom, strict=True)
    ]
    variance = math.fsum(shares)
    # Welch and Satterthwaite
    weights = math.fsum(share**2 / (f or sum(freedom)) for share, f in zip(shares, freedom, strict=True))
    half = student_t(max(1, math.floor(variance**2 / weights + 1e-9))) * math.sqrt(variance)
    return mean - half, mean + half


def spread(values: Sequence[float]) -> bool:
    """Return whether values differ by more than rounding to single precision does."""
    return max(values) - min(values) > 1e-6 * max(map(abs, values))


def _grouped(values: Sequence[float], strata: Sequence[Hashable] | None) -> list[Sequence[float]]:
    if strata is None:
        return [values]
    groups: dict[Hashable, list[float]] = {}
    for value, stratum in zip(values, strata, strict=True):
        groups.setdefault(stratum, []).append(value)
    return list(groups.values())


def _squares(values: Sequence[float]) -> float:
    """Return the sum of squares about the mean."""
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)


def share_interval(hits: float, n: float) -> Interval:
    """Where the true probability is, by Wilson: never empty, never beyond 0 and 1, even when all are hits.

    Of trials that are not independent, `n` is how many are, and `hits` the same share of it.
    """
    share, z2 = hits / n, Z * Z
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    low, high = middle - half, middle + half  # of none and of all but for rounding
    return 0.0 if hits == 0 else max(0.0, low), 1.0 if hits == n else min(1.0, high)


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
