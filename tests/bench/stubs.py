"""Environments and policies that take a known time, and bundles of known numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from genelab.bench.schema import (
    Hardware,
    LearningCurve,
    MeanStd,
    Resources,
    RunConfig,
    RunIdentity,
    Runtime,
    RuntimeBundle,
    StartupTime,
    Versions,
)
from genelab.envs import Watcher

TASK = "GeneLab-Inverted-Pendulum-v0"


class Clock:
    """Stands in for the module `time`: it goes on only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class StubEnv:
    """Environment i pays i + 1 a step and ends after `lengths[i]` steps."""

    device = torch.device("cpu")

    def __init__(self, lengths: tuple[int, ...] = (2, 3), sleep: Callable[[], None] = lambda: None) -> None:
        self.num_envs = len(lengths)
        self.max_episode_length = max(lengths)
        self.lengths = torch.tensor(lengths)
        self.sleep = sleep
        self.modes: list[bool] = []
        self.seeds: list[int | None] = []
        self.watchers: list[Watcher] = []

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        self.ages = torch.zeros(self.num_envs, dtype=torch.int64)
        self.seeds.append(seed)
        return {"policy": self.ages.clone()}, {}

    def step(self, action: Any) -> Any:
        for watcher in self.watchers:
            watcher.before_step(action)
        self.act()
        self.modes.append(torch.is_inference_mode_enabled())
        self.ages += 1
        done = self.ages >= self.lengths
        self.ages[done] = 0
        answer = self.answer(torch.arange(1.0, self.num_envs + 1), done)
        for watcher in self.watchers:
            watcher.after_step(answer)
        return answer

    def act(self) -> None:
        self.sleep()

    def answer(self, reward: Tensor, done: Tensor) -> Any:
        return {"policy": self.ages.clone()}, reward, done, torch.zeros_like(done), {}


def act(observations: Any) -> Tensor:
    """An action that nobody looks at."""
    return torch.zeros(1)


def runtime_bundle(fps: float = 1000.0, **changes: Any) -> RuntimeBundle:
    """A completed run at this speed; changes go into its identity."""
    run = RunIdentity(
        **{
            "run_id": "runtime_mujoco_Task-v0_2026-01-01_00-00-00_seed7",
            "framework": None,
            "config": RunConfig(physics_backend="mujoco"),
            "task": "Task-v0",
            "seed": 7,
            "start_time_utc": "2026-01-01T00:00:00.000+00:00",
            "end_time_utc": "2026-01-01T00:00:02.000+00:00",
            "duration_s": 2.0,
            "status": "completed",
            "num_envs": 4,
            **changes,
        }
    )
    return RuntimeBundle(
        run=run,
        versions=Versions(genelab="1", torch="2"),
        hardware=Hardware(hostname="here", gpu_devices=(), cpu_name="A CPU", cpu_count=2, ram_gb=8.0),
        runtime=Runtime(
            startup_time_s=StartupTime(app_launch=0.1, env_creation=0.2, first_step=None),
            iterations_completed=10,
            total_wall_time_s=1.0,
            steps_per_iteration=4,
            iteration_time_s=MeanStd(mean=4 / fps, std=0.0, peak=4 / fps),
            collection_fps=MeanStd(mean=fps, std=0.0, peak=fps),
            total_fps=MeanStd(mean=fps, std=0.0, peak=fps),
            iterations_per_s=None,
        ),
        resources=Resources(ram_gb=MeanStd(mean=0.5, std=0.0)),
        extra={"note": "none", "number": 3, "share": 0.5, "flag": True, "unknown": None},
    )


CURVE = LearningCurve(final_raw=1.0, final_ema=0.5, series_per_iter=(None, 0.25, 1.0))
