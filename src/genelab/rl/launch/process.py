"""Other processes, and how they are looked after.

They share the threads of the machine, Ctrl-C is passed on to them once, and none is left behind, however their parent
ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

PATIENCE = {signal.SIGINT: 40.0, signal.SIGTERM: 5.0}
"""How long a process may take to end after each signal before the next one follows, s; torchrun itself waits 30 s."""


def python_command(words: Sequence[str]) -> list[str]:
    """The command of a child, from the words that follow `python`."""
    return [sys.executable, *words]


def torchrun_command(options: Sequence[str], words: Sequence[str]) -> list[str]:
    """The command that starts a child per rank: `python -m torch.distributed.run`, but without its stack traces.

    torchrun takes `-m MODULE ...` as Python does.
    """
    code = f"from {__name__} import torchrun; torchrun()"
    return python_command(["-c", code, *options, *words])


def torchrun() -> None:
    """Be torchrun, and leave the talking to the ranks, which know what went wrong, and to the process above."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    logging.disable(logging.ERROR)
    try:
        run.main()
    except SignalException:
        sys.exit(130)
    except ChildFailedError:
        sys.exit(1)


def available_threads() -> int:
    """Threads that a run alone would use: OMP_NUM_THREADS, or one per core."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share(total: int, parts: int) -> int:
    """What each of the parts gets, at least 1."""
    return max(1, total // parts)


class Job(Protocol):
    """A process that somebody looks after."""

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""

    def signal(self, number: signal.Signals) -> None:
        """SIGINT asks it to end, SIGTERM insists, SIGKILL ends it."""


class Process:
    """A process of this machine that dies with its parent."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        """Start it, with its output in the file `log`, or where the parent's goes."""
        with contextlib.ExitStack() as stack:
            output = None if log is None else stack.enter_context(open(log, "wb"))
            self._popen = subprocess.Popen(
                command,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                start_new_session=True,  # so that Ctrl-C on the terminal reaches it once, through the parent
                preexec_fn=functools.partial(prepare, os.getpid()),
            )

    def poll(self) -> int | None:
        return self._popen.poll()

    def signal(self, number: signal.Signals) -> None:
        if self._popen.poll() is not None:
            return
        if number == signal.SIGKILL:
            os.killpg(self._popen.pid, number)
            self._popen.wait()
        else:
            self._popen.send_signal(number)


class Stop:
    """Ends jobs when a signal comes: asks once, insists, kills. Each further signal takes the next step at once."""

    _STEPS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)

    def __init__(self, notify: Callable[[str], None] = lambda message: None) -> None:
        self._notify = notify
        self._received = 0
        self._taken = 0
        self._deadline = float("inf")

    @property
    def requested(self) -> bool:
        """Somebody wants an end."""
        return self._received > 0

    def request(self) -> None:
        """Ask for an end, as a signal would."""
        self._received += 1

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Listen to Ctrl-C and SIGTERM."""

        def receive(number: int, frame: object) -> None:
            self._received += 1

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def apply(self, jobs: Iterable[Job]) -> None:
        """Take the next step, if it is time."""
        due = self._received > self._taken or time.monotonic() > self._deadline
        if not self.requested or not due or self._taken == len(self._STEPS):
            return
        if self._taken == 0:
            self._notify("stopping after this iteration; once more to stop at once")
        number = self._STEPS[self._taken]
        self._taken += 1
        self._deadline = time.monotonic() + PATIENCE.get(number, float("inf"))
        for job in jobs:
            job.signal(number)


def die_with_parent() -> None:
    """Ask the system for SIGTERM when the parent is gone, even if it had no time to say so; Linux only."""
    pr_set_pdeathsig = 1
    if _LIBC is not None:
        _LIBC.prctl(pr_set_pdeathsig, signal.SIGTERM)


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def prepare(parent: int) -> None:
    """Make a child end with its parent and hear Ctrl-C; for `preexec_fn`, before its program starts."""
    signal.pthread_sigmask(signal.SIG_SETMASK, set())  # Ray's processes block SIGINT
    signal.signal(signal.SIGINT, signal.default_int_handler)  # and a shell's background jobs ignore it
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
