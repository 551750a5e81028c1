"""What the lab does around any learner: count, log, save, evaluate, stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from genelab.envs import ManagerBasedRlEnv, StepResult, Watcher
from genelab.rl.backends.base import Learner
from genelab.rl.checkpoint import save_atomically
from genelab.rl.episodes import Episodes
from genelab.rl.finite import Diverged, first_not_finite

RECENT_EPISODES = 100
"""Episodes behind the mean return and length that are shown while training."""


class TrainingInterrupted(Exception):
    """Somebody asked the run to stop, and it has saved itself."""


class Writer(Protocol):
    """Where numbers are logged: TensorBoard's writer, or one like it."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Log one number."""

    def close(self) -> None:
        """Write everything out."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """One line of progress."""

    done: int
    """Spent of the budget, in the backend's unit."""
    total: int
    unit: str
    env_steps: int
    """Control steps of all environments since the run began."""
    elapsed: float
    """Seconds since training began."""
    eta: float
    """Seconds still to go."""
    collect_fps: float
    """Control steps per second while collecting."""
    total_fps: float
    """Control steps per second, learning included."""
    learn_share: float
    """Share of the time that is learning."""
    return_mean: float | None
    """Mean return of the last episodes."""
    length_mean: float | None
    """Mean length of the last episodes."""


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """An iteration that has ended: the learner has collected and learned once more."""

    number: int
    """Iterations since the run began, this one included."""
    learner: Learner
    env: ManagerBasedRlEnv
    """The environment that is learned in."""
    monitor: TrainMonitor
    progress: Progress
    scalars: Mapping[str, float]
    """What the learner and the episodes that ended tell, by the key it is logged under."""

    @property
    def done(self) -> int:
        """Spent of the budget, in the backend's unit."""
        return self.progress.done

    @property
    def last(self) -> bool:
        """Whether the budget is spent."""
        return self.progress.done >= self.progress.total


class IterationHook:
    """An entry of `TrainMonitor.hooks`, which are called one after the other when an iteration has ended."""

    def after_iteration(self, iteration: Iteration) -> None:
        """Do whatever is to be done; `iteration.monitor.stop_requested = True` stops the run."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """What it goes on from in a resumed run, by keys of its own."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what all hooks together gave."""


class CallHook(IterationHook):
    """Calls a function."""

    def __init__(self, function: Callable[[Iteration], Any]) -> None:
        self._function = function

    def after_iteration(self, iteration: Iteration) -> None:
        self._function(iteration)


