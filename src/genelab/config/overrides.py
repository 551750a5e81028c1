"""Dotted overrides: `--env.rewards.foot_slip.weight -0.2` on trees of dataclasses, dicts, lists and tuples.

The annotation of a field says what its text means; of a parameter of a term, the annotation in its function. Where
there is none, or it says `Any`, the type of the value already there does. `null` takes a config out of a dict of them:
`--env.rewards.foot_slip null`. No text is ever run as code.
"""

import copy
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass
from enum import Enum
from typing import Any

from genelab.config.coerce import MAX_KEYS_SHOWN, accepted, leaves_out, like, parse, readable
from genelab.config.hints import (
    ParameterTypes,
    element_types,
    field_types,
    is_config,
    join_path,
    parameter_types,
    value_type,
)
from genelab.errors import ConfigError, did_you_mean

_OVERRIDE = re.compile(r"(?P<dashes>--)?(?P<path>[A-Za-z_][\w-]*\.[^=\s]+)(?:=(?P<text>.*))?", re.DOTALL)
_NEGATIVE_NUMBER = re.compile(r"-(\.?\d|inf\b|nan\b)")


@dataclass(frozen=True)
class FieldInfo:
    """One setting that an override can reach."""

    path: str
    """Dotted path from the root."""
    type: str
    """What it accepts, e.g. `int | None`."""
    value: Any
    """What it is now."""

    @property
    def text(self) -> str:
        """The value as one would type it."""
        if isinstance(self.value, str):
            return self.value
        if self.value is None or isinstance(self.value, bool):
            return str(self.value).lower()
        if isinstance(self.value, Enum):
            return self.value.name
        if callable(self.value):
            return f"{self.value.__module__}:{self.value.__qualname__}"
        return repr(self.value)


def as_words(overrides: Mapping[str, Any]) -> list[str]:
    """Overrides as one would type them, `path=value` each."""
    return [f"{path}={FieldInfo(path, '', value).text}" for path, value in overrides.items()]


def refuse_decided(overrides: Mapping[str, Any], decided: Mapping[str, str], who: str) -> None:
    """Refuse overrides of what is not free; `decided` has by path what to do instead."""
    _check_mapping(overrides)
    for path in overrides:
        for setting, remedy in decided.items():
            if reaches(path, setting):
                raise ConfigError(f"{setting}: {who} decides this itself: {remedy}")


def reaches(path: str, setting: str) -> bool:
    """Whether an override of `path` changes a setting: itself, all of what it is a part of, or an element of it."""
    path = path.replace("-", "_")
    return f"{setting}.".startswith(f"{path}.") or bool(re.fullmatch(rf"{re.escape(setting)}(\.\d+)+", path))


