"""What the command is to the system: its signals and its output. Imports nothing that takes time."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys

TYPE_CHECKING = False  # as in `typing`, which takes time to import
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, NoReturn

INTERRUPTED = 130
"""Exit code of what was stopped from outside."""


def stop_on_signals() -> None:
    """Let Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt, but in the middle of an import end the process.

    A module that is interrupted while it loads is left half made, and not every library passes the exception on.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                _leave()
            frame = frame.f_back
        raise KeyboardInterrupt

    _on_signals(stop)


def leave_on_signals() -> None:
    """The work is done: a signal that comes while the interpreter tidies up ends it without a word."""
    _on_signals(lambda number, frame: os._exit(INTERRUPTED))


def _on_signals(handler: Any) -> None:
    if "threading" in sys.modules and not _in_main_thread():
        return
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # What was ignored stays so: nohup does that to SIGHUP, a shell's background job to SIGINT.
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def _in_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()


def _leave() -> NoReturn:
    show_cursor = b"\x1b[?25h" if os.isatty(2) else b""
    os.write(2, show_cursor + b"genelab: interrupted\n")
    os._exit(INTERRUPTED)


class Output:
    """The standard output of this process, which never stops the work.

    A reader that has gone (`| head -1`) is not missed; a disk that is full is told of at the end.
    """

    def __init__(self) -> None:
        self._error: OSError | None = None
        try:
            number = sys.stdout.fileno()
        except (AttributeError, OSError, ValueError):
            return  # there is none, or it is no file
        raw = _Unstoppable(number, self)
        sys.stdout.flush()
        # Names of files may have any bytes, and JSON any code point.
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=sys.stdout.encoding,
            errors="backslashreplace",
            line_buffering=bool(sys.stdout.line_buffering),
        )

    def fail(self, error: OSError) -> None:
        """Remember what went wrong first."""
        self._error = self._error or error

    def close(self, code: int) -> int:
        """Write the rest; returns the exit code, which is 1 for a success that could not be told."""
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
        if self._error is None or self._error.errno == errno.EPIPE:
            return code
        sys.stderr.write(f"genelab: the output is not complete: {self._error.strerror}\n")
        return code or 1


class StandardError:
    """The standard error output as it is now: a live display takes its place while it runs."""

    def write(self, text: str) -> None:
        """Write to whatever `sys.stderr` is."""
        if sys.stderr is not None:
            sys.stderr.write(text)


class _Unstoppable(io.FileIO):
    """A file whose writes go to nowhere after the first one that fails."""

    def __init__(self, number: int, output: Output) -> None:
        super().__init__(number, "w", closefd=False)
        self._output = output
        self._gone = False

    def write(self, data: Any) -> int:
        if not self._gone:
            try:
                return super().write(data)
            except BlockingIOError:
                raise
            except OSError as error:
                self._gone = True
                self._output.fail(error)
        return memoryview(data).nbytes
