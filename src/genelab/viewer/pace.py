"""How fast a playback goes: real time, slower, faster, or not at all."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

SPEEDS = {"⅛": 0.125, "¼": 0.25, "½": 0.5, "1": 1.0, "2": 2.0, "4": 4.0, "max": math.inf}
"""Simulated seconds per second, by name."""
_LATE = 0.25
"""A playback that is so far behind its schedule gives it up instead of hurrying after it, s."""
_SLICE = 0.02
"""The longest sleep, s: wishes are heard in between."""


class Pace:
    """Says when the next control step is due."""

    def __init__(
        self,
        step_dt: float,
        *,
        speed: float = 1.0,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.closed = False
        self._dt = step_dt
        self._clock = clock
        self._sleep = sleep
        self._speed = speed
        self._paused = False
        self._single = False
        self._due: float | None = None

    @property
    def speed(self) -> float:
        """Simulated seconds per second."""
        return self._speed

    @speed.setter
    def speed(self, value: float) -> None:
        self._speed, self._due = value, None

    @property
    def paused(self) -> bool:
        """Whether it stands still."""
        return self._paused

    @paused.setter
    def paused(self, value: bool) -> None:
        self._paused, self._due = value, None

    def step_once(self) -> None:
        """Stand still, but for one step."""
        self.paused = True
        self._single = True

    def wait(self, meanwhile: Callable[[], None]) -> bool:
        """Wait until the next step is due, doing something over and over meanwhile; False: there is none."""
        meanwhile()
        while not self.closed and not self._single and (left := self._time_left()) > 0:
            self._sleep(min(left, _SLICE))
            if left > _SLICE:
                meanwhile()
        self._single = False
        if self._due is not None:
            self._due += self._dt / self._speed
        return not self.closed

    def _time_left(self) -> float:
        """How long until the next step is due, s; paused: for ever."""
        if self._paused:
            return math.inf
        now = self._clock()
        if self._due is None or now - self._due > _LATE:
            self._due = now
        return self._due - now
