"""Evaluation while training, on the live learner, in an environment that is built once."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from genelab.config import atomic_write_text
from genelab.envs import ManagerBasedRlEnv
from genelab.rl.evaluator import evaluate
from genelab.rl.monitor import Iteration, IterationHook, Writer

EVALUATIONS_FILE = "evaluations.json"
"""What every evaluation of a run found, in its directory."""


@dataclass(kw_only=True)
class EvalCallback(IterationHook):
    """Every so many iterations, and after the last, evaluates the policy and keeps the best."""

    env: ManagerBasedRlEnv
    """Made once, with the run's own overrides."""
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
    episodes: int = 10
    seed: int = 0
    best: float | None = None
    """Best mean return so far."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """What the evaluations found, the first one first."""
    seconds: float = 0.0
    """Spent collecting and learning since the run began."""

    @property
    def best_model(self) -> Path:
        """Where the best policy is."""
        return self.path / f"best_model{self.suffix}"

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
        learner, done = iteration.learner, iteration.done
        self.env.command_manager.begin_at(iteration.env.command_manager.stage())
        devices = [self.env.device] if self.env.device.type == "cuda" else []
        with torch.random.fork_rng(devices):  # the learner's random numbers are not spent here
            result = evaluate(
                self.env, learner.inference(), episodes=self.episodes, seed=self.seed, max_steps=self.max_steps
            )
        summary = result.summary()
        if self.writer is not None:
            for key, value in summary.items():
                if value is not None:
                    self.writer.add_scalar(f"Eval/{key}", value, done)
        self._remember(iteration, summary)
        is_best = self.best is None or summary["return_mean"] > self.best
        if is_best:
            self.best = summary["return_mean"]
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
                "metrics": summary,
                "evaluated_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            }
            atomic_write_text(self.path / "best_model_meta.json", json.dumps(record, indent=2) + "\n")
        when = f"{self.unit.removesuffix('s')} {done:,}"
        self.notify(f"evaluation at {when}: {_in_words(summary)}{', the best so far' * is_best}")

    def _remember(self, iteration: Iteration, summary: dict[str, Any]) -> None:
        """Write what was found beside what was found before."""
        found = {
            "iteration": iteration.number,
            "spent": iteration.done,
            "env_steps": iteration.progress.env_steps,
            "seconds": round(self.seconds, 3),
            **summary,
        }
        self.history.append(found)
        text = ",\n".join(f"  {json.dumps(one)}" for one in self.history)
        atomic_write_text(self.path / EVALUATIONS_FILE, f"[\n{text}\n]\n")


def _in_words(summary: dict[str, Any]) -> str:
    success = summary["success_rate"]
    text = f"return {summary['return_mean']:.3f}, length {summary['length_mean']:.1f}"
    return text if success is None else f"{text}, success {success:.0%}"
