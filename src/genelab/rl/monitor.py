"""What the lab does around any learner: count, log, save, evaluate, stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv
from genelab.rl.backends.base import Learner
from genelab.rl.checkpoint import save_atomically
from genelab.rl.episodes import Episodes
from genelab.rl.finite import Diverged, first_not_finite

if TYPE_CHECKING:
    from genelab.rl.eval_callback import EvalCallback
    from genelab.rl.film_callback import FilmCallback

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


class TrainMonitor:
    """Is told of every step and every iteration of the learner."""

    def __init__(
        self,
        env: ManagerBasedRlEnv,
        *,
        path: Path,
        suffix: str,
        total: int,
        unit: str,
        save_interval: int,
        writer: Writer | None,
        report: Callable[[Progress], bool | None],
        evaluation: EvalCallback | None = None,
        film: FilmCallback | None = None,
        iteration_hook: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = path
        self.suffix = suffix
        self.total = total
        self.unit = unit
        self.save_interval = save_interval
        self.writer = writer
        self.report = report
        self.evaluation = evaluation
        self.film = film
        self.episodes = Episodes(num_envs=env.num_envs, device=env.device, keep=RECENT_EPISODES)
        self.env_steps = 0
        self.iterations = 0
        self.stop_requested = False
        self.learner: Learner | None = None
        self.last_checkpoint: Path | None = None
        self._env = env
        self._done = 0
        self._iteration_hook = iteration_hook
        self._started: float | None = None
        self._already = 0

    def continue_from(self, state: dict[str, Any]) -> None:
        """Count on from where an interrupted run stopped."""
        self._already, self.iterations, self.env_steps = state["done"], state["iterations"], state["env_steps"]
        self.episodes.load(state["episodes"])
        if self.evaluation is not None:
            self.evaluation.best = state["best"]

    def state(self, done: int) -> dict[str, Any]:
        """What `continue_from` needs."""
        return {
            "done": done,
            "iterations": self.iterations,
            "env_steps": self.env_steps,
            "episodes": self.episodes.state(),
            "best": None if self.evaluation is None else self.evaluation.best,
        }

    def step(self, reward: Tensor, done: Tensor, info: dict[str, Any]) -> None:
        """A control step of all environments has been made."""
        if self._started is None:
            self._started = time.perf_counter()  # building networks and buffers is no pace to go by
        self.episodes.add(reward, done, info)
        self.env_steps += len(reward)

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
        self.learner, self._done = learner, done
        self.iterations += 1
        if (fault := self.fault(scalars)) is not None:
            raise Diverged(f"{fault} after iteration {self.iterations}")
        collect_fps = env_steps / max(collect_seconds, 1e-9)
        total_fps = env_steps / max(collect_seconds + learn_seconds, 1e-9)
        progress = self._progress(
            done, collect_fps, total_fps, learn_seconds / max(collect_seconds + learn_seconds, 1e-9)
        )
        self._log(progress, {**scalars, "Perf/collection_time": collect_seconds, "Perf/learning_time": learn_seconds})
        if self.report(progress):
            self.stop_requested = True
        self._iteration_hook()
        self._share_stage()
        if self.evaluation is not None:  # before the save, which keeps what the best return is
            self.evaluation.after_iteration(
                learner,
                self.iterations,
                done=done,
                last=done >= self.total,
                env_steps=self.env_steps,
                writer=self.writer,
            )
        if self.iterations % self.save_interval == 0:
            self.save(f"model_{done}")
        if self.film is not None:
            self.film.after_iteration(learner, self.iterations, done)
        if self.stop_requested and done < self.total:
            self.save(f"model_{done}")
            raise TrainingInterrupted

    def _share_stage(self) -> None:
        """Judge and film with the commands that the curriculum has come to."""
        stage = self._env.command_manager.stage()
        for onlooker in (self.evaluation, self.film):
            if onlooker is not None:
                onlooker.env.command_manager.begin_at(stage)

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
            "monitor": self.state(self._done),
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

    def _log(self, progress: Progress, scalars: dict[str, float]) -> None:
        values = {**self.episodes.drain(), **scalars}  # also where nothing is written, or it would pile up
        if self.writer is None:
            return
        values["Perf/total_fps"] = progress.total_fps
        values["Perf/collection_fps"] = progress.collect_fps
        values["Train/env_steps"] = progress.env_steps
        if progress.return_mean is not None and progress.length_mean is not None:
            values["Train/mean_reward"] = progress.return_mean
            values["Train/mean_episode_length"] = progress.length_mean
        for key, value in values.items():
            self.writer.add_scalar(key, value, progress.done)
