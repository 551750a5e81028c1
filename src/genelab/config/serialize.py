"""Configs as JSON and back without loss.

A dataclass becomes an object whose `__type__` says which one. Values that the annotation explains are written plainly
(a tuple as a list, a function as "module:name"); the others carry a tag, so that reading needs no guess. The type
helpers at the top serve the overrides as well: both read the same annotations.
"""

import json
import math
import os
import sys
import types
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from genelab.config.coerce import readable
from genelab.config.files import atomic_write_text, read_json
from genelab.config.hints import (
    CALLABLES,
    SEQUENCES,
    UNTYPED,
    element_types,
    field_types,
    fits,
    import_name,
    join_path,
    only_member,
    origin_of,
    union_members,
    value_type,
)
from genelab.config.shape import short
from genelab.config.trust import Kind, look_up
from genelab.errors import ConfigError, did_you_mean, summary


def to_dict(cfg: object) -> Any:
    """The config as values that JSON has."""
    return _encode(cfg, Any, "")


def from_dict(data: Any, expected: Any = None) -> Any:
    """The config that `to_dict` was given; `expected` is the type it must have, and that of data without a type."""
    try:
        value = _decode(data, Any if expected is None else expected, "")
    except RecursionError:
        raise ConfigError("nested too deeply") from None
    if isinstance(expected, type) and not isinstance(value, expected):
        raise ConfigError(f"expected {expected.__name__}, got {type(value).__name__}")
    return value


def dump_json(cfg: object, path: str | os.PathLike[str]) -> None:
    """Write the config to a JSON file, atomically."""
    atomic_write_text(path, json.dumps(to_dict(cfg), indent=2, allow_nan=False) + "\n")


def load_json(path: str | os.PathLike[str], expected: Any = None) -> Any:
    """Read a config that `dump_json` wrote."""
    data = read_json(path)
    try:
        return from_dict(data, expected)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _not_none(hint: Any) -> Any:
    """T for `T | None`; `Any` if more than one alternative remains."""
    members = [member for member in union_members(hint) if member is not types.NoneType]
    return members[0] if len(members) == 1 else Any


def _is_enum(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Enum)


def _encode(value: Any, hint: Any, path: str) -> Any:
    kind = _not_none(hint)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return value.name if kind is type(value) else {"__enum__": _name_of(type(value), path), "name": value.name}
    if isinstance(value, str):
        means_more = _is_enum(kind) or origin_of(kind) in CALLABLES
        return {"__str__": str(value)} if means_more else str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"__float__": str(float(value))}
    if isinstance(value, list | tuple):
        return _encode_sequence(value, hint, path)
    if isinstance(value, dict):
        return _encode_dict(value, value_type(hint), path)
    if isinstance(value, slice):
        return {"__slice__": [_encode(part, Any, path) for part in (value.start, value.stop, value.step)]}
    if is_dataclass(value) and not isinstance(value, type):
        values = {
            name: _encode(getattr(value, name), t, join_path(path, name))
            for name, t in field_types(type(value)).items()
        }
        return {"__type__": _name_of(type(value), path), **values}
    numpy = sys.modules.get("numpy")  # a numpy scalar can only be here if numpy has been imported
    if numpy and isinstance(value, numpy.generic):
        return _encode(value.item(), hint, path)
    if callable(value):
        name = _name_of(value, path)
        return name if origin_of(kind) in CALLABLES else {"__callable__": name}
    raise ConfigError(f"{path or 'config'}: a {type(value).__name__} cannot be written as JSON")


def _encode_sequence(value: list[Any] | tuple[Any, ...], hint: Any, path: str) -> Any:
    reads_as = tuple if origin_of(only_member(hint, SEQUENCES)) is tuple else list
    plain = isinstance(value, reads_as)
    types_ = (element_types(hint, len(value)) if plain else None) or [Any] * len(value)
    items = [_encode(item, t, join_path(path, i)) for i, (item, t) in enumerate(zip(value, types_, strict=True))]
    return items if plain else {"__list__" if isinstance(value, list) else "__tuple__": items}


def _encode_dict(value: dict[Any, Any], hint: Any, path: str) -> Any:
    items = [(key, _encode(item, hint, join_path(path, key))) for key, item in value.items()]
    # A key with two underscores could be taken for a tag.
    if all(type(key) is str and not key.startswith("__") for key in value):
        return dict(items)
    return {"__dict__": [[_encode(key, Any, path), item] for key, item in items]}


def _name_of(obj: Any, path: str) -> str:
    name = f"{getattr(obj, '__module__', None)}:{getattr(obj, '__qualname__', None)}"
    try:
        if import_name(name) == obj:
            return name
    except (ImportError, AttributeError):
        pass
    raise ConfigError(f"{path or 'config'}: {obj!r} is not importable; define it at the top level of a module")


