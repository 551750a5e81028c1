"""Tests that a third party runs against what it brings; they need pytest.

Subclass a contract in a test module of your own, and pytest runs all of it:

    from genelab.testing import BackendContract, EngineContract

    class TestMine(EngineContract):
        engine = "mine"

    class TestMyLibrary(BackendContract):
        library = "mine"
"""

import pytest

pytest.register_assert_rewrite("genelab.testing.engine", "genelab.testing.library")

from genelab.testing.engine import EngineContract  # noqa: E402
from genelab.testing.library import BackendContract  # noqa: E402

__all__ = ["BackendContract", "EngineContract"]
