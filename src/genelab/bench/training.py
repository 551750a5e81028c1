"""How fast a task trains: a real training, and what it learns meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from genelab.bench.builders import (
    Facts,
    Iterations,
    LearningSeries,
    build_runtime,
    build_training_bundle,
)
from genelab.bench.formatters import Output
from genelab.bench.library import budget_of, iterations_in
from genelab.bench.metrics import SUCCESS, SuccessCount, pooled
from genelab.bench.monitor import BenchmarkMonitor
from genelab.bench.scenario import Scenario
from genelab.bench.schema import TrainingBundle
from genelab.bench.workflow import Workflow

if TYPE_CHECKING:
    from genelab.bench.stepping import StepTimer
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
        self._series = LearningSeries()
        self._timer: StepTimer | None = None
        self._ended = SuccessCount()
        self._tells_success = False
        self._env_steps = 0
        self._stopped_early = False
        self._checkpoint: str | None = None

    def measure(self, scenario: Scenario, monitor: BenchmarkMonitor, output: Output) -> None:
        from genelab.bench.stepping import StepTimer
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
            self._timer = StepTimer(env, watch=watch)

        def watch(result: Any) -> None:
            if not monitor.measuring:
                monitor.begin()
            self._after_step(result)

        result = train_task(
            scenario.task,
            agent=agent,
            overrides=self.workload.overrides,
            num_envs=self.workload.num_envs,
            max_iterations=budget,
            seed=self.workload.seed,
            log_dir=output.directory / scenario.identity(self.name).run_id(monitor),
            report=self._after_iteration,
            on_env=on_env,
            notify=self.notify,
        )
        self._checkpoint = str(result.checkpoint)
        if result.status == "interrupted" and not self._stopped_early:
            monitor.status = "interrupted"
        if self.success_threshold is not None and not self._tells_success:
            self.notify(f"--check-success had no effect: {scenario.task} does not say when it succeeds (is_success)")

    def _after_step(self, result: Any) -> None:
        _, _, terminated, truncated, info = result
        if SUCCESS in info:
            self._tells_success = True
            done = terminated | truncated
            self._ended.episodes += int(done.sum())
            self._ended.hits += int((info[SUCCESS].bool() & done).sum())

    def _after_iteration(self, progress: Progress) -> bool:
        """Keep the numbers of an iteration; True stops the training."""
        work = progress.env_steps - self._env_steps
        self._env_steps = progress.env_steps
        self._iterations.work.append(work)
        self._iterations.seconds.append(work / progress.total_fps)
        self._iterations.collect_seconds.append(work / progress.collect_fps)
        self._iterations.wall_s = progress.elapsed
        self._series.reward.append(progress.return_mean)
        self._series.ep_length.append(progress.length_mean)
        if self._tells_success:
            self._series.success.append(self._ended)
            self._ended = SuccessCount()
        self.report(progress)
        self._stopped_early = self._succeeds()
        return self._stopped_early

    def _succeeds(self) -> bool:
        if self.success_threshold is None or len(self._series.success) < self.success_window:
            return False
        rate = pooled(self._series.success[-self.success_window :]).rate
        return rate is not None and rate >= self.success_threshold

    def build(self, scenario: Scenario, facts: Facts) -> TrainingBundle:
        steps = None if self._timer is None else self._timer.times
        if steps is not None and steps.environment:
            self.phases.seconds["first_step"] = steps.environment[0]
        work = self._iterations.work
        runtime = build_runtime(
            self.phases.times,
            self._iterations,
            steps_per_iteration=work[0] if work else 0,
            num_envs=scenario.num_envs,
            steps=steps,
        )
        return build_training_bundle(
            facts,
            runtime,
            self._series,
            ema_alpha=self.ema_alpha,
            keep_series=self.keep_series,
            success_window=self.success_window,
            checkpoint_path=self._checkpoint,
            extra={"stopped_early": self._stopped_early, "env_steps": self._env_steps},
        )
