"""Whatever a user can set is read by something: fields of configs, and options of the command line."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from genelab.cli.verbs import cli

SRC = Path(__file__).parent.parent / "src"
SETTINGS = ("Cfg", "Config", "Options", "Settings")
"""How the names of classes end that users write."""
HANDED_ON = {"RslRl": "rsl_rl", "Skrl": "skrl", "Sb3": "stable_baselines3", "RlGames": "rl_games"}
"""Configs that go to a library as they are, by the beginning of their names: there the library reads them."""
FOR_THIRD_PARTIES = {"engine_settings": "an engine from outside reads its own part"}


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(SRC.rglob("*.py"))}


def config_fields() -> Iterator[tuple[str, str]]:
    """Class and field of every dataclass that users write; what a benchmark leaves behind is none."""
    for tree in (tree for path, tree in trees().items() if path.name != "schema.py"):
        for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            is_dataclass = any("dataclass" in ast.unparse(mark) for mark in cls.decorator_list)
            if is_dataclass and cls.name.endswith(SETTINGS):
                for node in cls.body:
                    if isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.unparse(node.annotation):
                        yield cls.name, ast.unparse(node.target)


@cache
def words_read() -> frozenset[str]:
    """Attributes that are read anywhere, and words in quotes that are no docstrings: keys and names for `getattr`."""
    words = set()
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                words.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                words.add(node.value)
    return frozenset(words)


@cache
def words_of(library: str) -> frozenset[str]:
    """Every word of a library's source."""
    spec = importlib.util.find_spec(library)
    assert spec is not None
    assert spec.origin is not None
    sources = Path(spec.origin).parent.rglob("*.py")
    return frozenset(word for path in sources for word in re.findall(r"\w+", path.read_text(encoding="utf-8")))


def is_read(cls: str, field: str) -> bool:
    if field in words_read() or field in FOR_THIRD_PARTIES:
        return True
    library = next((name for start, name in HANDED_ON.items() if cls.startswith(start)), None)
    return library is not None and field in words_of(library)


def test_every_field_of_a_config_is_read() -> None:
    found = list(config_fields())
    assert ("SimulationCfg", "dt") in found
    assert len(found) > 200
    assert [f"{cls}.{field}" for cls, field in found if not is_read(cls, field)] == []


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    with click.Context(group) as ctx:
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            assert command is not None
            yield f"{path}{name}", command
            if isinstance(command, click.Group):
                yield from commands(command, f"{path}{name} ")


COMMANDS = dict(commands(cli))


@cache
def words_of_the_command_line() -> frozenset[str]:
    """What the functions of the command line read: their arguments, and the keys of options that came as a dict."""
    words = set()
    for path, tree in trees().items():
        if path.is_relative_to(SRC / "genelab" / "cli") or path.is_relative_to(SRC / "genelab" / "rl" / "launch"):
            for node in ast.walk(tree):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    words.add(node.id)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    words.add(node.value)
    return frozenset(words)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_read(name: str) -> None:
    options = [one for one in COMMANDS[name].params if isinstance(one, click.Option) and one.expose_value]
    assert [one.name for one in options if one.name not in words_of_the_command_line()] == []


def test_what_shows_a_task_is_offered_where_it_can_be_shown() -> None:
    offered = defaultdict(set)
    for name, command in COMMANDS.items():
        for parameter in command.params:
            offered[str(parameter.name)].add(name)
    for option in ("vis", "headless", "viewer", "port", "host"):
        assert offered[option] == {"play", "train", "motion play"}, option
