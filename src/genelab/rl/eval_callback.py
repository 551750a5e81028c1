"""Evaluation while training, on the live learner, in an environment that is built once."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from genelab.config import atomic_write_text
from genelab.envs import ManagerBasedRlEnv
from genelab.errors import GenelabError, summary
from genelab.rl.evaluator import evaluate
from genelab.rl.monitor import Iteration, IterationHook, Writer

EVALUATIONS_FILE = "evaluations.json"
"""What every evaluation of a run found, in its directory."""


@dataclass(kw_only=True)
class EvalCallback(IterationHook):
    """Every so many iterations, and after the last, evaluates the policy and keeps the best."""

    make_env: Callable[[], ManagerBasedRlEnv]
    """Makes the environment to judge in, with the run's own overrides; called once, for the first evaluation."""
    env: ManagerBasedRlEnv | None = None
    """What `make_env` has made. None: nothing yet."""
    task_id: str
    path: Path
    """The run directory."""
    suffix: str
    unit: str
    """What the budget counts, in the plural."""
    every: int | None = None
    """Iterations between evaluations; None: only the last is evaluated."""
    max_steps: int | None = None
    """Control steps after which an evaluation ends, complete or not."""
    writer: Writer | None = None
    """Where to log; None: nowhere."""
    notify: Callable[[str], None] = lambda message: None
    """Is told what each evaluation found."""
    quiet: bool = False
    """Do not tell; only that the last evaluation failed."""
    episodes: int = 10
    seed: int = 0
    best: float | None = None
    """Best mean return so far."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """What the evaluations found, the first one first."""
    seconds: float = 0.0
    """Spent collecting and learning since the run began."""
    took: float = 0.0
    """Spent evaluating by this process, s."""

    @property
    def best_model(self) -> Path:
        """Where the best policy is."""
        return self.path / f"best_model{self.suffix}"

    def of_iteration(self, number: int) -> Mapping[str, Any] | None:
        """Return what the evaluation after an iteration found; None if it was not evaluated."""
        return next((one for one in self.history if one["iteration"] == number), None)

    def state(self) -> dict[str, Any]:
        return {"best": self.best, "evaluations": self.history, "learning_seconds": self.seconds}

    def load(self, state: Mapping[str, Any]) -> None:
        self.best = state["best"]
        self.history = list(state.get("evaluations") or [])
        self.seconds = state.get("learning_seconds") or 0.0

    def after_iteration(self, iteration: Iteration) -> None:
        """Evaluate if it is time to, with the commands that the curriculum has come to."""
        self.seconds += iteration.scalars["Perf/collection_time"] + iteration.scalars["Perf/learning_time"]
        if not iteration.last and (self.every is None or iteration.number % self.every):
            return
        start = time.perf_counter()
        try:
            self._evaluate(iteration)
        except (Exception, KeyboardInterrupt) as error:
            if self.every is not None:
                raise
            # Hours of training are not lost because the look at their result failed.
            told = "interrupted" if isinstance(error, KeyboardInterrupt) else summary(error)
            self.notify(f"no final evaluation: {error if isinstance(error, GenelabError) else told}")
        finally:
            self.took += time.perf_counter() - start

    def _evaluate(self, iteration: Iteration) -> None:
        learner, done = iteration.learner, iteration.done
        devices = [iteration.env.device] if iteration.env.device.type == "cuda" else []
        with torch.random.fork_rng(devices):  # the learner's random numbers are not spent here
            if self.env is None:
                self.env = self.make_env()
            self.env.command_manager.begin_at(iteration.env.command_manager.stage())
            result = evaluate(
                self.env, learner.inference(), episodes=self.episodes, seed=self.seed, max_steps=self.max_steps
            )
        found = result.summary()
        if self.writer is not None:
            for key, value in found.items():
                if value is not None:
                    self.writer.add_scalar(f"Eval/{key}", value, done)
        self._remember(
            iteration, {**found, "return_ci95": result.intervals()["return_ci95"], "episodes": len(result.returns)}
        )
        is_best = self.best is None or found["return_mean"] > self.best
        if is_best:
            self.best = found["return_mean"]
            learner.save(self.best_model)
            record = {
                "task": self.task_id,
                "checkpoint": self.best_model.name,
                "iteration": iteration.number,
                "spent": done,
                "unit": self.unit,
                "env_steps": iteration.progress.env_steps,
                "seed": self.seed,
                "episodes": len(result.returns),
                "metrics": found,
                "evaluated_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            }
            atomic_write_text(self.path / "best_model_meta.json", json.dumps(record, indent=2) + "\n")
        when = f"{self.unit.removesuffix('s')} {done:,}"
        if not self.quiet:
            self.notify(f"evaluation at {when}: {_in_words(found)}{', the best so far' * is_best}")

    def _remember(self, iteration: Iteration, found: dict[str, Any]) -> None:
        """Write what was found beside what was found before."""
        entry = {
            "iteration": iteration.number,
            "spent": iteration.done,
            "env_steps": iteration.progress.env_steps,
            "seconds": round(self.seconds, 3),
            **found,
        }
        self.history.append(entry)
        text = ",\n".join(f"  {json.dumps(one)}" for one in self.history)
        atomic_write_text(self.path / EVALUATIONS_FILE, f"[\n{text}\n]\n")


def _in_words(summary: dict[str, Any]) -> str:
    success = summary["success_rate"]
    text = f"return {summary['return_mean']:.3f}, length {summary['length_mean']:.1f}"
    return text if success is None else f"{text}, success {success:.0%}"