def _decode(data: Any, hint: Any, path: str) -> Any:
    if isinstance(data, dict):
        return _decode_object(data, hint, path)
    if isinstance(data, list):
        types_ = element_types(hint, len(data)) or [Any] * len(data)
        items = [_decode(item, t, join_path(path, i)) for i, (item, t) in enumerate(zip(data, types_, strict=True))]
        return tuple(items) if origin_of(only_member(hint, SEQUENCES)) is tuple else items
    if isinstance(data, str):
        kind = _not_none(hint)
        if origin_of(kind) in CALLABLES:
            return _import(data, "callable", path, kind)
        if _is_enum(kind):
            return _enum_member(kind, data, path)
    return data


def _decode_object(data: dict[str, Any], hint: Any, path: str) -> Any:
    match data:
        case {"__type__": str(name), **values}:
            cls = _import(name, "dataclass", path)
            kinds = [origin_of(member) for member in union_members(hint)]
            if not any(kind in UNTYPED or (isinstance(kind, type) and issubclass(cls, kind)) for kind in kinds):
                where = f"{path}: " if path else ""
                raise ConfigError(f"{where}expected {readable(hint)}, got {cls.__name__}")
            return _decode_dataclass(cls, values, path)
        case {"__enum__": str(name), "name": str(member), **rest} if not rest:
            return _enum_member(_import(name, "enum", path), member, path)
        case {"__callable__": str(name), **rest} if not rest:
            return _import(name, "callable", path, hint)
        case {"__str__": str(text), **rest} if not rest:
            return text
        case {"__float__": "inf" | "-inf" | "nan" as text, **rest} if not rest:
            return float(text)
        case {"__list__": list(items), **rest} if not rest:
            return _decode(items, list, path)
        case {"__tuple__": list(items), **rest} if not rest:
            return _decode(items, tuple, path)
        case {"__slice__": [start, stop, step], **rest} if not rest:
            return slice(*(_decode(part, Any, path) for part in (start, stop, step)))
        case {"__dict__": list(pairs), **rest} if not rest:
            inner = value_type(hint)
            try:
                return {_decode(key, Any, path): _decode(item, inner, join_path(path, key)) for key, item in pairs}
            except (TypeError, ValueError) as error:
                raise ConfigError(f"{path or 'config'}: not a list of key and value: {error}") from error
    if tags := [key for key in data if key.startswith("__")]:
        raise ConfigError(f"{path or 'config'}: {tags[0]!r} is not understood here")
    kind = _not_none(hint)
    if isinstance(kind, type) and is_dataclass(kind):
        return _decode_dataclass(kind, data, path)
    inner = value_type(hint)
    left_out = {key for key, item in data.items() if item is None and is_dataclass(inner)}
    return {key: _decode(item, inner, join_path(path, key)) for key, item in data.items() if key not in left_out}


def _decode_dataclass(cls: type, data: dict[str, Any], path: str) -> Any:
    hints = field_types(cls)
    if unknown := [name for name in data if name not in hints]:
        near = did_you_mean(unknown[0], hints) if len(unknown) == 1 else ""
        raise ConfigError(f"{path or 'config'}: {cls.__name__} has no {', '.join(map(repr, unknown))}.{near}")
    values = {name: _decode(item, hints[name], join_path(path, name)) for name, item in data.items()}
    defaults = {field.name: field.default for field in fields(cls)}
    for name, value in values.items():
        # What the class itself puts there is right, whatever its annotation says: `x: float = None`.
        if not (fits(value, hints[name]) or type(value) is type(defaults[name])):
            raise ConfigError(f"{join_path(path, name)}: expected {readable(hints[name])}, got {short(value)}")
    try:
        cfg = cls(**{field.name: values[field.name] for field in fields(cls) if field.init and field.name in values})
    except Exception as error:
        raise ConfigError(f"{path or 'config'}: {cls.__name__} cannot be made: {summary(error)}") from error
    # The file has the last word: `__post_init__` may have derived values anew, and `__init__` may not take every field.
    for name, value in values.items():
        object.__setattr__(cfg, name, value)
    return cfg


def _enum_member(cls: type[Enum], name: str, path: str) -> Enum:
    try:
        return cls[name]
    except KeyError:
        raise ConfigError(f"{path or 'config'}: {cls.__name__} has no member {name!r}") from None


def _import(name: str, kind: Kind, path: str, hint: Any = Any) -> Any:
    try:
        return look_up(name, kind, hint)
    except ConfigError as error:
        raise ConfigError(f"{path or 'config'}: {error}") from error
