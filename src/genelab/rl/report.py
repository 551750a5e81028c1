"""What is told of a long work while it runs, and report files, which are written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from genelab.config import atomic_write_text
from genelab.errors import GenelabError, UsageError

Show = Callable[[str, int, int], None]
"""Called with what is counted, how many of them are done, and of how many."""


def show_nothing(what: str, done: int, total: int) -> None:
    """Nobody is watching."""


def check_out(out: Path) -> None:
    """Refuse a file that could not be written in the end; its directory is made when it is."""
    if out.is_dir():
        raise UsageError(f"--out: {out} is a directory; give a file")
    if out.exists() and not out.is_file():  # a device or pipe would be replaced
        raise UsageError(f"--out: {out} is no regular file")
    try:
        home = next(path for path in out.resolve().parents if path.exists())
        probe = home / f".{out.name}.{os.urandom(4).hex()}.tmp"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(f"--out: cannot write {out}: {error.strerror}") from error


def write_report(report: dict[str, Any], out: Path) -> None:
    """Write JSON in one step."""
    try:
        atomic_write_text(out, json.dumps(report, indent=2, allow_nan=False) + "\n")
    except ValueError as error:
        raise GenelabError(f"--out: nothing written to {out}: a number of the report is NaN or infinite") from error
    except OSError as error:
        raise UsageError(f"--out: cannot write {out}: {error.strerror}") from error
