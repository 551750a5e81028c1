"""How a training is stopped from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Protocol

PATIENCE = 10.0
"""How long after the second signal native code may keep the interpreter from ending, s."""
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Stoppable(Protocol):
    """Looks at the end of every iteration whether it is to stop."""

    stop_requested: bool


@contextlib.contextmanager
def stop_on_signals(run: Stoppable, notify: Callable[[str], None]) -> Iterator[None]:
    """The first Ctrl-C, SIGTERM or SIGHUP lets the iteration finish and saves; the second one does not wait."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    watchdog = _Watchdog()
    received = 0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received += 1
        if run.stop_requested or max(received, watchdog.received) > 1:
            raise KeyboardInterrupt
        run.stop_requested = True
        with contextlib.suppress(OSError):  # the terminal may be what has gone
            notify("stopping after this iteration; once more to stop at once")

    heard = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, stop) for number in heard}
    with watchdog:
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


class _Watchdog:
    """Hears signals while native code runs, and ends the process if that does not return after the second.

    Python calls a handler only between two steps of the interpreter; the system tells this thread at once.
    """

    def __init__(self) -> None:
        self.received = 0
        self._ended = threading.Event()

    def __enter__(self) -> None:
        self._ear, self._mouth = os.pipe()
        os.set_blocking(self._mouth, False)
        self._previous = signal.set_wakeup_fd(self._mouth, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="genelab-stop", daemon=True).start()

    def __exit__(self, *error: object) -> None:
        signal.set_wakeup_fd(self._previous)
        self._ended.set()
        os.close(self._mouth)  # the thread reads the end of the pipe, and ends

    def _watch(self) -> None:
        with open(self._ear, "rb", buffering=0) as ear:
            while number := ear.read(1):
                self.received += number[0] in _SIGNALS
                if self.received > 1 and not self._ended.wait(PATIENCE):
                    os.write(2, b"genelab: interrupted\n")
                    os._exit(130)
