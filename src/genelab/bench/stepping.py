"""The loops that are measured, and the clocks on them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from genelab.bench.metrics import SUCCESS, StepTimes, SuccessCount
from genelab.envs import StepResult, Watcher

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
    for step in range(warmup_steps + num_steps):
        action = act({})
        timer.recording = step >= warmup_steps
        env.step(action)


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
    device = getattr(env, "device", "cpu")
    if timer is not None:
        timer.recording = False
    observations = _start(env, seed, reset_policy)
    for _ in range(warmup_steps):
        outcome = read_step(env.step(policy(observations)), env.num_envs)
        reset_policy(outcome.done.to(device))
        observations = outcome.observations
    if warmup_steps:
        observations = _start(env, seed, reset_policy)
    if timer is not None:
        timer.recording = True
    book = _Book(env.num_envs)
    begin = time.perf_counter()
    try:
        for _ in range(given[0]):
            if synchronize is not None:
                synchronize()
            start = time.perf_counter()
            result = env.step(policy(observations))
            if synchronize is not None:
                synchronize()
            record.step_times.append(time.perf_counter() - start)
            outcome = read_step(result, env.num_envs)
            reset_policy(outcome.done.to(device))
            book.add(outcome)
            observations = outcome.observations
    finally:
        record.wall_s = time.perf_counter() - begin
        book.close(record, len(record.step_times) // longest if longest else 0)
    return record


def _start(env: Any, seed: int | None, reset_policy: Callable[[Tensor | None], None]) -> Any:
    if seed is not None:
        torch.manual_seed(seed)  # a stochastic policy draws from it
    first = env.reset() if seed is None else env.reset(seed=seed)
    reset_policy(None)
    return first[0] if isinstance(first, tuple) else first


@dataclass(frozen=True, kw_only=True)
class StepOutcome:
    """What a control step of `N` environments came to, in host memory but for the observations."""

    observations: Any
    reward: Tensor
    """`(N,)`, 64 bit."""
    done: Tensor
    """`(N,)`, boolean."""
    success: Tensor | None
    """`(N,)`, boolean; None if the step does not tell."""


def read_step(result: Sequence[Any], num_envs: int) -> StepOutcome:
    """The answer of any vector environment, in one form."""
    if len(result) == 5:
        observations, reward, terminated, truncated, info = result
        done = _row(terminated, num_envs).bool() | _row(truncated, num_envs).bool()
    else:
        observations, reward, ended, info = result
        done = _row(ended, num_envs).bool()
    return StepOutcome(
        observations=observations,
        reward=_row(reward, num_envs).double(),
        done=done,
        success=_success(info, num_envs),
    )


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


class _Book:
    """Every environment's episodes in the order in which they ended."""

    def __init__(self, num_envs: int) -> None:
        self._return = torch.zeros(num_envs, dtype=torch.float64)
        self._length = torch.zeros(num_envs, dtype=torch.int64)
        self._episodes: list[list[tuple[float, int, bool]]] = [[] for _ in range(num_envs)]
        self._tells_success = False

    def add(self, outcome: StepOutcome) -> None:
        """Take a step."""
        self._return += outcome.reward
        self._length += 1
        self._tells_success |= outcome.success is not None
        for i in outcome.done.nonzero().flatten().tolist():
            success = outcome.success is not None and bool(outcome.success[i])
            self._episodes[i].append((float(self._return[i]), int(self._length[i]), success))
        self._return[outcome.done] = 0.0
        self._length[outcome.done] = 0

    def close(self, record: PlayRecord, quota: int) -> None:
        """Keep the first `quota` episodes of every environment; all first ones before the second ones."""
        quota = min(quota, *(len(episodes) for episodes in self._episodes))
        kept = [episodes[i] for i in range(quota) for episodes in self._episodes]
        record.returns = [one[0] for one in kept]
        record.lengths = [one[1] for one in kept]
        if kept and self._tells_success:
            record.success = SuccessCount(hits=sum(one[2] for one in kept), episodes=len(kept))
