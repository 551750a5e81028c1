"""What comes through a door in a test is gone after it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from genelab import TASKS
from genelab.sim import ENGINES

TOYS = Path(__file__).parent


@contextmanager
def doors_closed_again() -> Iterator[None]:
    """Forget the tasks and engines, and the modules beside this one, that the block brings."""
    ENGINES.names()  # and with it the plugins, which stay
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TASKS, "_entries", dict(TASKS._entries))
        patch.setattr(TASKS, "_packages", set(TASKS._packages))
        patch.setattr(ENGINES, "_entries", dict(ENGINES._entries))
        patch.setattr(sys, "path", list(sys.path))
        for module in TOYS.glob("toy_*.py"):
            patch.setitem(sys.modules, module.stem, sys)  # so that what is imported is removed again
            patch.delitem(sys.modules, module.stem)
        yield
