"""For what happens in another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def eventually(check: Callable[[], Any], seconds: float = 30.0) -> Any:
    """What a check gives once it gives something."""
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.1)
    return found
