"""How fast a task steps: random actions, a clock around `env.step` alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from genelab.bench.builders import Facts, Iterations, build_runtime, build_runtime_bundle
from genelab.bench.formatters import Output
from genelab.bench.metrics import StepTimes
from genelab.bench.monitor import BenchmarkMonitor
from genelab.bench.scenario import Scenario, made_env
from genelab.bench.schema import RuntimeBundle
from genelab.bench.workflow import Workflow

if TYPE_CHECKING:
    from genelab.bench.stepping import StepTimer


@dataclass(kw_only=True)
class RuntimeBenchmark(Workflow[RuntimeBundle]):
    """`genelab benchmark runtime`."""

    name = "runtime"

    num_steps: int = 1000
    """Control steps that count."""
    warmup_steps: int = 50
    """Control steps before them."""

    def __post_init__(self) -> None:
        self._timer: StepTimer | None = None

    def measure(self, scenario: Scenario, monitor: BenchmarkMonitor, output: Output) -> None:
        from genelab.bench.stepping import StepTimer, run_step_loop, synchronizer
        from genelab.rl.finite import guarded
        from genelab.rl.policies import random_policy

        with made_env(scenario, self.notify) as env:
            act = random_policy(env)
            with self.phases.phase("first_step"):
                env.step(act({}))
            monitor.begin()
            self._timer = StepTimer(env.device, synchronize=synchronizer(env.device))
            with env.watched_by(self._timer), guarded(env):  # the guard is outside of the clock
                run_step_loop(env, act, self.num_steps, timer=self._timer, warmup_steps=self.warmup_steps)

    def build(self, scenario: Scenario, facts: Facts) -> RuntimeBundle:
        steps = StepTimes() if self._timer is None else self._timer.times
        runtime = build_runtime(
            self.phases.times,
            Iterations.of_steps(steps.environment, scenario.num_envs, steps.wall_s),
            steps_per_iteration=scenario.num_envs,
            num_envs=scenario.num_envs,
            warmup_steps=self.warmup_steps,
            steps=steps,
        )
        return build_runtime_bundle(facts, runtime, {"num_steps": self.num_steps})
