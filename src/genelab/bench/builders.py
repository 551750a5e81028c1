"""From what was measured to a bundle: pure assembly, which works for a run that was cut short, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from genelab.bench.backend_descriptor import BackendDescriptor
from genelab.bench.metrics import (
    StepTimes,
    SuccessCount,
    learning_curve,
    mean_std,
    step_timing,
    throughput,
)
from genelab.bench.monitor import BenchmarkMonitor
from genelab.bench.schema import (
    Hardware,
    Learning,
    PlayBundle,
    Resources,
    RunIdentity,
    Runtime,
    RuntimeBundle,
    Scalar,
    StartupBundle,
    StartupConfig,
    StartupPhase,
    StartupTime,
    TrainingBundle,
    Versions,
)
from genelab.statistics import Interval


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What every bundle says."""

    run: RunIdentity
    versions: Versions
    hardware: Hardware
    resources: Resources


@dataclass(kw_only=True)
class Iterations:
    """Samples of the measured iterations, filled on the way."""

    work: list[int] = field(default_factory=list)
    """Control steps of all environments together, in each iteration."""
    seconds: list[float] = field(default_factory=list)
    """What each took in all."""
    collect_seconds: list[float] = field(default_factory=list)
    """What collecting took of it."""
    wall_s: float = 0.0
    """From the first to the end of the last."""

    @classmethod
    def of_steps(cls, seconds: Sequence[float], num_envs: int, wall_s: float) -> Iterations:
        """Iterations that are control steps, all of which is collecting."""
        times = list(seconds)
        return cls(work=[num_envs] * len(times), seconds=times, collect_seconds=times, wall_s=wall_s)


@dataclass(kw_only=True)
class LearningSeries:
    """How a training went, a value per iteration, filled on the way."""

    reward: list[float | None] = field(default_factory=list)
    ep_length: list[float | None] = field(default_factory=list)
    success: list[SuccessCount] = field(default_factory=list)
    """Empty if the task does not tell of success."""


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What is known of a run before it has ended."""

    workflow: str
    backend: BackendDescriptor
    task: str
    seed: int
    num_envs: int
    overrides: Sequence[str] = ()
    max_iterations: int | None = None

    def run_id(self, monitor: BenchmarkMonitor) -> str:
        """A name for the run."""
        stamp = monitor.started.strftime("%Y-%m-%d_%H-%M-%S")
        return f"{self.backend.framework or self.workflow}_{self.backend.physics}_{self.task}_{stamp}_seed{self.seed}"


def build_run(identity: RunFacts, monitor: BenchmarkMonitor) -> RunIdentity:
    """Which run it was, once it has ended."""
    return RunIdentity(
        run_id=identity.run_id(monitor),
        framework=identity.backend.framework,
        config=identity.backend.run_config(identity.overrides),
        task=identity.task,
        seed=identity.seed,
        start_time_utc=monitor.started.isoformat(timespec="milliseconds"),
        end_time_utc=monitor.ended.isoformat(timespec="milliseconds"),
        duration_s=monitor.duration_s,
        status=monitor.status,
        num_envs=identity.num_envs,
        max_iterations=identity.max_iterations,
    )


def build_runtime(
    startup: StartupTime,
    iterations: Iterations,
    *,
    steps_per_iteration: int,
    num_envs: int,
    warmup_steps: int = 0,
    steps: StepTimes | None = None,
    completed: int | None = None,
) -> Runtime:
    """How fast it was; `completed` are all iterations, where not all were measured."""
    done = len(iterations.seconds)
    return Runtime(
        startup_time_s=startup,
        iterations_completed=done if completed is None else completed,
        total_wall_time_s=iterations.wall_s,
        steps_per_iteration=steps_per_iteration,
        iteration_time_s=mean_std(iterations.seconds),
        collection_fps=throughput(iterations.work, iterations.collect_seconds),
        total_fps=throughput(iterations.work, iterations.seconds),
        iterations_per_s=throughput([1] * done, iterations.seconds),
        environment_step_timing=None if steps is None else step_timing(steps, num_envs, warmup_steps),
    )


def build_runtime_bundle(facts: Facts, runtime: Runtime, extra: dict[str, Scalar] | None = None) -> RuntimeBundle:
    """The bundle of random actions."""
    return RuntimeBundle(
        run=facts.run,
        versions=facts.versions,
        hardware=facts.hardware,
        runtime=runtime,
        resources=facts.resources,
        extra=extra or {},
    )


def interval_extra(name: str, interval: Interval | None) -> dict[str, Scalar]:
    """A 95 % interval as two scalars."""
    low, high = (None, None) if interval is None else interval
    return {f"{name}_low": low, f"{name}_high": high}


def build_startup_bundle(
    facts: Facts, phases: dict[str, StartupPhase], config: StartupConfig, extra: dict[str, Scalar] | None = None
) -> StartupBundle:
    """The bundle of a start."""
    return StartupBundle(
        run=facts.run,
        versions=facts.versions,
        hardware=facts.hardware,
        phases=phases,
        config=config,
        extra=extra or {},
    )


def build_training_bundle(
    facts: Facts,
    runtime: Runtime,
    series: LearningSeries,
    *,
    ema_alpha: float,
    keep_series: bool,
    success: SuccessCount,
    checkpoint_path: str | None,
    extra: dict[str, Scalar] | None = None,
) -> TrainingBundle:
    """The bundle of a training; `success` is that of its last window."""
    rates = [count.rate for count in series.success]
    return TrainingBundle(
        run=facts.run,
        versions=facts.versions,
        hardware=facts.hardware,
        runtime=runtime,
        resources=facts.resources,
        learning=Learning(
            ema_alpha=ema_alpha,
            reward=learning_curve(series.reward, ema_alpha, keep=keep_series),
            ep_length=learning_curve(series.ep_length, ema_alpha, keep=keep_series),
            success_rate=learning_curve(rates, ema_alpha, keep=keep_series),
        ),
        success_rate=success.rate,
        checkpoint_path=checkpoint_path,
        extra=extra or {},
    )


def build_play_bundle(
    facts: Facts,
    runtime: Runtime,
    *,
    returns: Sequence[float],
    lengths: Sequence[int],
    success: SuccessCount | None,
    checkpoint_path: str | None,
    video_path: str | None = None,
    extra: dict[str, Scalar] | None = None,
) -> PlayBundle:
    """The bundle of a trained policy; `extra` says how many episodes there were and how sure the numbers are."""
    return PlayBundle(
        run=facts.run,
        versions=facts.versions,
        hardware=facts.hardware,
        runtime=runtime,
        resources=facts.resources,
        success_rate=None if success is None else success.rate,
        reward=mean_std(returns),
        ep_length=mean_std(lengths),
        checkpoint_path=checkpoint_path,
        video_path=video_path,
        extra=extra or {},
    )
