"""Tests that a third party runs against what it brings; they need pytest.

Subclass a contract in a test module of your own, and pytest runs all of it:

    from genelab.testing import EngineContract

    class TestMine(EngineContract):
        engine = "mine"
"""

import pytest

pytest.register_assert_rewrite("genelab.testing.engine")

from genelab.testing.engine import EngineContract  # noqa: E402

__all__ = ["EngineContract"]
