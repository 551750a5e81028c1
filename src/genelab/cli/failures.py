"""Errors that are not ours and no bug either: files, memory, and foreign code that wants to end the program."""

from __future__ import annotations

import errno
import os
import pathlib
import traceback
from pathlib import Path

import genelab
from genelab.errors import summary

_OF_THE_RUN = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
)
"""What goes wrong with files though the right ones were named."""
_ALLOCATION = ("can't allocate memory", "Storage size calculation overflowed", "std::bad_alloc", "out of memory")
"""What torch and MuJoCo say instead of MemoryError."""
_HOME = Path(genelab.__file__).parent
_LONGEST_NAME = 80


def explain(error: BaseException) -> tuple[str, int] | None:
    """One line for the user and the exit code; None for what needs a traceback."""
    if isinstance(error, OSError):
        return _of_file(error)
    if isinstance(error, RecursionError) and _place(error).filename in (pathlib.__file__, os.__file__):
        return "a path of more directories than can be made", 2
    if isinstance(error, UnicodeError):
        return f"text that cannot be read or written: {summary(error)}", 2
    if isinstance(error, MemoryError) or any(words in str(error) for words in _ALLOCATION):
        return f"not enough memory: {summary(error)}", 1
    if isinstance(error, SystemExit | GeneratorExit):
        frame = _place(error)
        return f"the task's code ended the program: {summary(error)} ({frame.filename}, line {frame.lineno})", 1
    return None


def _place(error: BaseException) -> traceback.FrameSummary:
    return traceback.extract_tb(error.__traceback__)[-1]


def _of_file(error: OSError) -> tuple[str, int] | None:
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    if any(Path(name).is_absolute() and _HOME in Path(name).parents for name in names):
        return None  # a file of the package itself is missing
    code = 1 if error.errno in _OF_THE_RUN or not names else 2
    reason = error.strerror or summary(error)
    return ": ".join([*(_shortened(name) for name in names), reason]), code


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}… ({len(name)} characters)"
