"""The rooms of `genelab.rl` have walls: every module is in one, and the linter holds them (`lint-imports`)."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_only_the_command_line_names_itself() -> None:
    """Who starts it again in another process is given the words."""
    files = {file for file in (ROOT / "src").rglob("*.py") if "genelab.cli" in file.read_text(encoding="utf-8")}
    home = ROOT / "src" / "genelab"
    assert [file for file in files if home / "cli" not in file.parents] == [home / "__main__.py"]


def test_a_verb_and_what_it_calls_have_names_of_their_own() -> None:
    """The file of a verb is called like the verb; what is behind `play` has other names in every other room."""
    assert [file.parent.name for file in (ROOT / "src" / "genelab").rglob("play.py")] == ["cli"]


def test_every_module_of_rl_is_in_a_room() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (rooms,) = [contract for contract in contracts if contract["name"].startswith("Rooms of rl")]
    named = {name for layer in rooms["layers"] for name in re.split(r"\s*[|:]\s*", layer)}
    source = ROOT / "src"
    for file in (source / "genelab" / "rl").rglob("*.py"):
        parts = file.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name not in ("genelab.rl", "genelab.rl.backends", "genelab.rl.targets"):  # they only gather names
            assert any(name == room or name.startswith(f"{room}.") for room in named), f"{name} is in no room"
    for name in named:
        path = source.joinpath(*name.split("."))
        assert path.is_dir() or path.with_suffix(".py").is_file(), f"there is no {name}"


@pytest.mark.parametrize("package", ["genelab.bench", "genelab.rl", "genelab.rl.backends", "genelab.rl.targets"])
def test_what_a_package_offers_late_is_there(package: str) -> None:
    module = importlib.import_module(package)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


CHOICES = re.compile(r"(?<![a-z])(genesis|rsl_rl|skrl|sb3|rl_games|stable_baselines3)(?![a-z])")
AT_HOME = re.compile(r"rl/backends/(rsl_rl|skrl|sb3|rl_games)/|sim/genesis_")
NAMING = {
    "bench/schema.py": "the fields of a bundle have their names from the schema",
    "rl/backends/__init__.py": "where the libraries register themselves, and their wrappers are found",
    "rl/config.py": "where users import agent configs from",
    "scaffold/templates.py": "a task that is written for somebody must choose a library",
    "sim/__init__.py": "where the engines are registered",
}
"""Files of the framework that name an engine or a library besides its own, and why."""


def words_of(source: str) -> str:
    """Names and strings of a module; docstrings may tell of anything."""
    tree = ast.parse(source)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            found.append(node.value)
        if isinstance(node, ast.ImportFrom):
            found.append(node.module or "")
        found += [text for key in ("id", "attr", "name", "arg") if isinstance(text := getattr(node, key, None), str)]
    return " ".join(found)


def test_an_engine_or_a_library_is_named_where_it_comes_in() -> None:
    """MuJoCo is not among them: models are its `MjSpec` and `MjModel`, whatever engine steps them."""
    home = ROOT / "src" / "genelab"
    files = {file.relative_to(home).as_posix(): file for file in home.rglob("*.py")}
    others = {name: file for name, file in files.items() if not AT_HOME.search(name)}
    named = {name for name, file in others.items() if CHOICES.search(words_of(file.read_text(encoding="utf-8")))}
    assert named == set(NAMING)


def test_words_are_names_and_strings() -> None:
    source = (
        'from a.skrl import b\nimport genesis as g\n\ndef f(sb3):\n    """Of rsl_rl."""\n    return x.rl_games, "c"\n'
    )
    assert set(CHOICES.findall(words_of(source))) == {"skrl", "genesis", "sb3", "rl_games"}
