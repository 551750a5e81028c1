"""Looks on while a benchmark runs."""

from __future__ import annotations

import datetime
import threading
import time
from types import TracebackType

from genelab.bench.capture import Load, load_probe
from genelab.bench.metrics import mean_std
from genelab.bench.schema import MeanStd, Resources, Status


class BenchmarkMonitor:
    """A context that samples the load every second, and knows when the run began, when it ended and how."""

    def __init__(self, interval: float = 1.0) -> None:
        self.samples: list[Load] = []
        self.status: Status = "completed"
        """As the context ended; a run that stops without an exception says itself that it was interrupted."""
        self.started = self.ended = datetime.datetime.now(datetime.UTC)
        self.duration_s = 0.0
        self.measuring = False
        """Whether the run has come to what it measures."""
        self._interval = interval
        self._over = False
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="benchmark-monitor", daemon=True)

    def __enter__(self) -> BenchmarkMonitor:
        self.started = datetime.datetime.now(datetime.UTC)
        self._clock = time.perf_counter()
        self._look = load_probe()
        self._looked = self._clock
        self._thread.start()
        return self

    def begin(self) -> None:
        """What is measured begins now: the load of the way here, imports and construction, does not count."""
        self.measuring = True
        with self._lock:
            self.samples.clear()
            self._look()
            self._looked = time.perf_counter()

    def end(self) -> None:
        """What is measured has ended: the load from now on, of a film for one, does not count."""
        self._sample(at_last=True)
        self._over = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._sample(at_last=True)
        self.duration_s = time.perf_counter() - self._clock
        self.ended = datetime.datetime.now(datetime.UTC)
        if kind is not None:
            self.status = "interrupted" if issubclass(kind, KeyboardInterrupt) else "crashed"

    @property
    def resources(self) -> Resources:
        """The load from `begin`, or the start if it did not come to it, to `end`."""
        names = ("gpu_util_pct", "cpu_util_pct", "gpu_mem_gb", "ram_gb")
        return Resources(**{name: self._summary(name) for name in names})

    def _summary(self, name: str) -> MeanStd | None:
        values = [getattr(sample, name) for sample in self.samples]
        return mean_std([value for value in values if value is not None])

    def _watch(self) -> None:
        while not self._stop.wait(self._interval):
            self._sample()

    def _sample(self, *, at_last: bool = False) -> None:
        """Look, unless the last look was less than half an interval ago; a short run has one sample, too."""
        with self._lock:
            now = time.perf_counter()
            if self._over:
                return
            if now - self._looked >= self._interval / 2 or (at_last and not self.samples):
                self.samples.append(self._look())
                self._looked = now
