"""Real time, slower, faster, paused."""

from __future__ import annotations

import math
import time

import pytest

from genelab.viewer.pace import SPEEDS, Pace


class Clock:
    """Time that passes only when somebody sleeps or works."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= 0.02
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def play(pace: Pace, clock: Clock, steps: int, work: float = 0.004) -> float:
    """How long so many steps take, each of which is work."""
    start = clock.now
    for _ in range(steps):
        assert pace.wait(lambda: None)
        clock.now += work
    return clock.now - start


@pytest.mark.parametrize(("speed", "seconds"), [(1.0, 2.0), (0.5, 4.0), (2.0, 1.0), (math.inf, 0.4)])
def test_a_hundred_steps_take_as_long_as_they_should(clock: Clock, speed: float, seconds: float) -> None:
    pace = Pace(0.02, clock=clock, sleep=clock.sleep)
    pace.speed = speed
    assert play(pace, clock, 100) == pytest.approx(seconds, rel=0.02)


def test_a_playback_that_is_late_catches_up_but_not_after_a_long_break(clock: Clock) -> None:
    pace = Pace(0.02, clock=clock, sleep=clock.sleep)
    play(pace, clock, 10)
    clock.now += 0.1  # the garbage collector
    assert play(pace, clock, 10) == pytest.approx(0.1, abs=0.02)
    clock.now += 5.0  # somebody closed the lid
    assert play(pace, clock, 10) == pytest.approx(0.2, abs=0.02)


def test_paused_it_listens_until_it_may_go_on(clock: Clock) -> None:
    pace = Pace(0.02, clock=clock, sleep=clock.sleep)
    pace.paused = True
    heard = 0

    def listen() -> None:
        nonlocal heard
        heard += 1
        if heard == 5:
            pace.step_once()

    assert pace.wait(listen)
    assert heard == 5
    assert pace.paused  # for the next step it waits again
    assert clock.now == pytest.approx(100.08)


def test_a_wish_while_it_waits_makes_no_step_of_its_own(clock: Clock) -> None:
    pace = Pace(0.05, clock=clock, sleep=clock.sleep)  # long enough to be heard in between
    wishes = {100.02: lambda: setattr(pace, "paused", True), 101.0: pace.step_once, 102.0: pace.step_once}
    steps = []

    def meanwhile() -> None:
        for due in [due for due in wishes if due <= clock.now + 1e-9]:
            wishes.pop(due)()
        pace.closed = clock.now > 103.0

    while pace.wait(meanwhile):
        steps.append(clock.now)
    assert steps == pytest.approx([100.0, 101.0, 102.0], abs=0.021)


def test_closing_ends_a_pause(clock: Clock) -> None:
    pace = Pace(0.02, clock=clock, sleep=clock.sleep)
    pace.paused = True
    assert not pace.wait(lambda: setattr(pace, "closed", True))


def test_real_time_is_real() -> None:
    pace = Pace(0.01)
    assert SPEEDS["1"] == pace.speed

    def error() -> float:
        pace.wait(lambda: None)
        start = time.perf_counter()
        for _ in range(100):
            pace.wait(lambda: None)
        return abs(time.perf_counter() - start - 1.0)

    assert min(error() for _ in range(3)) < 0.02  # the machine may be busy
