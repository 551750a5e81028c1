"""What comes through a door in a test is gone after it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from genelab import TASKS
from genelab.rl.backends import BACKENDS
from genelab.sim import ENGINES
from genelab.sim.registry import EngineEntry, EngineRegistry

TOYS = Path(__file__).parent


@contextmanager
def doors_closed_again() -> Iterator[None]:
    """Forget the tasks, engines and RL libraries, and the modules beside this one, that the block brings."""
    ENGINES.names()  # and with it the plugins, which stay
    with pytest.MonkeyPatch.context() as patch, TASKS.temporarily():
        patch.setattr(ENGINES, "_entries", dict(ENGINES._entries))
        patch.setattr(BACKENDS, "_entries", dict(BACKENDS._entries))
        patch.setattr(sys, "path", list(sys.path))
        for module in {path.stem for path in TOYS.glob("toy_*.py")} - set(sys.modules):
            patch.setitem(sys.modules, module, sys)  # so that what is imported is removed again
            patch.delitem(sys.modules, module)
        yield


def lacking_engine(name: str, extra: str | None = None) -> EngineEntry:
    """An engine whose packages are not installed."""
    registry = EngineRegistry()
    registry.register(name, "no_such_module:Engine", extra=extra, packages=["no-such-package"])
    return registry._entries[name]
