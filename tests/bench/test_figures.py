"""The lines of the project's own table."""

from __future__ import annotations

import dataclasses

from benchmarks.figures import within
from genelab.bench.metrics import StepTimes, step_timing
from tests.bench.stubs import runtime_bundle


def test_a_rate_is_held_against_env_step_of_its_own_run() -> None:
    """Four environments in 1 ms of `env.step` are 4000 steps a second; of the whole there are 1000."""
    runtime = runtime_bundle(1000.0).runtime
    assert within("play", runtime.total_fps, runtime).line() == "| play | 1,000 steps/s |  |  |"
    for simulation, against in (([0.0005], "its own `env.step` | 0.25"), (None, " | ")):
        timing = step_timing(StepTimes(environment=[0.001], simulation=simulation), num_envs=4, warmup_steps=0)
        timed = dataclasses.replace(runtime, environment_step_timing=timing)
        line = within("play", timed.total_fps, timed).line()
        assert line.split(" steps/s | ")[1] == f"{against} |"
