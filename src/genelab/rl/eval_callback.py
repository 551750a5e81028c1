"""Evaluation while training, on the live learner, in an environment that is built once."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from genelab.config import atomic_write_text
from genelab.envs import ManagerBasedRlEnv
from genelab.rl.backends.base import Learner
from genelab.rl.evaluator import evaluate

if TYPE_CHECKING:
    from genelab.rl.monitor import Writer


@dataclass(kw_only=True)
class EvalCallback:
    """Every so many iterations, evaluates the policy and keeps the best."""

    env: ManagerBasedRlEnv
    """Made once, with the run's own overrides."""
    path: Path
    """The run directory."""
    suffix: str
    every: int
    """Iterations between evaluations."""
    episodes: int = 10
    seed: int = 0
    best: float | None = None
    """Best mean return so far."""

    def after_iteration(self, learner: Learner, iteration: int, done: int, writer: Writer | None) -> None:
        """Evaluate if it is time to."""
        if iteration % self.every:
            return
        devices = [self.env.device] if self.env.device.type == "cuda" else []
        with torch.random.fork_rng(devices):  # the learner's random numbers are not spent here
            result = evaluate(self.env, learner.inference(), episodes=self.episodes, seed=self.seed)
        summary = result.summary()
        if writer is not None:
            for key, value in summary.items():
                if value is not None:
                    writer.add_scalar(f"Eval/{key}", value, done)
        record = {
            "iteration": done,
            "seed": self.seed,
            "episodes": len(result.returns),
            "metrics": summary,
            "evaluated_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        if self.best is None or summary["return_mean"] > self.best:
            self.best = summary["return_mean"]
            learner.save(self.path / f"best_model{self.suffix}")
            atomic_write_text(self.path / "best_model_meta.json", json.dumps(record, indent=2) + "\n")
