"""What is told of a long work while it runs, and report files, which are written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from genelab.config import atomic_write_text
from genelab.errors import GenelabError, UsageError

Show = Callable[[str, int, int], None]
"""Called with what is counted, how many of them are done, and of how many."""


def show_nothing(what: str, done: int, total: int) -> None:
    """Nobody is watching."""


def write_report(report: dict[str, Any], out: Path) -> None:
    """Write JSON in one step."""
    try:
        atomic_write_text(out, json.dumps(report, indent=2, allow_nan=False) + "\n")
    except ValueError as error:
        raise GenelabError(f"--out: nothing written to {out}: a number of the report is NaN or infinite") from error
    except OSError as error:
        raise UsageError(f"--out: cannot write {out}: {error.strerror}") from error
