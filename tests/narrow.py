"""What a test knows of a value, and its annotation does not say: checked where it is used."""

from __future__ import annotations

from typing import TypeVar

Kind = TypeVar("Kind")


def as_kind(value: object, kind: type[Kind]) -> Kind:
    """The value, which is of this kind."""
    assert isinstance(value, kind), f"a {type(value).__name__}, not a {kind.__name__}"
    return value


def present(value: Kind | None) -> Kind:
    """The value, which is not missing."""
    assert value is not None
    return value
