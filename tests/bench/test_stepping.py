"""Clocks that tell the truth, and episodes that are counted right."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from genelab.bench.metrics import SuccessCount
from genelab.bench.stepping import PlayRecord, StepTimer, run_play_loop, run_step_loop, synchronizer
from genelab.envs import StepResult
from tests.bench.stubs import Clock, StubEnv, act


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock without chance in the place of the loops' own."""
    clock = Clock()
    monkeypatch.setattr("genelab.bench.stepping.time", clock)
    return clock


def watch(env: StubEnv, **options: Any) -> StepTimer:
    env.watchers.append(timer := StepTimer(env.device, **options))
    return timer


def sleepy_policy(sleep: Callable[[], None]) -> Any:
    def policy(observations: Any) -> Tensor:
        sleep()
        return act(observations)

    return policy


def test_runtime_measures_the_environment_and_not_who_acts(clock: Clock) -> None:
    env = StubEnv(sleep=lambda: clock.sleep(2.0))
    timer = watch(env)
    env.reset()
    run_step_loop(env, sleepy_policy(lambda: clock.sleep(5.0)), 4, timer=timer, warmup_steps=2)
    assert timer.times.environment == [2.0] * 4
    assert timer.times.wall_s == 4 * 2.0 + 3 * 5.0
    assert timer.times.simulation is None


def test_play_measures_the_policy_as_well(clock: Clock) -> None:
    env = StubEnv(sleep=lambda: clock.sleep(2.0))
    timer = watch(env)
    record = run_play_loop(env, sleepy_policy(lambda: clock.sleep(5.0)), 4, warmup_steps=2, timer=timer)
    assert record.step_times == [7.0] * 4
    assert record.wall_s == 28.0
    assert timer.times.environment == [2.0] * 4


@pytest.mark.parametrize("plays", [False, True])
def test_real_sleep_is_measured_within_two_percent(plays: bool) -> None:
    """The stubs take the time themselves, for on a busy machine a sleep is longer than asked for."""
    slept: dict[str, list[float]] = {"step": [], "think": []}

    def sleep(what: str) -> None:
        start = time.perf_counter()
        time.sleep(0.02)
        slept[what].append(time.perf_counter() - start)

    env, policy = StubEnv(sleep=lambda: sleep("step")), sleepy_policy(lambda: sleep("think"))
    if plays:
        measured = run_play_loop(env, policy, 9).step_times
        real = [step + think for step, think in zip(slept["step"], slept["think"], strict=True)]
    else:
        timer = watch(env)
        env.reset()
        run_step_loop(env, policy, 9, timer=timer)
        measured, real = list(timer.times.environment), slept["step"]
    ratios = [one / other for one, other in zip(measured, real, strict=True)]
    assert statistics.median(ratios) == pytest.approx(1.0, abs=0.02)


def test_the_engines_part_of_a_step_is_told_apart(clock: Clock) -> None:
    class EnvWithEngine(StubEnv):
        def act(self) -> None:
            for _ in range(2):
                self.watchers[0].before_physics()
                clock.sleep(1.0)
                self.watchers[0].after_physics()
            super().act()

    env = EnvWithEngine(sleep=lambda: clock.sleep(3.0))
    timer = watch(env)
    env.reset()
    run_step_loop(env, act, 4, timer=timer, warmup_steps=1)
    assert (timer.times.environment, timer.times.simulation) == ([5.0] * 4, [2.0] * 4)
    assert timer.times.simulation_calls == [2] * 4


def test_the_clock_waits_for_the_device(clock: Clock) -> None:
    """What was only queued is part of the time: here the device works when it is waited for."""
    queue: list[float] = []

    def finish() -> None:
        clock.sleep(sum(queue))
        queue.clear()

    env = StubEnv(sleep=lambda: queue.append(2.0))
    timer = watch(env, synchronize=finish)
    record = run_play_loop(env, sleepy_policy(lambda: queue.append(5.0)), 3, synchronize=finish, timer=timer)
    assert timer.times.environment == [2.0] * 3
    assert record.step_times == [7.0] * 3
    assert timer.times.synchronized
    assert synchronizer(torch.device("cpu")) is None
    assert synchronizer(torch.device("cuda")) is torch.cuda.synchronize


def test_where_nobody_waits_for_a_gpu_the_engines_part_is_unknown() -> None:
    timer = StepTimer(torch.device("cuda"))
    timer.before_step(act({}))
    timer.before_physics()
    timer.after_physics()
    flags = torch.zeros(2, dtype=torch.bool)
    timer.after_step(StepResult({}, torch.ones(2), flags, flags, {}))
    assert (len(timer.times.environment), timer.times.simulation) == (1, None)


def test_environments_are_stepped_in_inference_mode() -> None:
    env = StubEnv()
    env.reset()
    run_step_loop(env, act, 1, timer=watch(env), warmup_steps=1)
    run_play_loop(env, act, 1, warmup_steps=1)
    assert env.modes == [True] * 4


def test_as_many_episodes_count_of_each_environment() -> None:
    """Episodes of 2 and 3 steps in 6 steps: three and two end, but two of each are sure to."""
    record = run_play_loop(StubEnv((2, 3)), act, 6)
    assert record.lengths == [2, 3, 2, 3]
    assert record.returns == [2.0, 6.0, 2.0, 6.0]
    assert record.success is None


def test_the_record_unpacks_as_isaac_labs_does() -> None:
    step_times, reward, ep_length, success_rate = run_play_loop(StubEnv((2, 3)), act, num_frames=6)
    assert len(step_times) == 6
    assert (reward.mean, reward.peak, ep_length.mean, success_rate) == (4.0, 6.0, 2.5, None)
    assert list(PlayRecord(success=SuccessCount(hits=1, episodes=4))) == [[], None, None, 0.25]