def split_overrides(args: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Part command-line words into dotted overrides and the rest, each in order; words after a bare `--` are left.

    Of two for one path the last one counts, in its place.
    """
    overrides: dict[str, str] = {}

    def add(path: str, text: str) -> None:
        overrides.pop(path, None)
        overrides[path] = text

    rest: list[str] = []
    words = list(args)
    while words:
        word = words.pop(0)
        found = _OVERRIDE.fullmatch(word)
        if word == "--":
            return overrides, [*rest, word, *words]
        if found and found["text"] is not None:
            add(found["path"], found["text"])
        elif found and found["dashes"]:
            has_value = words and (not words[0].startswith("-") or _NEGATIVE_NUMBER.match(words[0]))
            add(found["path"], words.pop(0) if has_value else "true")
        else:
            rest.append(word)
    return overrides, rest


def apply_overrides(root: Any, overrides: Mapping[str, Any]) -> None:
    """Set values by dotted path, in order and in place; text is parsed as the type found there."""
    _check_mapping(overrides)
    for path, value in overrides.items():
        apply_override(root, path, value)


def _check_mapping(overrides: Any) -> None:
    if not isinstance(overrides, Mapping):
        raise ConfigError(f"overrides: must be a dict as {{'env.simulation.dt': 0.002}}, got {overrides!r:.80}")


def apply_override(root: Any, path: str, value: Any) -> None:
    """Set the value at a dotted path, in place; text is parsed as the type found there."""
    if _with_value(root, Any, path.split("."), value, "") is not root:
        raise TypeError(f"a {type(root).__name__} cannot be changed in place")


def value_at(root: Any, path: str) -> Any:
    """What is at a dotted path now."""
    node, hint, parts = root, Any, path.split(".")
    while parts:
        keys = _keys(node, hint)
        key, count = _find(keys, parts)
        if not count:
            raise ConfigError(f"{path}: no such key.{_keys_hint(parts[0], [str(key) for key in keys])}")
        node, hint, parts = _get(node, key), keys[key], parts[count:]
    return node


def iter_fields(root: Any, prefix: str = "") -> Iterator[FieldInfo]:
    """Every setting below `root`, in the order of its fields."""
    return _walk(root, Any, prefix)


def _walk(node: Any, hint: Any, path: str) -> Iterator[FieldInfo]:
    keys = _keys(node, hint)
    is_plain_list = isinstance(node, list | tuple) and not any(_keys(item, Any) for item in node)
    if is_plain_list or not (keys or isinstance(node, dict) or is_config(node)):
        yield FieldInfo(path, readable(accepted(hint, node)), node)
        return
    for key, inner in keys.items():
        yield from _walk(_get(node, key), inner, join_path(path, key))


def _with_value(node: Any, hint: Any, parts: list[str], value: Any, path: str) -> Any:
    """`node` with the value set below it: the same object, or a changed copy where it cannot be changed."""
    if not parts:
        whole = dict if isinstance(hint, ParameterTypes) else hint
        return parse(value, accepted(whole, node), path)
    keys = _keys(node, hint)
    key, count = _find(keys, parts)
    if not count:
        where = join_path(path, parts[0])
        if not keys and not isinstance(node, dict | list | tuple):
            raise ConfigError(f"{where}: no such key. {path!r} is {'None' if node is None else type(node).__name__}")
        raise ConfigError(f"{where}: no such key.{_keys_hint(parts[0], [str(key) for key in keys])}")
    old = _get(node, key)
    if count == len(parts) and leaves_out(value, keys[key]) and isinstance(node, dict) and is_config(old):
        del node[key]
        return node
    new = _with_value(old, keys[key], parts[count:], value, join_path(path, key))
    return node if new is old else _assign(node, key, new)


def _keys(node: Any, hint: Any) -> Mapping[Any, Any]:
    """The keys one level below a node, each with the type annotated for its value; none for a leaf."""
    if is_config(node):
        return _field_types(node)
    if isinstance(node, dict) and isinstance(hint, ParameterTypes):
        return {key: Any if is_config(value) else like(hint.get(key, Any), value) for key, value in node.items()}
    if isinstance(node, dict):
        return dict.fromkeys(node, value_type(hint))
    if isinstance(node, list | tuple):
        return dict(enumerate(element_types(hint, len(node)) or [Any] * len(node)))
    if callable(node) or isinstance(node, Enum | types.ModuleType):
        return {}
    return dict.fromkeys(getattr(node, "__dict__", {}), Any)


def _field_types(node: Any) -> Mapping[str, Any]:
    """The types of a config's fields; those of a term's parameters are what its function says."""
    found = field_types(node.__class__)
    if found.keys() >= {"func", "params"} and callable(node.func):
        return {**found, "params": parameter_types(node.func)}
    return found


def _find(keys: Iterable[Any], parts: list[str]) -> tuple[Any, int]:
    """The key that the path goes on with and how many parts name it, for a dict key may have dots; 0 if none does."""
    exact = {str(key): key for key in keys}
    loose = {name.replace("-", "_"): key for name, key in exact.items()}
    for count in range(len(parts), 0, -1):
        name = ".".join(parts[:count])
        for known, wanted in ((exact, name), (loose, name.replace("-", "_"))):
            if wanted in known:
                return known[wanted], count
    return None, 0


def _keys_hint(name: str, keys: list[str]) -> str:
    if near := did_you_mean(name.replace("-", "_"), keys):
        return near
    more = ", ..." if len(keys) > MAX_KEYS_SHOWN else ""
    return f" Keys here: {', '.join(keys[:MAX_KEYS_SHOWN]) or 'none'}{more}"


def _get(node: Any, key: Any) -> Any:
    return node[key] if isinstance(node, dict | list | tuple) else getattr(node, key)


def _assign(node: Any, key: Any, value: Any) -> Any:
    if isinstance(node, tuple):
        return (*node[:key], value, *node[key + 1 :])
    if isinstance(node, dict | list):
        node[key] = value
        return node
    try:
        setattr(node, key, value)
    except FrozenInstanceError:
        node = copy.copy(node)
        object.__setattr__(node, key, value)
    return node
