"""What values a config field may have, said in its annotation and checked in one walk over the config.

`gamma: Share = 0.99` is a float for the type checker, for overrides and for JSON; `check_values` holds it to its
bounds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import Annotated, Any, get_args, get_origin

from genelab.config.hints import (
    MAPPINGS,
    SEQUENCES,
    choices_of,
    field_types,
    is_config,
    join_path,
    only_member,
    origin_of,
    union_members,
)
from genelab.errors import ConfigError, did_you_mean

_INT64 = 2**63 - 1


@dataclass(frozen=True)
class Bounds:
    """The least and the largest number that makes sense."""

    low: float = -math.inf
    high: float = math.inf
    low_is_out: bool = False
    """The least number itself makes none."""
    may_be_infinite: bool = False

    def complaint(self, value: Any) -> str | None:
        """What is wrong with a value, or None."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return "must be a number"
        if value < self.low or (self.low_is_out and value == self.low):
            if self.low == 0:
                return "must be positive" if self.low_is_out else "must not be negative"
            return f"must be {'more than' if self.low_is_out else 'at least'} {self.low:g}"
        if value != value:
            return "must be a number"
        if value > self.high:
            return f"must be at most {self.high}"
        return None if self.may_be_infinite or value not in (math.inf, -math.inf) else "must be finite"


@dataclass(frozen=True)
class NotEmpty:
    """At least one element."""

    def complaint(self, value: Any) -> str | None:
        """What is wrong with a value, or None."""
        return None if len(value) else "must have at least one element"


Count = Annotated[int, Bounds(1, _INT64)]
"""How many of something that there must be."""
Amount = Annotated[int, Bounds(0, _INT64)]
"""How many of something that may be missing."""
Seed = Annotated[int, Bounds(0, 2**32 - 1)]
"""What NumPy's and torch's generators both take."""
Positive = Annotated[float, Bounds(0, low_is_out=True)]
NonNegative = Annotated[float, Bounds(0)]
Finite = Annotated[float, Bounds()]
Limit = Annotated[float, Bounds(0, low_is_out=True, may_be_infinite=True)]
"""Something is cut to this; infinite: it is not cut."""
Share = Annotated[float, Bounds(0, 1)]
"""A part of a whole, or a discount."""
Widths = Annotated[tuple[Count, ...], NotEmpty()]
"""Of the hidden layers of a network."""


def check_values(root: Any, path: str) -> None:
    """Refuse a config with a value out of bounds, an unknown name, or NaN."""
    _check(root, Any, path)


def _check(value: Any, hint: Any, path: str) -> None:
    members = union_members(hint)
    if len(members) > 1:
        _check_any(value, members, path)
        return
    choices = choices_of(hint)
    if choices is None and get_origin(hint) is Annotated:
        hint, *rules = get_args(hint)
        for rule in rules:
            _refuse(rule.complaint(value), value, path)
    if choices is not None:
        _check_choice(value, choices, path)
    elif isinstance(value, float) and math.isnan(value):
        _refuse("must be a number", value, path)
    elif is_config(value):
        for name, inner in field_types(value.__class__, with_bounds=True).items():
            _check(getattr(value, name), inner, join_path(path, name))
    elif isinstance(value, dict):
        inner = _inner(hint, MAPPINGS, lambda args: args[1])
        for name, item in value.items():
            if item is None and isinstance(inner, type) and is_dataclass(inner):
                raise ConfigError(f"{join_path(path, name)}: None is no {inner.__name__}; delete it to leave it out")
            _check(item, inner, join_path(path, name))
    elif isinstance(value, list | tuple):
        kinds = _element_kinds(hint, len(value))
        for i, item in enumerate(value):
            _check(item, kinds[i], join_path(path, i))


def _check_any(value: Any, members: tuple[Any, ...], path: str) -> None:
    """One of the alternatives must do; what is wrong with the last one is told."""
    if value is None and type(None) in members:
        return
    reason: ConfigError | None = None
    for member in members:
        if member is type(None):
            continue
        try:
            return _check(value, member, path)
        except ConfigError as error:
            reason = error
    assert reason is not None
    raise reason


def _check_choice(value: Any, choices: tuple[Any, ...], path: str) -> None:
    if value not in choices:
        names = [choice for choice in choices if isinstance(choice, str)]
        near = did_you_mean(value, names) if isinstance(value, str) else ""
        raise ConfigError(f"{path}: {value!r} is none of {', '.join(map(str, choices))}.{near}")


def _inner(hint: Any, kinds: tuple[Any, ...], choose: Callable[[tuple[Any, ...]], Any]) -> Any:
    args = get_args(only_member(hint, kinds))
    return choose(args) if args else Any


def _element_kinds(hint: Any, length: int) -> list[Any]:
    sequence = only_member(hint, SEQUENCES)
    args = get_args(sequence)
    if not args:
        return [Any] * length
    if origin_of(sequence) is tuple and args[-1] is not ...:
        return list(args) if len(args) == length else [Any] * length
    return [args[0]] * length


def _refuse(complaint: str | None, value: Any, path: str) -> None:
    if complaint is not None:
        raise ConfigError(f"{path}: {complaint}, got {value!r}")
