"""The loops that are measured, and the clocks on them."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from genelab.bench.metrics import StepTimes, SuccessCount, mean_std
from genelab.envs import StepResult, Watcher
from genelab.rl.backends.base import InferenceSetup
from genelab.rl.episodes import SUCCESS, Episodes
from genelab.rl.rollout import Rollout, rollout

Synchronize = Callable[[], None]
"""Waits until the device has done what it was given."""


def synchronizer(device: torch.device) -> Synchronize | None:
    """How to wait for a device; None for the CPU, which is done when a call returns."""
    return torch.cuda.synchronize if device.type == "cuda" else None


class StepTimer(Watcher):
    """Takes the time of every control step it watches and, where it can, of the engine in it."""

    def __init__(self, device: torch.device, *, synchronize: Synchronize | None = None) -> None:
        self.recording = True
        """Whether the steps count."""
        self._synchronize = synchronize
        self._starts: list[float] = []
        self._environment: list[float] = []
        self._simulation: list[float] = []
        self._calls: list[int] = []
        self._start = self._inside = self._entered = 0.0
        self._calls_inside = 0
        # Where nobody waits for the device, its time cannot be split.
        self._splits = synchronize is not None or device.type == "cpu"

    @property
    def times(self) -> StepTimes:
        """What was measured while recording."""
        return StepTimes(
            starts=self._starts,
            environment=self._environment,
            simulation=self._simulation if self._splits and any(self._calls) else None,
            simulation_calls=self._calls,
            synchronized=self._synchronize is not None,
        )

    def before_step(self, action: Tensor) -> None:
        self._inside, self._calls_inside = 0.0, 0
        self._start = self._now()

    def before_physics(self) -> None:
        if self._splits:
            self._entered = self._now()

    def after_physics(self) -> None:
        if self._splits:
            self._inside += self._now() - self._entered
            self._calls_inside += 1

    def after_step(self, step: StepResult) -> None:
        end = self._now()
        if self.recording:
            self._starts.append(self._start)
            self._environment.append(end - self._start)
            self._simulation.append(self._inside)
            self._calls.append(self._calls_inside)

    def _now(self) -> float:
        """The time when the device has done what it was given."""
        if self._synchronize is not None:
            self._synchronize()
        return time.perf_counter()


class SuccessCounter(Watcher):
    """Counts the episodes that end and those that succeed; where they are is not waited for until `drain`."""

    def __init__(self, *, on_first_step: Callable[[], None] = lambda: None) -> None:
        self.tells = False
        """Whether the environment says when it succeeds."""
        self._on_first_step: Callable[[], None] | None = on_first_step
        self._counts: tuple[Tensor, Tensor] | None = None

    def after_step(self, step: StepResult) -> None:
        if self._on_first_step is not None:
            self._on_first_step()
            self._on_first_step = None
        if SUCCESS in step.info:
            self.tells = True
            done = step.done
            now = (step.info[SUCCESS].bool() & done).sum(), done.sum()
            self._counts = now if self._counts is None else (self._counts[0] + now[0], self._counts[1] + now[1])

    def drain(self) -> SuccessCount:
        """Since the last call."""
        hits, episodes = self._counts or (0, 0)
        self._counts = None
        return SuccessCount(hits=int(hits), episodes=int(episodes))


@torch.inference_mode()
def run_step_loop(
    env: Any, act: Callable[[Any], Any], num_steps: int, *, timer: StepTimer, warmup_steps: int = 0
) -> None:
    """Step an environment that was reset and that the timer watches; who acts is outside of the clock."""
    loop = Rollout(env, InferenceSetup(policy=act))
    for step in range(warmup_steps + num_steps):
        timer.recording = step >= warmup_steps
        loop.step()


@dataclass(kw_only=True)
class PlayRecord:
    """What a rollout was seen to do, also if it did not come to its end."""

    step_times: list[float] = field(default_factory=list)
    """Seconds of the policy and `env.step` together, per control step."""
    wall_s: float = 0.0
    returns: list[float] = field(default_factory=list)
    """Of the first episodes of every environment, as many from each."""
    lengths: list[int] = field(default_factory=list)
    success: SuccessCount | None = None
    """None if no step told of success, or no episode counts."""

    def __iter__(self) -> Iterator[Any]:
        """Unpack into step times, reward, episode length (mean and spread) and success rate, as Isaac Lab's loop."""
        rate = None if self.success is None else self.success.rate
        return iter((self.step_times, mean_std(self.returns), mean_std(self.lengths), rate))

    def close(self, book: Episodes, quota: int) -> None:
        """Keep the first `quota` episodes of every environment; all first ones before the second ones."""
        ended = Counter(episode.environment for episode in book.ended)
        quota = min(quota, *(ended[i] for i in range(book.num_envs)))
        kept = book.first(quota * book.num_envs)
        self.returns = [episode.total for episode in kept]
        self.lengths = [episode.length for episode in kept]
        if kept and book.tells_success:
            self.success = SuccessCount(hits=sum(episode.success for episode in kept), episodes=len(kept))