def test_episodes_count_only_if_the_longest_has_time_to_end() -> None:
    env = StubEnv((2, 3))
    assert run_play_loop(env, act, 2).returns == []
    assert run_play_loop(env, act, 3).lengths == [2, 3]


def test_short_episodes_do_not_count_where_long_ones_would_not() -> None:
    """All have ended after 5 steps, but an episode of 6 would not have: to count these would favour short ones."""
    env = StubEnv((2, 3))
    env.max_episode_length = 6
    assert run_play_loop(env, act, 5).returns == []
    assert run_play_loop(env, act, 6).lengths == [2, 3]


def test_a_warm_up_is_followed_by_a_reset_with_the_same_seed() -> None:
    env = StubEnv((2, 3))
    record = run_play_loop(env, act, 3, warmup_steps=4, seed=5)
    assert env.seeds == [5, 5]
    assert (record.lengths, len(record.step_times)) == ([2, 3], 3)


def test_the_memory_of_environments_that_ended_is_reset() -> None:
    forgotten: list[Any] = []
    run_play_loop(
        StubEnv((2, 3)), act, 3, reset_policy=lambda dones: forgotten.append(None if dones is None else dones.tolist())
    )
    assert forgotten == [None, [False, False], [True, False], [False, True]]


class Arrays(StubEnv):
    """Answers as SB3's environments do: four values, arrays, a list of infos."""

    def reset(self, seed: int | None = None) -> Any:
        return super().reset(seed)[0]

    def answer(self, reward: Tensor, done: Tensor) -> Any:
        infos = [{"is_success": True} if ended else {} for ended in done.tolist()]
        return self.ages.numpy(), reward.numpy(), done.numpy(), infos


class Columns(StubEnv):
    """Answers as skrl's wrapper does: five values of shape (N, 1)."""

    def answer(self, reward: Tensor, done: Tensor) -> Any:
        success = torch.tensor([True, False])
        return self.ages, reward[:, None], done[:, None], torch.zeros_like(done)[:, None], {"is_success": success}


class Gradients(StubEnv):
    """Four values, with an info of one dict."""

    def answer(self, reward: Tensor, done: Tensor) -> Any:
        return self.ages, reward.requires_grad_(), done.long(), {"is_success": np.array([[1], [0]])}


@pytest.mark.parametrize(("kind", "hits"), [(Arrays, 4), (Columns, 2), (Gradients, 2)])
def test_every_form_of_answer_is_understood(kind: type[StubEnv], hits: int) -> None:
    record = run_play_loop(kind((2, 3)), act, 6)
    assert record.returns == [2.0, 6.0, 2.0, 6.0]
    assert record.success == SuccessCount(hits=hits, episodes=4)


def test_success_is_one_key_and_counts_once_per_episode() -> None:
    class Flags(StubEnv):
        def answer(self, reward: Tensor, done: Tensor) -> Any:
            # Succeeds on the way, but not at the end; and publishes what only sounds like it.
            info = {"is_success": ~done, "success_bonus": torch.ones(2), "episode_success": torch.ones(2)}
            return self.ages, reward, done, torch.zeros_like(done), info

    class Sounds(StubEnv):
        def answer(self, reward: Tensor, done: Tensor) -> Any:
            return self.ages, reward, done, torch.zeros_like(done), {"success_bonus": torch.ones(2)}

    assert run_play_loop(Flags((2, 3)), act, 6).success == SuccessCount(hits=0, episodes=4)
    assert run_play_loop(Sounds((2, 3)), act, 6).success is None


def test_what_was_seen_before_a_crash_is_kept() -> None:
    class Crash(StubEnv):
        def step(self, action: Any) -> Any:
            if len(self.modes) == 4:
                raise RuntimeError
            return super().step(action)

    record = PlayRecord()
    with pytest.raises(RuntimeError):
        run_play_loop(Crash((2, 3)), act, 6, record=record)
    assert (len(record.step_times), record.lengths) == (4, [2, 3])


class ShyEnv(StubEnv):
    """Says nothing of success: its info is None, for all together or for each."""

    info: Any = None

    def answer(self, reward: Tensor, done: Tensor) -> Any:
        return {"policy": self.ages.clone()}, reward, done, self.info


@pytest.mark.parametrize("info", [None, [None, None], (), 3])
def test_an_info_that_is_no_dict_tells_nothing_of_success(info: Any) -> None:
    env = ShyEnv((2, 3))
    env.info = info
    record = run_play_loop(env, act, 3)
    assert (record.lengths, record.success) == ([2, 3], None)


def test_infos_of_some_environments_are_enough() -> None:
    env = ShyEnv((2, 2))
    env.info = [None, {"is_success": True}]
    assert run_play_loop(env, act, 2).success == SuccessCount(hits=1, episodes=2)


def test_frames_are_steps() -> None:
    assert len(run_play_loop(StubEnv(), act, num_frames=4).step_times) == 4
    wrong: tuple[dict[str, Any], ...] = ({}, {"num_steps": 1, "num_frames": 1})
    for given in wrong:
        with pytest.raises(TypeError, match="num_steps or, which is the same, num_frames"):
            run_play_loop(StubEnv(), act, **given)


def test_an_environment_that_does_not_say_how_long_episodes_are_is_told_of() -> None:
    env = StubEnv((2, 3))
    del env.max_episode_length
    with pytest.warns(UserWarning, match="no episode is sure to end and none is counted: set env.max_episode_length"):
        record = run_play_loop(env, act, 4)
    assert (len(record.step_times), record.returns) == (4, [])
