"""How long an exported policy takes to answer, one robot at a time on one core."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from genelab.rl.exported import open_policy

RUNS = 2000
"""Answers that are timed, if there is time."""
SECONDS = 2.0
"""No more time than this is spent, but `FEWEST` answers are timed in any case, s."""
FEWEST = 100
_WARM_UP = 50


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Time from observations to actions."""

    p50_us: float
    """Half of the answers came within this, µs."""
    p99_us: float
    """99 of 100 did, µs."""
    runs: int

    def __str__(self) -> str:
        return f"{self.p50_us:.0f} µs (p50), {self.p99_us:.0f} µs (p99) on one core, {self.runs} answers"


@torch.inference_mode()
def measure_latency(data: bytes, metadata: Mapping[str, Any]) -> Latency:
    """Time an exported policy, given as the content of its file, on a row of zeros.

    The first answers do not count: what runs a policy prepares itself in them.
    """
    policy = open_policy(data, dict(metadata), torch.device("cpu"))
    row = torch.zeros(1, metadata["obs_dim"])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(_WARM_UP):
            policy(row)
        times: list[int] = []
        end = time.perf_counter() + SECONDS
        while len(times) < FEWEST or (len(times) < RUNS and time.perf_counter() < end):
            start = time.perf_counter_ns()
            policy(row)
            times.append(time.perf_counter_ns() - start)
    finally:
        torch.set_num_threads(threads)
    p50, p99 = torch.tensor(times, dtype=torch.float64).quantile(torch.tensor([0.5, 0.99], dtype=torch.float64)) / 1000
    return Latency(p50_us=float(p50), p99_us=float(p99), runs=len(times))
