"""Where the time goes until a task has made its first step: cProfile on every phase."""

from __future__ import annotations

from dataclasses import dataclass

from genelab.bench.builders import Facts, build_startup_bundle
from genelab.bench.formatters import Output
from genelab.bench.monitor import BenchmarkMonitor
from genelab.bench.profiling import Phases, Whitelist
from genelab.bench.scenario import Scenario, made_env
from genelab.bench.schema import StartupBundle, StartupConfig
from genelab.bench.workflow import Workflow


@dataclass(kw_only=True)
class StartupBenchmark(Workflow[StartupBundle]):
    """`genelab benchmark startup`. The profiler makes Python slower: compare profiled starts with profiled starts."""

    name = "startup"

    top_n: int = 30
    """Functions that are kept of each phase."""
    whitelist: Whitelist | None = None
    """Keep only functions that these patterns name, by phase."""

    def __post_init__(self) -> None:
        self.phases = Phases(profile=True)

    def measure(self, scenario: Scenario, monitor: BenchmarkMonitor, output: Output) -> None:
        from genelab.rl.policies import random_policy

        with made_env(scenario, self.notify) as env:
            act = random_policy(env)
            with self.phases.phase("first_step"):
                env.step(act({}))

    def build(self, scenario: Scenario, facts: Facts) -> StartupBundle:
        missing = [] if self.whitelist is None else self.phases.unmatched(self.whitelist)
        for pattern in missing:
            self.notify(f"`whitelist`: no function of the phase answers to {pattern}")
        kept = None if self.whitelist is None else {name: tuple(found) for name, found in self.whitelist.items()}
        return build_startup_bundle(
            facts,
            self.phases.report(self.top_n, self.whitelist),
            StartupConfig(top_n=self.top_n, whitelist=kept),
            {"unmatched_patterns": ", ".join(missing)} if missing else {},
        )
