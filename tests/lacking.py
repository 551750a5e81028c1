"""Tests that need a tool of the system."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def lacking(message: str, *, whole_module: bool = False) -> NoReturn:
    """Skip, since the tool is not here; in CI, which installs it, fail."""
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message, allow_module_level=whole_module)