class LogHook(IterationHook):
    """Writes the numbers of an iteration where they are logged."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def after_iteration(self, iteration: Iteration) -> None:
        progress = iteration.progress
        values = {
            **iteration.scalars,
            "Perf/total_fps": progress.total_fps,
            "Perf/collection_fps": progress.collect_fps,
            "Train/env_steps": progress.env_steps,
        }
        if progress.return_mean is not None and progress.length_mean is not None:
            values["Train/mean_reward"] = progress.return_mean
            values["Train/mean_episode_length"] = progress.length_mean
        for key, value in values.items():
            self.writer.add_scalar(key, value, progress.done)


class ReportHook(IterationHook):
    """Tells whoever wants to know of the progress, and stops the run if the answer is True."""

    def __init__(self, report: Callable[[Progress], bool | None]) -> None:
        self._report = report

    def after_iteration(self, iteration: Iteration) -> None:
        if self._report(iteration.progress):
            iteration.monitor.stop_requested = True


class SaveHook(IterationHook):
    """Writes a checkpoint every so many iterations."""

    def __init__(self, every: int) -> None:
        self._every = every

    def after_iteration(self, iteration: Iteration) -> None:
        if iteration.number % self._every == 0:
            iteration.monitor.save(f"model_{iteration.done}")


class TrainMonitor(Watcher):
    """Counts the steps and episodes of an environment that is learned in, and is told of every iteration.

    It looks on by itself; the backend calls `iteration`.
    """

    def __init__(
        self,
        env: ManagerBasedRlEnv,
        *,
        path: Path,
        suffix: str,
        total: int,
        unit: str,
        hooks: Sequence[IterationHook] = (),
        world_size: int = 1,
        elapsed: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.path = path
        self.suffix = suffix
        self.total = total
        self.unit = unit
        self.hooks = tuple(hooks)
        self.world_size = world_size
        """Processes that train together; each steps as many environments as this one."""
        self.elapsed = elapsed
        """How long the run has taken, with what was before it was resumed, s."""
        self.episodes = Episodes(num_envs=env.num_envs, device=env.device, keep=RECENT_EPISODES)
        self.done = 0
        """Spent of the budget, in the backend's unit."""
        self.env_steps = 0
        self.iterations = 0
        self.stop_requested = False
        self.learner: Learner | None = None
        self.last_checkpoint: Path | None = None
        self._env = env
        self._started: float | None = None
        self._already = 0
        self._steps_before = 0
        env.watchers.insert(0, self)  # outside of what a clock measures

    @property
    def env_steps_here(self) -> int:
        """Control steps since this process began or went on with the run."""
        return self.env_steps - self._steps_before

    def continue_from(self, state: dict[str, Any]) -> None:
        """Count on from where an interrupted run stopped."""
        self.done, self.iterations, self.env_steps = state["done"], state["iterations"], state["env_steps"]
        self._already, self._steps_before = self.done, self.env_steps
        self.episodes.load(state["episodes"])
        for hook in self.hooks:
            hook.load(state)

    def state(self) -> dict[str, Any]:
        """What `continue_from` needs."""
        counts = {"done": self.done, "iterations": self.iterations, "env_steps": self.env_steps}
        state = {**counts, "seconds": self.elapsed(), "episodes": self.episodes.state(), "best": None}
        for hook in self.hooks:
            state |= hook.state()
        return state

    def after_step(self, step: StepResult) -> None:
        """A control step of all environments has been made."""
        if self._started is None:
            self._started = time.perf_counter()  # building networks and buffers is no pace to go by
        self.episodes.add(step)
        self.env_steps += len(step.reward) * self.world_size

    def iteration(
        self,
        learner: Learner,
        *,
        done: int,
        env_steps: int,
        collect_seconds: float,
        learn_seconds: float,
        scalars: dict[str, float],
    ) -> None:
        """The learner has collected and learned once more; `done` of the budget is spent."""
        self.learner, self.done = learner, done
        self.iterations += 1
        fault = self.fault(scalars)
        if fault is not None:
            raise Diverged(f"{fault} after iteration {self.iterations}")
        collect_fps = env_steps / max(collect_seconds, 1e-9)
        total_fps = env_steps / max(collect_seconds + learn_seconds, 1e-9)
        progress = self._progress(
            done, collect_fps, total_fps, learn_seconds / max(collect_seconds + learn_seconds, 1e-9)
        )
        times = {"Perf/collection_time": collect_seconds, "Perf/learning_time": learn_seconds}
        iteration = Iteration(
            number=self.iterations,
            learner=learner,
            env=self._env,
            monitor=self,
            progress=progress,
            scalars={**self.episodes.drain(), **scalars, **times},
        )
        for hook in self.hooks:
            hook.after_iteration(iteration)
        if self.stop_requested and done < self.total:
            self.save(f"model_{done}")
            raise TrainingInterrupted

    def fault(self, scalars: Mapping[str, float] | None = None) -> str | None:
        """Which number of the learner is none; None if all are finite."""
        for name, value in (scalars or {}).items():
            if not math.isfinite(value):
                return f"{name} is {value}"
        bad = None if self.learner is None else first_not_finite(self.learner.weights())
        return None if bad is None else f"its weights {bad} are not finite"

    def save(self, stem: str) -> Path:
        """Write a checkpoint, and everything a resumed run starts from."""
        assert self.learner is not None
        path = self.path / f"{stem}{self.suffix}"
        self.learner.save(path)
        state = {
            "checkpoint": path.name,
            "learner": self.learner.state(),
            "env": self._env.state_dict(),
            "monitor": self.state(),
            "torch_rng": torch.get_rng_state(),
        }
        save_atomically(state, self.path / "resume.pt")
        self.last_checkpoint = path
        return path

    def _progress(self, done: int, collect_fps: float, total_fps: float, learn_share: float) -> Progress:
        now = time.perf_counter()
        elapsed = now - (now if self._started is None else self._started)
        pace = elapsed / max(done - self._already, 1)
        recent = self.episodes
        return Progress(
            done=done,
            total=self.total,
            unit=self.unit,
            env_steps=self.env_steps,
            elapsed=elapsed,
            eta=max(self.total - done, 0) * pace,
            collect_fps=collect_fps,
            total_fps=total_fps,
            learn_share=learn_share,
            return_mean=recent.return_mean,
            length_mean=recent.length_mean,
        )
