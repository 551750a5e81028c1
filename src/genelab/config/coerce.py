"""From typed text to the value that an annotation asks for. No text is ever run as code."""

import ast
import collections.abc
import functools
import math
import operator
import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, get_args

from genelab.config.hints import (
    CALLABLES,
    MAPPINGS,
    SEQUENCES,
    UNTYPED,
    choices_of,
    element_types,
    is_config,
    origin_of,
    union_members,
    value_type,
)
from genelab.config.trust import look_up
from genelab.errors import ConfigError, did_you_mean

_TRUE, _FALSE, _NONE = ("true", "1", "yes", "on"), ("false", "0", "no", "off"), ("none", "null")
MAX_KEYS_SHOWN = 8
"""Keys that an error message lists at most."""
_WORDS = {"true": True, "false": False, "none": None, "null": None, "inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class _Explained(ValueError):
    """A value that does not fit, for a reason that the type alone does not tell."""


def accepted(hint: Any, current: Any) -> Any:
    """The annotated type, with the type of the current value in the place of `Any`."""
    members = [_type_of(current) if member in UNTYPED else member for member in union_members(hint)]
    return functools.reduce(operator.or_, members)


def like(hint: Any, current: Any) -> Any:
    """The annotated type, with the kind of the current value where the annotation leaves the kind of sequence open."""
    if not isinstance(current, list | tuple):
        return hint
    members = [_as_kind(member, type(current)) for member in union_members(hint)]
    return functools.reduce(operator.or_, members)


def _as_kind(hint: Any, kind: type) -> Any:
    if origin_of(hint) is not collections.abc.Sequence:
        return hint
    item = (get_args(hint) or (Any,))[0]
    return types.GenericAlias(kind, (item, ...) if kind is tuple else (item,))


def _type_of(value: Any) -> Any:
    """The type that a value without annotation shows by example."""
    if value is None:
        return Any
    if type(value) is int:
        return int | float  # a whole number in untyped parameters is often a real one written short
    if isinstance(value, list | tuple):
        kinds = [_type_of(item) for item in value]
        if isinstance(value, tuple) and kinds and all(type(item) in (int, float) for item in value):
            return types.GenericAlias(tuple, tuple(kinds))  # a range or a vector: its length has a meaning
        if len(set(kinds)) != 1:
            return type(value)
        return types.GenericAlias(type(value), (kinds[0], ...) if isinstance(value, tuple) else (kinds[0],))
    if callable(value) and not is_config(value):
        return CALLABLES[0]
    return type(value)


def parse(value: Any, hint: Any, path: str) -> Any:
    """The value as the annotation wants it, or an error that names the path, the type and what was given."""
    try:
        return _coerce(value, hint)
    except _Explained as error:
        raise ConfigError(f"{path}: {error}") from error.__cause__
    except (ValueError, TypeError, OverflowError):
        raise ConfigError(f"{path}: expected {readable(hint)}, got {value!r}") from None


def _coerce(value: Any, hint: Any) -> Any:
    """The value, or what its text means, as this type; ValueError or TypeError if it does not fit."""
    members = union_members(hint)
    if len(members) > 1:
        return _coerce_union(value, members)
    origin = origin_of(hint)
    if (choices := choices_of(hint)) is not None:
        return _coerce_choice(value, choices)
    if origin in CALLABLES:
        return _coerce_callable(value, hint)
    if origin in SEQUENCES:
        return _coerce_sequence(value, hint)
    if origin in MAPPINGS:
        return _coerce_dict(_literal(value), value_type(hint))
    if origin in _SCALARS:
        return _SCALARS[origin](value)
    if not isinstance(origin, type) or origin in UNTYPED:
        return _literal(value)
    if is_dataclass(origin):
        names = ", ".join(field.name for field in fields(origin)[:MAX_KEYS_SHOWN])
        raise _Explained(f"cannot be set as a whole, got {value!r}; set one of its keys: {names}")
    if issubclass(origin, Enum):
        return _coerce_enum(value, origin)
    raise ValueError


def _coerce_union(value: Any, members: tuple[Any, ...]) -> Any:
    literal = _literal(value)
    # Any text is a string, so only text in quotes asks for one.
    exact = None if literal is value and isinstance(value, str) else type(literal)
    reason: ValueError = ValueError()
    for member in sorted(members, key=lambda member: origin_of(member) is not exact):
        try:
            return _coerce(value, member)
        except _Explained as error:
            reason = error
        except (ValueError, TypeError, OverflowError):
            continue
    raise reason


def _coerce_choice(value: Any, choices: tuple[Any, ...]) -> Any:
    for choice in choices:
        try:
            if _coerce(value, type(choice)) == choice:
                return choice
        except (ValueError, TypeError, OverflowError):
            continue
    if isinstance(value, str) and (near := did_you_mean(value, [one for one in choices if isinstance(one, str)])):
        raise _Explained(f"expected {' | '.join(map(repr, choices))}, got {value!r}.{near}")
    raise ValueError


def _coerce_enum(value: Any, cls: type[Enum]) -> Enum:
    if isinstance(value, cls):
        return value
    for name, member in cls.__members__.items():
        if isinstance(value, str) and name.casefold() == _to_str(value).casefold():
            return member
    return cls(_coerce_choice(value, tuple(member.value for member in cls)))


def _coerce_callable(value: Any, hint: Any) -> Any:
    if isinstance(value, str):
        name = _to_str(value)
        if ":" not in name:
            raise _Explained(f"expected the name of a callable as 'module:name', got {value!r}")
        try:
            value = look_up(name, "callable", hint)
        except ConfigError as error:
            raise _Explained(str(error)) from error
    if not (isinstance(value, type) if origin_of(hint) is type else callable(value)):
        raise ValueError
    return value


def _coerce_dict(value: Any, hint: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise ValueError
    # The literal has been read: a string in it is a string, not text to read again.
    return {key: item if hint in UNTYPED else _coerce(item, hint) for key, item in value.items()}


def _coerce_sequence(value: Any, hint: Any) -> Any:
    items = _split_sequence(value) if isinstance(value, str) else list(value)
    kinds = element_types(hint, len(items))
    if kinds is None:
        raise ValueError
    coerced = [_coerce(item, kind) for item, kind in zip(items, kinds, strict=True)]
    return tuple(coerced) if origin_of(hint) is tuple else coerced


def _split_sequence(text: str) -> list[str]:
    """The elements of `(a, b)`, `[a, b]` or `a, b`, each as text; brackets and quotes inside them are kept whole."""
    parts = split_at_commas(text)
    if len(parts) == 1:
        if parts[0][:1] + parts[0][-1:] not in ("()", "[]"):
            raise ValueError
        parts = split_at_commas(parts[0][1:-1])
    return parts[:-1] if parts[-1] == "" else parts


def split_at_commas(text: str) -> list[str]:
    """The parts between commas that are in no brackets and no quotes; ValueError if those do not match."""
    parts, depth, quote = [""], 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        else:
            depth += (char in "([{") - (char in ")]}")
        if char == "," and not quote and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    if depth or quote:
        raise ValueError
    return [part.strip() for part in parts]


def _literal(value: Any) -> Any:
    """What text means without a type: a Python literal, a word such as `true` or `none`, else the text itself."""
    if not isinstance(value, str):
        return value
    if value.lower() in _WORDS:
        return _WORDS[value.lower()]
    try:
        return ast.literal_eval(value.strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return value


def _to_bool(value: Any) -> bool:
    word = str(value).strip().lower()
    if word not in _TRUE + _FALSE:
        raise ValueError
    return word in _TRUE


def _to_int(value: Any) -> int:
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            value = float(value)
    if isinstance(value, bool) or not float(value).is_integer():
        raise ValueError
    return int(value)


def _to_float(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError
    return float(value)


def _to_str(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else value


def _to_none(value: Any) -> None:
    if value is not None and str(value).strip().lower() not in _NONE:
        raise ValueError


def leaves_out(value: Any, hint: Any) -> bool:
    """Whether a value says that there is to be none where the annotation wants one."""
    says_none = value is None or (isinstance(value, str) and value.strip().lower() in _NONE)
    return says_none and not {type(None), *UNTYPED} & set(union_members(hint))


_SCALARS: dict[Any, Callable[[Any], Any]] = {
    bool: _to_bool,
    int: _to_int,
    float: _to_float,
    str: _to_str,
    types.NoneType: _to_none,
}


def readable(hint: Any) -> str:
    """A type as a user would write it: `int | None`, `'auto' | 'mujoco'`, `tuple[float, float]`."""
    members = union_members(hint)
    if len(members) > 1:
        return " | ".join(map(readable, members))
    origin, args = origin_of(hint), get_args(hint)
    if (choices := choices_of(hint)) is not None:
        return " | ".join(map(repr, choices))
    if origin is types.NoneType:
        return "None"
    if hint is ...:
        return "..."
    if origin is CALLABLES[0]:
        return "Callable"
    if isinstance(origin, type) and issubclass(origin, Enum):
        return " | ".join(repr(member.name) for member in origin)
    name = getattr(origin, "__name__", str(origin))
    return f"{name}[{', '.join(map(readable, args))}]" if args else name
