"""How fast a task trains: a real training, and what it learns meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from genelab.bench.builders import (
    Facts,
    Iterations,
    LearningSeries,
    build_runtime,
    build_training_bundle,
    interval_extra,
)
from genelab.bench.formatters import Output
from genelab.bench.library import budget_of, iterations_in
from genelab.bench.metrics import SuccessCount, pooled
from genelab.bench.monitor import BenchmarkMonitor
from genelab.bench.scenario import Scenario
from genelab.bench.schema import TrainingBundle
from genelab.bench.workflow import Workflow
from genelab.errors import UsageError

if TYPE_CHECKING:
    from genelab.bench.stepping import StepTimer, SuccessCounter
    from genelab.envs import ManagerBasedRlEnv
    from genelab.rl import Progress


@dataclass(kw_only=True)
class TrainingBenchmark(Workflow[TrainingBundle]):
    """`genelab benchmark training`. The run directory goes beside the bundle, not among the task's own runs."""

    name = "training"
    learns = True

    max_iterations: int | None = None
    """Learning iterations, whatever the library; None: the agent's own budget."""
    ema_alpha: float = 0.1
    """Weight of the newest value in smoothed curves."""
    keep_series: bool = True
    """Keep the curves, not only their ends."""
    success_threshold: float | None = None
    """Stop when this share of the window's episodes succeeds; None: do not."""
    success_window: int = 20
    """Iterations whose episodes count for the success rate."""
    report: Callable[[Progress], None] = lambda progress: None
    """Is shown the progress."""

    def __post_init__(self) -> None:
        self._iterations = Iterations()
        self._ends: list[float] = []
        """When each iteration ended, s."""
        self._series = LearningSeries()
        self._timer: StepTimer | None = None
        self._counter: SuccessCounter | None = None
        self._env_steps = 0
        self._stopped_early = False
        self._run_dir: Path | None = None

    def measure(self, scenario: Scenario, monitor: BenchmarkMonitor, output: Output) -> None:
        from genelab.bench.stepping import StepTimer, SuccessCounter
        from genelab.rl.backends import select_backend
        from genelab.rl.train import train_task

        backend, agent = select_backend(scenario.agent), scenario.agent
        budget = None
        if self.max_iterations is not None:
            budget = budget_of(agent, self.max_iterations, scenario.num_envs)
        start = time.perf_counter()

        def on_env(env: ManagerBasedRlEnv) -> None:
            self.phases.seconds["env_creation"] = time.perf_counter() - start
            scenario.seed = agent.seed
            scenario.max_iterations = iterations_in(agent, backend.budget(agent), env.num_envs)
            self._timer = StepTimer(env.device)
            self._counter = SuccessCounter(on_first_step=monitor.begin)
            env.watchers[:0] = [self._counter, self._timer]  # the counter is outside of the clock

        self._run_dir = output.directory / scenario.identity(self.name).run_id(monitor)
        result = train_task(
            scenario.task,
            agent=agent,
            overrides=self.workload.overrides,
            num_envs=self.workload.num_envs,
            max_iterations=budget,
            seed=self.workload.seed,
            log_dir=self._run_dir,
            report=self._after_iteration,
            on_env=on_env,
            notify=self.notify,
        )
        if result.status == "interrupted" and not self._stopped_early:
            monitor.status = "interrupted"
        if self.success_threshold is not None and not (self._counter is not None and self._counter.tells):
            why = f"{scenario.task} does not say when it succeeds (is_success)"
            self.notify(f"`success_threshold` had no effect: {why}")

    def _after_iteration(self, progress: Progress) -> bool:
        """Keep the numbers of an iteration; True stops the training."""
        work = progress.env_steps - self._env_steps
        self._env_steps = progress.env_steps
        self._ends.append(progress.elapsed)
        self._iterations.work.append(work)
        self._iterations.seconds.append(work / progress.total_fps)
        self._iterations.collect_seconds.append(work / progress.collect_fps)
        self._series.reward.append(progress.return_mean)
        self._series.ep_length.append(progress.length_mean)
        if self._counter is not None and self._counter.tells:
            self._series.success.append(self._counter.drain())
        self.report(progress)
        self._stopped_early = self._succeeds()
        return self._stopped_early

    def _succeeds(self) -> bool:
        if self.success_threshold is None or len(self._series.success) < self.success_window:
            return False
        rate = self._success.rate
        return rate is not None and rate >= self.success_threshold

    @property
    def _success(self) -> SuccessCount:
        return pooled(self._series.success[-self.success_window :])

    def build(self, scenario: Scenario, facts: Facts) -> TrainingBundle:
        steps = None if self._timer is None else self._timer.times
        if steps is not None and steps.environment:
            self.phases.seconds["first_step"] = steps.environment[0]
        done, success = self._iterations, self._success
        cold = 1 if len(done.seconds) > 1 else 0
        cold_steps = sum(done.work[:cold]) // scenario.num_envs
        measured = self._after(cold)
        runtime = build_runtime(
            self.phases.times,
            measured,
            steps_per_iteration=measured.work[0] if measured.work else 0,
            num_envs=scenario.num_envs,
            warmup_steps=cold_steps,
            steps=None if steps is None else steps.after(cold_steps),
            completed=len(done.seconds),
        )
        return build_training_bundle(
            facts,
            runtime,
            self._series,
            ema_alpha=self.ema_alpha,
            keep_series=self.keep_series,
            success=success,
            checkpoint_path=self._checkpoint(scenario),
            extra={
                "stopped_early": self._stopped_early,
                "env_steps": self._env_steps,
                "iterations_measured": len(measured.seconds),
                "first_iteration_s": done.seconds[0] if done.seconds else None,
                "success_episodes": success.episodes,
                **interval_extra("success_ci95", success.interval),
            },
        )

    def _after(self, cold: int) -> Iterations:
        """The iterations that are measured: without the first ones, in which everything is cold."""
        done = self._iterations
        seconds = done.seconds[cold:]
        return Iterations(
            work=done.work[cold:],
            seconds=seconds,
            collect_seconds=done.collect_seconds[cold:],
            wall_s=self._ends[-1] - self._ends[cold] + seconds[0] if seconds else 0.0,
        )

    def _checkpoint(self, scenario: Scenario) -> str | None:
        """The last one in the run directory, also of a run that crashed."""
        from genelab.rl.locate import find_checkpoint

        if self._run_dir is None:
            return None
        try:
            return str(find_checkpoint(scenario.task, self._run_dir, agent=scenario.agent))
        except UsageError:
            return None
