"""What the parts of a file must be: one check, one way to say what is wrong."""

from collections.abc import Mapping
from typing import Any

from genelab.config.coerce import readable
from genelab.config.hints import fits, join_path
from genelab.errors import ConfigError

MAX_SHOWN = 60
"""Characters of a wrong value that an error message shows."""


def expect(data: Any, parts: Mapping[str, Any], where: object, path: str = "") -> dict[str, Any]:
    """The dict that has parts of these types, a nested mapping standing for a dict; what is missing counts as None.

    The error says "file: part: expected this, got that".
    """
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: {f'{path}: ' if path else ''}expected a dict, got {short(data)}")
    for name, kind in parts.items():
        value = data.get(name)
        inner = join_path(path, name)
        if isinstance(kind, Mapping):
            expect(value, kind, where, inner)
        elif name not in data and not fits(None, kind):
            raise ConfigError(f"{where}: {inner} is missing")
        elif not fits(value, kind):
            raise ConfigError(f"{where}: {inner}: expected {readable(kind)}, got {short(value)}")
    return data


def short(value: Any) -> str:
    """A value as text that fits into an error message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
