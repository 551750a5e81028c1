"""What is told of a long work while it runs."""

from __future__ import annotations

from collections.abc import Callable

Show = Callable[[str, int, int], None]
"""Called with what is counted, how many of them are done, and of how many."""


def show_nothing(what: str, done: int, total: int) -> None:
    """Nobody is watching."""