@torch.inference_mode()
def run_play_loop(
    env: Any,
    policy: Callable[[Any], Any],
    num_steps: int | None = None,
    *,
    num_frames: int | None = None,
    warmup_steps: int = 0,
    seed: int | None = None,
    reset_policy: Callable[[Tensor | None], None] = lambda dones: None,
    synchronize: Synchronize | None = None,
    timer: StepTimer | None = None,
    record: PlayRecord | None = None,
) -> PlayRecord:
    """Act with a policy for `num_steps` control steps after a reset; the clock covers policy and `env.step`.

    `num_frames` is another name for `num_steps`. The environment may answer with four or five values, in tensors or
    arrays, `(N,)` or `(N, 1)`, and with one info or a list of them, or None in their place. `env.max_episode_length`
    says how long an episode can be: only as many episodes of each environment count as are sure to end, for counting
    all that ended would favour short ones. If it does not say, none counts, and a warning tells so. `record` is filled
    on the way.
    """
    given = [count for count in (num_steps, num_frames) if count is not None]
    if len(given) != 1:
        raise TypeError("run_play_loop() needs num_steps or, which is the same, num_frames")
    longest = getattr(env, "max_episode_length", None)
    if not longest:
        text = "the environment has no max_episode_length, so no episode is sure to end and none is counted"
        warnings.warn(f"{text}: set env.max_episode_length, in control steps", stacklevel=3)  # over the decorator
    record = PlayRecord() if record is None else record
    clocked = _Clocked(env, policy, reset_policy, synchronize)
    if timer is not None:
        timer.recording = False
    if warmup_steps:
        for _ in rollout(clocked, clocked.setup, seed=seed, steps=warmup_steps):
            pass
    if timer is not None:
        timer.recording = True
    book = Episodes(num_envs=env.num_envs, device=torch.device("cpu"))
    steps = rollout(clocked, clocked.setup, seed=seed, steps=given[0])
    try:
        for step in steps:
            book.add(step)
    finally:
        record.step_times, record.wall_s = clocked.times, clocked.wall_s
        record.close(book, len(clocked.times) // longest if longest else 0)
    return record


class _Clocked:
    """Any vector environment as the rollout takes it, with a clock around the policy and `env.step`."""

    def __init__(
        self,
        env: Any,
        policy: Callable[[Any], Any],
        reset_policy: Callable[[Tensor | None], None],
        synchronize: Synchronize | None,
    ) -> None:
        self.times: list[float] = []
        """Of each step since the last reset."""
        self.setup = InferenceSetup(policy=self._act, reset=self._forget)
        self._env = env
        self._policy = policy
        self._reset_policy = reset_policy
        self._wait = synchronize or (lambda: None)
        self._device = getattr(env, "device", "cpu")
        self._begin: float | None = None
        self._start = self._end = 0.0

    @property
    def wall_s(self) -> float:
        """From the first action since the last reset until now."""
        return 0.0 if self._begin is None else time.perf_counter() - self._begin

    def reset(self, *, seed: int | None = None) -> tuple[Any, Any]:
        if seed is not None:
            torch.manual_seed(seed)  # a stochastic policy draws from it
        first = self._env.reset() if seed is None else self._env.reset(seed=seed)
        self.times, self._begin = [], None
        return first if isinstance(first, tuple) else (first, {})

    def step(self, action: Any) -> StepResult:
        result = self._env.step(action)
        self._wait()
        self.times.append(time.perf_counter() - self._start)
        return read_step(result, self._env.num_envs)

    def _act(self, observations: Any) -> Any:
        self._wait()
        self._start = time.perf_counter()
        if self._begin is None:
            self._begin = self._start
        return self._policy(observations)

    def _forget(self, dones: Tensor | None) -> None:
        self._reset_policy(None if dones is None else dones.to(self._device))


def read_step(result: Sequence[Any], num_envs: int) -> StepResult:
    """The answer of any vector environment in one form: all but the observations in host memory, `(N,)`.

    Its info has the flags of those who succeed, or nothing if the step does not tell.
    """
    if len(result) == 5:
        observations, reward, terminated, truncated, info = result
        ends = _row(terminated, num_envs).bool(), _row(truncated, num_envs).bool()
    else:
        observations, reward, ended, info = result
        ends = _row(ended, num_envs).bool(), torch.zeros(num_envs, dtype=torch.bool)
    success = _success(info, num_envs)
    told = {} if success is None else {SUCCESS: success}
    return StepResult(observations, _row(reward, num_envs).double(), *ends, told)


def _row(values: Any, num_envs: int) -> Tensor:
    return torch.as_tensor(values).detach().cpu().reshape(num_envs)


def _success(info: Any, num_envs: int) -> Tensor | None:
    """The flags of one info or of a list of them; None if there is no dict that tells."""
    if isinstance(info, Mapping):
        return _row(info[SUCCESS], num_envs).bool() if SUCCESS in info else None
    each = info if isinstance(info, Iterable) else ()
    flags = [one.get(SUCCESS) if isinstance(one, Mapping) else None for one in each]
    if all(flag is None for flag in flags):
        return None
    return _row([bool(flag) for flag in flags], num_envs)
