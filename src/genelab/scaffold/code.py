"""Python values as a person writes them into a file: in double quotes, one to a line where one line is too long."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

WIDTH = 120


def literal(value: Any, *, indent: int = 0, used: int = 0) -> str:
    """`value` as code that begins after `used` characters on a line indented by `indent`; two more may follow it."""
    line = _line(value)
    if used + len(line) + 2 <= WIDTH or not isinstance(value, dict | tuple):
        return line
    inner = " " * (indent + 4)
    if isinstance(value, dict):
        rows = [f"{inner}{_line(key)}: {_line(item)},\n" for key, item in value.items()]
        return "{\n" + "".join(rows) + " " * indent + "}"
    return "(\n" + "".join(f"{inner}{_line(item)},\n" for item in value) + " " * indent + ")"


def assignment(name: str, value: Any) -> str:
    """A constant of a module."""
    return f"{name} = {literal(value, used=len(name) + 3)}\n"


def pattern(name: str) -> str:
    """The regular expression of one name."""
    return re.escape(name).replace("\\-", "-")


def number(value: float) -> float:
    """A number with two digits that count: more would look as if it had been measured."""
    return float(f"{value:.2g}") if math.isfinite(value) else value


def _line(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_line(key)}: {_line(item)}" for key, item in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_line, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value)
