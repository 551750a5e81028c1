"""How good a policy is: full episodes, a fixed number from each environment."""

from __future__ import annotations

import copy
import datetime
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genelab.config import TASKS, Override, apply_overrides, atomic_write_text
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.errors import GenelabError, UsageError
from genelab.rl.backends.base import InferenceSetup, select_backend
from genelab.rl.run import versions

MAX_EPISODE_S = 30.0
"""Endless episodes are cut to this, s."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Episodes of an evaluation, in the order of environments."""

    returns: list[float]
    lengths: list[int]
    successes: list[bool] | None
    """None if the task publishes no `is_success`."""
    seconds: float
    metrics: dict[str, float] = field(default_factory=dict)
    """What the task reports of its episodes, by key, averaged."""

    @property
    def return_mean(self) -> float:
        """Mean return of the episodes."""
        return sum(self.returns) / len(self.returns)

    def summary(self) -> dict[str, Any]:
        """The numbers of the spec's `metrics`, and their spread."""
        returns, lengths = torch.tensor(self.returns).double(), torch.tensor(self.lengths).double()
        success = None if self.successes is None else sum(self.successes) / len(self.successes)
        return {
            "return_mean": returns.mean().item(),
            "return_std": returns.std(correction=0).item(),
            "length_mean": lengths.mean().item(),
            "length_std": lengths.std(correction=0).item(),
            "success_rate": success,
        }


def eval_cfg(cfg: ManagerBasedRlEnvCfg, num_envs: int) -> ManagerBasedRlEnvCfg:
    """A play config made fit to be judged with: it resets what ends, and every episode ends."""
    cfg = copy.deepcopy(cfg)
    cfg.scene.num_envs = num_envs
    cfg.simulation.vis = False
    cfg.auto_reset = True
    cfg.episode_length_s = min(cfg.episode_length_s, MAX_EPISODE_S)
    for group in cfg.observations.values():
        group.enable_noise = False
    cfg.events = {name: event for name, event in cfg.events.items() if event is not None and event.mode != "interval"}
    return cfg


def evaluate_task(
    task_id: str,
    checkpoint: Path,
    *,
    num_envs: int = 64,
    episodes: int = 100,
    seed: int = 0,
    deterministic: bool = True,
    max_steps: int | None = None,
    overrides: Sequence[Override] = (),
    out: Path | None = None,
    notify: Callable[[str], None] = lambda message: None,
) -> dict[str, Any]:
    """Evaluate a checkpoint in the task's play config; returns the report, and writes it to `out`."""
    task = TASKS.get(task_id)
    backend = select_backend(task.agent)
    cfg = task.play_env if task.play_env is not None else task.env
    apply_overrides({"env": cfg, "agent": task.agent}, overrides)
    if not checkpoint.is_file():
        raise UsageError(f"{checkpoint}: no such checkpoint")
    if out is not None and not out.resolve().parent.is_dir():
        raise UsageError(f"--out: there is no directory {out.parent}")
    start = time.perf_counter()
    env = ManagerBasedRlEnv(eval_cfg(cfg, min(num_envs, episodes)), notify=notify)
    try:
        setup = backend.load(env, task.agent, checkpoint, deterministic=deterministic)
        result = evaluate(env, setup, episodes=episodes, seed=seed, max_steps=max_steps)
        engine = env.scene.engine.name
    finally:
        env.close()
    report = {
        "task": TASKS.entry(task_id).id,
        "checkpoint": str(checkpoint),
        "num_episodes": len(result.returns),
        "metrics": result.summary(),
        "wall_clock_seconds": round(time.perf_counter() - start, 3),
        "seed": seed,
        "deterministic": deterministic,
        "evaluated_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "num_envs": min(num_envs, episodes),
        "engine": engine,
        "task_metrics": result.metrics,
        "versions": versions(),
    }
    if out is not None:
        try:
            atomic_write_text(out, json.dumps(report, indent=2) + "\n")
        except OSError as error:
            raise UsageError(f"--out: cannot write {out}: {error.strerror}") from error
    return report


@torch.inference_mode()
def evaluate(
    env: ManagerBasedRlEnv, setup: InferenceSetup, *, episodes: int, seed: int, max_steps: int | None = None
) -> Evaluation:
    """Run the first ⌈episodes / num_envs⌉ episodes of every environment and keep `episodes` of them.

    Taking the first episodes to finish, whoever finishes them, would favour short ones.
    """
    quota = math.ceil(episodes / env.num_envs)
    torch.manual_seed(seed)  # a stochastic policy draws from it
    observations, _ = env.reset(seed=seed)
    setup.reset(None)
    book = _Book(env, quota)
    start = time.perf_counter()
    step = 0
    while not book.full:
        if max_steps is not None and step >= max_steps:
            break
        action = setup.policy(observations)
        observations, reward, terminated, truncated, info = env.step(action)
        done = terminated | truncated
        setup.reset(done)
        book.add(reward, done, info)
        step += 1
    return book.close(episodes, time.perf_counter() - start)


class _Book:
    """Keeps the first `quota` episodes of every environment."""

    def __init__(self, env: ManagerBasedRlEnv, quota: int) -> None:
        self._returns = torch.zeros(env.num_envs, quota, dtype=torch.float64, device=env.device)
        self._lengths = torch.zeros_like(self._returns, dtype=torch.int64)
        self._success = torch.zeros_like(self._returns, dtype=torch.bool)
        self._count = torch.zeros(env.num_envs, dtype=torch.int64, device=env.device)
        self._return = torch.zeros_like(self._count, dtype=torch.float64)
        self._length = torch.zeros_like(self._count)
        self._has_success = False
        self._log: dict[str, list[float]] = {}

    @property
    def full(self) -> bool:
        """Whether every environment has filled its quota."""
        return bool((self._count >= self._returns.shape[1]).all())

    def add(self, reward: Tensor, done: Tensor, info: dict[str, Any]) -> None:
        """Take a step."""
        self._return += reward
        self._length += 1
        for key, value in info.get("log", {}).items():
            self._log.setdefault(key, []).append(float(value))
        rows = (done & (self._count < self._returns.shape[1])).nonzero().flatten()
        columns = self._count[rows]
        self._returns[rows, columns] = self._return[rows]
        self._lengths[rows, columns] = self._length[rows]
        if "is_success" in info:
            self._has_success = True
            self._success[rows, columns] = info["is_success"][rows]
        self._count[rows] += 1
        self._return[done] = 0.0
        self._length[done] = 0

    def close(self, episodes: int, seconds: float) -> Evaluation:
        """The result; the first episodes of all environments before the second ones."""
        finished = torch.arange(self._returns.shape[1], device=self._count.device) < self._count[:, None]
        keep = finished.T.flatten().nonzero().flatten()[:episodes]
        if not len(keep):
            raise GenelabError("no episode ended in the steps allowed: raise --max-steps")

        def chosen(values: Tensor) -> list[Any]:
            return values.T.flatten()[keep].tolist()

        return Evaluation(
            returns=chosen(self._returns),
            lengths=chosen(self._lengths),
            successes=chosen(self._success) if self._has_success else None,
            seconds=seconds,
            metrics={key: sum(values) / len(values) for key, values in self._log.items()},
        )
