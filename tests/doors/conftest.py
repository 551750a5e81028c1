"""What comes through a door in a test is gone after it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from genelab import TASKS
from genelab.sim import ENGINES


@pytest.fixture(autouse=True)
def _doors_closed_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ENGINES.names()  # and with it the plugins, which stay
    monkeypatch.setattr(TASKS, "_entries", dict(TASKS._entries))
    monkeypatch.setattr(TASKS, "_packages", set(TASKS._packages))
    monkeypatch.setattr(ENGINES, "_entries", dict(ENGINES._entries))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for module in Path(__file__).parent.glob("toy_*.py"):
        monkeypatch.delitem(sys.modules, module.stem, raising=False)
    monkeypatch.chdir(tmp_path)
