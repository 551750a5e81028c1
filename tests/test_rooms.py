"""The rooms of `genelab.rl` have walls: every module is in one, and the linter holds them (`lint-imports`)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_module_of_rl_is_in_a_room() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (rooms,) = [contract for contract in contracts if contract["name"].startswith("Rooms of rl")]
    named = {name for layer in rooms["layers"] for name in re.split(r"\s*[|:]\s*", layer)}
    source = ROOT / "src"
    for file in (source / "genelab" / "rl").rglob("*.py"):
        parts = file.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name not in ("genelab.rl", "genelab.rl.backends"):  # they only gather names
            assert any(name == room or name.startswith(f"{room}.") for room in named), f"{name} is in no room"
    for name in named:
        path = source.joinpath(*name.split("."))
        assert path.is_dir() or path.with_suffix(".py").is_file(), f"there is no {name}"
