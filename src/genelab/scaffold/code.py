"""Python values as a person writes them into a file: in double quotes, one to a line where one line is too long."""

from __future__ import annotations

import ast
import json
import math
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from genelab.errors import UsageError
from genelab.text import one_line, printable

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


def comment(text: str) -> str:
    """A line of comment, whatever is in the text."""
    return f"# {one_line(text)}\n"


def parsed(text: str, path: str) -> str:
    """Return a file that was generated, or refuse it if it cannot be read as what it is called."""
    try:
        if path.endswith(".py"):
            ast.parse(text)
        elif path.endswith(".toml"):
            tomllib.loads(text)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{path} could not be written: a name in the robot's file breaks it ({error})") from error
    return text


def pattern(name: str) -> str:
    """The regular expression of one name."""
    return re.escape(name).replace("\\-", "-")


def number(value: float) -> float:
    """A number with two digits that count: more would look as if it had been measured."""
    return float(f"{value:.2g}") if math.isfinite(value) else value


def _line(value: Any) -> str:
    if isinstance(value, str):
        # JSON's escapes are Python's. What is not drawn, as marks that turn the order of a line, is escaped, too.
        return printable(json.dumps(value, ensure_ascii=False))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_line(key)}: {_line(item)}" for key, item in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_line, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value) if not isinstance(value, float) or math.isfinite(value) else f'float("{value}")'
