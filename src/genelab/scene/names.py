"""Finding joints and bodies by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from genelab.errors import ConfigError, did_you_mean


def match_names(patterns: str | Sequence[str], names: Sequence[str], what: str) -> list[int]:
    """Indices of the names that any of the regular expressions matches whole, in the order of `names`.

    Every pattern must match something: a typo is an error, not an empty selection.
    """
    patterns = (patterns,) if isinstance(patterns, str) else patterns
    chosen: set[int] = set()
    for pattern in patterns:
        try:
            hits = [i for i, name in enumerate(names) if re.fullmatch(pattern, name)]
        except re.error as error:
            raise ConfigError(f"{what}: {pattern!r} is not a regular expression: {error}") from error
        if not hits:
            hint = did_you_mean(pattern, names) or f" There are: {', '.join(names)}."
            raise ConfigError(f"{what}: nothing is called {pattern!r}.{hint}")
        chosen.update(hits)
    return sorted(chosen)


def resolve_values(values: float | Mapping[str, float], names: Sequence[str], what: str) -> list[float]:
    """One number per name, from one number for all or from numbers by regular expression."""
    if not isinstance(values, Mapping):
        return [float(values)] * len(names)
    result: list[float | None] = [None] * len(names)
    for pattern, value in values.items():
        for i in match_names(pattern, names, what):
            result[i] = float(value)
    missing = [name for name, value in zip(names, result, strict=True) if value is None]
    if missing:
        raise ConfigError(f"{what}: no value for {', '.join(missing)}")
    return [value for value in result if value is not None]
