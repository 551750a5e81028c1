"""Bundles as JSON files and back, and the JSON Schema they answer to.

`python -m genelab.bench.serialize docs/schemas` writes the schemas.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import math
import sys
import textwrap
import types
import typing
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from genelab.bench.schema import BUNDLES, SCHEMA_VERSION, Bundle
from genelab.config import atomic_write_text, read_json
from genelab.errors import UsageError

_JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def to_dict(bundle: Bundle) -> dict[str, Any]:
    """The bundle as values that JSON has: what is not a finite number is null."""
    return _plain(dataclasses.asdict(bundle))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_bundle(bundle: Bundle, path: str | Path) -> None:
    """Write the bundle in one step."""
    atomic_write_text(path, json.dumps(to_dict(bundle), indent=2, allow_nan=False) + "\n")


def read_bundle(path: str | Path) -> Bundle:
    """The bundle in a file, whichever of the four it is."""
    data = read_json(path)
    keys = data.keys() if isinstance(data, dict) else set()
    if "schema_version" in keys and data["schema_version"] != SCHEMA_VERSION:
        raise UsageError(f"{path} has schema_version {data['schema_version']}; this genelab reads {SCHEMA_VERSION}")
    for kind in BUNDLES.values():
        if _fits(keys, kind):
            try:
                return _decode(data, kind, "")
            except ValueError as error:
                raise UsageError(f"{path} is not a {kind.__name__}: {error}") from error
    raise UsageError(f"{path} is not a bundle of genelab benchmark {'|'.join(BUNDLES)}")


def _fits(keys: Collection[str], kind: Any) -> bool:
    """Whether these are its fields; one with a default may be missing, for older files do not have it."""
    fields = dataclasses.fields(kind)
    needed = {one.name for one in fields if one.default is one.default_factory is dataclasses.MISSING}
    return needed <= set(keys) <= {one.name for one in fields}


def _decode(value: Any, hint: Any, path: str) -> Any:
    """The value as this type; what does not fit is named by its path."""
    members = _members(hint)
    if value is None and types.NoneType in members:
        return None
    kinds = [kind for kind in members if kind is not types.NoneType]
    if len(kinds) > 1:  # of scalars only
        if type(value) in kinds:
            return value
        raise ValueError(f"{path}: {value!r}")
    kind = kinds[0]
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        hints = typing.get_type_hints(kind)
        if not _fits(value.keys(), kind):
            raise ValueError(f"{path}: has {', '.join(value) or 'nothing'}, not {', '.join(hints)}")
        decoded = {name: _decode(one, hints[name], f"{path}.{name}") for name, one in value.items()}
        return typing.cast(Any, kind)(**decoded)
    if origin is tuple and isinstance(value, list):
        return tuple(_decode(one, parts[0], f"{path}[{i}]") for i, one in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {key: _decode(one, parts[1], f"{path}.{key}") for key, one in value.items()}
    if (origin is Literal and value in parts) or type(value) is kind:
        return value
    if kind is float and type(value) is int:
        return float(value)
    raise ValueError(f"{path}: {value!r}")


def _members(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def json_schema(kind: type[Bundle]) -> dict[str, Any]:
    """The JSON Schema of a bundle, with the line of meaning under each field."""
    definitions: dict[str, Any] = {}
    root = _object(kind, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": kind.__name__,
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _object(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    meanings = _meanings(kind)
    properties = {}
    for name, hint in typing.get_type_hints(kind).items():
        description = {"description": meanings[name]} if name in meanings else {}
        properties[name] = {**_schema_of(hint, definitions), **description}
    return {
        "type": "object",
        "description": " ".join(inspect.cleandoc(kind.__doc__).split()),
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _schema_of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    members = _members(hint)
    if len(members) > 1:
        options = [_schema_of(member, definitions) for member in members]
        if all(list(option) == ["type"] for option in options):
            return {"type": [option["type"] for option in options]}
        return {"anyOf": options}
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        name = typing.cast(Any, hint).__name__
        if name not in definitions:
            definitions[name] = _object(hint, definitions)
        return {"$ref": f"#/$defs/{name}"}
    if origin is tuple:
        return {"type": "array", "items": _schema_of(parts[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema_of(parts[1], definitions)}
    if origin is Literal:
        return {"enum": list(parts)}
    return {"type": "null" if hint is types.NoneType else _JSON_TYPES[hint]}


def _meanings(kind: type) -> dict[str, str]:
    """The string under each field, which Python itself throws away."""
    body = typing.cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]).body
    found = {}
    for line, below in itertools.pairwise(body):
        if isinstance(line, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[typing.cast(ast.Name, line.target).id] = " ".join(str(below.value.value).split())
    return found


def schema_files() -> dict[str, str]:
    """The text of each schema's file, by its name."""
    return {
        f"benchmark_{workflow}.schema.json": json.dumps(json_schema(kind), indent=2, ensure_ascii=False) + "\n"
        for workflow, kind in BUNDLES.items()
    }


if __name__ == "__main__":
    for name, text in schema_files().items():
        atomic_write_text(Path(sys.argv[1]) / name, text)
