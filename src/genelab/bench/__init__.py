"""Benchmarks: four workflows, each one process that ends in one typed bundle.

Names are imported when they are used, so that reading a bundle imports neither torch nor a simulator.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genelab.bench.acting import PlayBenchmark, resolve_play_checkpoint
    from genelab.bench.builders import (
        build_play_bundle,
        build_runtime_bundle,
        build_startup_bundle,
        build_training_bundle,
    )
    from genelab.bench.compare import compare_bundles
    from genelab.bench.formatters import Output, attach_bundle
    from genelab.bench.monitor import BenchmarkMonitor
    from genelab.bench.runtime import RuntimeBenchmark
    from genelab.bench.scenario import Workload
    from genelab.bench.schema import MeanStd, PlayBundle, RuntimeBundle, StartupBundle, TrainingBundle
    from genelab.bench.serialize import read_bundle, write_bundle
    from genelab.bench.startup import StartupBenchmark
    from genelab.bench.stepping import run_play_loop
    from genelab.bench.training import TrainingBenchmark

_HOME = {
    "BenchmarkMonitor": "monitor",
    "MeanStd": "schema",
    "Output": "formatters",
    "PlayBenchmark": "acting",
    "PlayBundle": "schema",
    "RuntimeBenchmark": "runtime",
    "RuntimeBundle": "schema",
    "StartupBenchmark": "startup",
    "StartupBundle": "schema",
    "TrainingBenchmark": "training",
    "TrainingBundle": "schema",
    "Workload": "scenario",
    "attach_bundle": "formatters",
    "build_play_bundle": "builders",
    "build_runtime_bundle": "builders",
    "build_startup_bundle": "builders",
    "build_training_bundle": "builders",
    "compare_bundles": "compare",
    "read_bundle": "serialize",
    "resolve_play_checkpoint": "acting",
    "run_play_loop": "stepping",
    "write_bundle": "serialize",
}

__all__ = [
    "BenchmarkMonitor",
    "MeanStd",
    "Output",
    "PlayBenchmark",
    "PlayBundle",
    "RuntimeBenchmark",
    "RuntimeBundle",
    "StartupBenchmark",
    "StartupBundle",
    "TrainingBenchmark",
    "TrainingBundle",
    "Workload",
    "attach_bundle",
    "build_play_bundle",
    "build_runtime_bundle",
    "build_startup_bundle",
    "build_training_bundle",
    "compare_bundles",
    "read_bundle",
    "resolve_play_checkpoint",
    "run_play_loop",
    "write_bundle",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
