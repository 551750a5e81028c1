"""What the four workflows have in common: however a run ends, it leaves a bundle that says so."""

from __future__ import annotations

import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import ClassVar, Generic, TypeVar

from genelab.bench.builders import Facts, build_run
from genelab.bench.capture import capture_hardware, capture_versions
from genelab.bench.formatters import Output, attach_bundle
from genelab.bench.monitor import BenchmarkMonitor
from genelab.bench.profiling import Phases
from genelab.bench.scenario import Scenario, Workload, load_scenario, start_engine
from genelab.bench.schema import PlayBundle, RuntimeBundle, StartupBundle, TrainingBundle, Versions
from genelab.errors import UsageError

AnyBundle = TypeVar("AnyBundle", RuntimeBundle, StartupBundle, TrainingBundle, PlayBundle)


@dataclass(kw_only=True)
class Workflow(ABC, Generic[AnyBundle]):
    """One run of a benchmark."""

    name: ClassVar[str]
    policy_acts: ClassVar[bool] = False
    """Whether it runs the config that policies are judged with."""
    learns: ClassVar[bool] = False
    """Whether it trains."""

    workload: Workload
    notify: Callable[[str], None] = lambda message: None
    """Takes remarks to the user."""
    phases: Phases = field(default_factory=Phases, init=False)
    bundle: AnyBundle | None = field(default=None, init=False)
    """What it left, also after an exception; None if it was refused."""
    files: list[Path] = field(default_factory=list, init=False)
    """What was written."""

    @abstractmethod
    def measure(self, scenario: Scenario, monitor: BenchmarkMonitor, output: Output) -> None:
        """Run it, and keep what is seen on the way; `monitor.begin()` where the first step has shown that it runs."""

    @abstractmethod
    def build(self, scenario: Scenario, facts: Facts) -> AnyBundle:
        """The bundle of what was seen so far, be it nothing."""

    def run(self, output: Output) -> AnyBundle:
        """Run under a monitor and, however that ends, give the bundle to the output; then raise what was raised.

        Bad input leaves no bundle, unless it comes to light after the first step; nor does what ends before the
        task's config is made.
        """
        with output.checked():
            return self._run(output)

    def _run(self, output: Output) -> AnyBundle:
        versions = capture_versions()  # before anything is written into the repository
        monitor = BenchmarkMonitor()
        scenario: Scenario | None = None
        refused = False
        try:
            with monitor, _terminated_like_ctrl_c():
                scenario = load_scenario(self.workload, self.phases, play=self.policy_acts, learns=self.learns)
                start_engine(scenario, self.notify)
                self.measure(scenario, monitor, output)
        except UsageError:
            refused = not monitor.measuring
            raise
        finally:
            if scenario is not None and not refused:
                self.bundle = self.build(scenario, self._facts(scenario, monitor, versions))
                self.files = attach_bundle(self.bundle, output)
        assert self.bundle is not None
        return self.bundle

    def _facts(self, scenario: Scenario, monitor: BenchmarkMonitor, versions: Versions) -> Facts:
        return Facts(
            run=build_run(scenario.identity(self.name), monitor),
            versions=versions,
            hardware=capture_hardware(),
            resources=monitor.resources,
        )


@contextmanager
def _terminated_like_ctrl_c() -> Iterator[None]:
    """SIGTERM, which a job that takes too long gets, leaves a bundle, too."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
