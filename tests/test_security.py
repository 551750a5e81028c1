"""SECURITY.md promises what a test holds, in a module that there is."""

from __future__ import annotations

import ast
import importlib.util
import re

from tests.pages import ROOT

ROW = re.compile(r"^\| (?P<promise>[^|]+) \| `(?P<where>[^`|]+)` \| `(?P<file>tests/[^:`]+)::(?P<test>\w+)` \|$")


def test_every_promise_names_a_test_and_a_module_that_there_are() -> None:
    section = (ROOT / "SECURITY.md").read_text(encoding="utf-8").split("## Promises")[1].split("## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 10
    for row in rows:
        found = ROW.match(row)
        assert found is not None, row
        tree = ast.parse((ROOT / found["file"]).read_text(encoding="utf-8"))
        assert found["test"] in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, row
        there = (ROOT / found["where"]).exists() or importlib.util.find_spec(found["where"]) is not None
        assert there, row
