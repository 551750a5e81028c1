"""Readings that derive from the state: computed on first use and kept until the state changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor

from genelab.sim import Engine
from genelab.state import Stateful


class Reader(Stateful):
    """Something with readings."""

    engine: Engine
    not_state: ClassVar[tuple[str, ...]] = ("_readings", "_read_version")
    _readings: dict[str, Tensor]
    _read_version = -1


class reading:
    """A property of a `Reader` that is computed once per state."""

    def __init__(self, compute: Callable[[Any], Tensor]) -> None:
        self.__doc__ = compute.__doc__
        self._compute = compute
        self._name = compute.__name__

    def __get__(self, owner: Any, kind: type | None = None) -> Tensor:
        if owner is None:
            return self  # type: ignore[return-value]
        version = owner.engine.version
        if owner._read_version != version:
            owner._readings, owner._read_version = {}, version
        value = owner._readings.get(self._name)
        if value is None:
            value = owner._readings[self._name] = self._compute(owner)
        return value
