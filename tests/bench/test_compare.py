"""Slower or not, and what cannot be compared."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest

from genelab.bench.compare import Comparison, bundle_files, compare_bundles, workload_of
from genelab.bench.metrics import StepTimes, step_timing
from genelab.bench.schema import (
    EnvironmentStepTiming,
    GpuDeviceInfo,
    Learning,
    RunConfig,
    RuntimeBundle,
    StartupBundle,
    StartupConfig,
    StartupPhase,
    TrainingBundle,
)
from genelab.bench.serialize import write_bundle
from genelab.cli.main import run
from genelab.errors import UsageError
from tests.bench.stubs import runtime_bundle


def compared(before: list[float], after: list[float], **limits: float) -> Comparison:
    first = {Path(f"a{i}.json"): runtime_bundle(fps) for i, fps in enumerate(before)}
    second = {Path(f"b{i}.json"): runtime_bundle(fps) for i, fps in enumerate(after)}
    return compare_bundles(first, second, **limits)


@pytest.mark.parametrize(
    ("after", "verdict"), [(1200.0, "ok"), (951.0, "ok"), (949.0, "slower"), (901.0, "slower"), (899.0, "regressed")]
)
def test_the_gate_is_total_fps(after: float, verdict: str) -> None:
    result = compared([1000.0], [after])
    gate = result.rows[0]
    assert (gate.name, gate.verdict) == ("total_fps", verdict)
    assert gate.change == pytest.approx(after / 1000 - 1)
    assert result.regressed == (verdict == "regressed")
    assert {row.verdict for row in result.rows[1:]} == {"advisory"}


def test_the_limits_are_the_users() -> None:
    assert compared([1000.0], [960.0], warn=0.01, fail=0.03).regressed
    assert not compared([1000.0], [600.0], warn=0.01, fail=0.5).regressed
    with pytest.raises(UsageError, match="0 ≤ warn ≤ fail < 1"):
        compared([1.0], [1.0], warn=0.5, fail=0.1)


def test_runs_of_a_side_are_pooled_by_work_over_time_with_an_interval() -> None:
    """1000 and 500 a second: the same work twice takes 3 ms a thousandth, which is 666.7 a second."""
    gate = compared([1000.0, 500.0], [600.0]).rows[0]
    assert gate.before.runs == 2
    assert gate.before.mean == pytest.approx(2000 / 3)
    assert gate.after.interval is None
    three = compared([1000.0, 1010.0, 990.0], [1000.0]).rows[0].before
    assert three.interval is not None
    samples = [1 / 1000, 1 / 1010, 1 / 990]
    mean = sum(samples) / 3
    half = 4.302652730 * math.sqrt(sum((one - mean) ** 2 for one in samples) / 2 / 3)
    assert three.interval == pytest.approx((1 / (mean + half), 1 / (mean - half)))


GPU = GpuDeviceInfo(name="A GPU", mem_gb=8.0, compute_cap="8.9")


def timing(warmup_steps: int) -> EnvironmentStepTiming | None:
    return step_timing(StepTimes(environment=[1.0]), num_envs=4, warmup_steps=warmup_steps)


def changed(part: str, **values: Any) -> RuntimeBundle:
    bundle = runtime_bundle()
    return dataclasses.replace(bundle, **{part: dataclasses.replace(getattr(bundle, part), **values)})


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (changed("run", task="Other-v0"), "task Task-v0 ≠ Other-v0"),
        (changed("run", num_envs=8), "num_envs 4 ≠ 8"),
        (changed("run", config=RunConfig(physics_backend="genesis")), "engine mujoco ≠ genesis"),
        (
            changed("run", config=RunConfig(physics_backend="mujoco", overrides=("env.decimation=2",))),
            "overrides none ≠ env.decimation=2",
        ),
        (changed("run", framework="skrl"), "framework None ≠ skrl"),
        (changed("run", max_iterations=5), "max_iterations None ≠ 5"),
        (changed("runtime", iterations_completed=5), "iterations_completed 10 ≠ 5"),
        (changed("runtime", environment_step_timing=timing(warmup_steps=7)), "warmup_steps None ≠ 7"),
        (changed("versions", torch="3"), "torch 2 ≠ 3"),
        (changed("hardware", cpu_name="Another CPU"), "CPU A CPU ≠ Another CPU"),
        (changed("hardware", cpu_count=64), "cores 2 ≠ 64"),
        (changed("hardware", gpu_devices=(GPU,)), "GPU none ≠ A GPU"),
        (changed("runtime", total_fps=None), "b.json: has no total_fps"),
        (changed("run", status="crashed"), "b.json: the run crashed; only completed runs can be compared"),
    ],
)
def test_what_is_not_comparable_is_refused_by_name(other: RuntimeBundle, why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        compare_bundles({Path("a.json"): runtime_bundle()}, {Path("b.json"): other})


def test_a_training_that_stopped_early_is_other_work() -> None:
    base = runtime_bundle()
    facts = {one: getattr(base, one) for one in ("run", "versions", "hardware", "resources")}
    full, short = (
        TrainingBundle(
            **facts,
            runtime=dataclasses.replace(base.runtime, iterations_completed=count),
            learning=Learning(ema_alpha=0.1),
        )
        for count in (9, 3)
    )
    with pytest.raises(UsageError, match="iterations_completed 9 ≠ 3"):
        compare_bundles({Path("a.json"): full}, {Path("b.json"): short})


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (("a=1", "b=2"), ("b=2", "a=1"), True),
        ((), ("env.simulation.engine=mujoco", "env.simulation.vis=False", "env.seed=3"), True),
        (("a=1",), ("a=2", "a=1"), True),
        (("a=1",), ("a=1", "a=2"), False),
        (("a=1",), ("a=1", "b=2"), False),
    ],
)
def test_overrides_are_compared_by_what_they_do(before: tuple[str, ...], after: tuple[str, ...], same: bool) -> None:
    first, second = (changed("run", config=RunConfig(physics_backend="mujoco", overrides=o)) for o in (before, after))
    assert (workload_of(first) == workload_of(second)) is same


def test_another_genelab_seed_and_host_is_what_a_comparison_is_for() -> None:
    bundle = changed("versions", genelab="2", git_commit="abc", git_dirty=True)
    bundle = dataclasses.replace(bundle, run=dataclasses.replace(bundle.run, seed=8))
    bundle = dataclasses.replace(bundle, hardware=dataclasses.replace(bundle.hardware, hostname="there"))
    assert not compare_bundles({Path("a.json"): runtime_bundle()}, {Path("b.json"): bundle}).regressed


def test_another_policy_is_other_work() -> None:
    first, second = (dataclasses.replace(runtime_bundle(), extra={"checkpoint_sha256": name}) for name in "ab")
    with pytest.raises(UsageError, match="checkpoint a ≠ b"):
        compare_bundles({Path("a.json"): first}, {Path("b.json"): second})


def startup(seconds: float) -> StartupBundle:
    base = runtime_bundle()
    phases = {"env_creation": StartupPhase(total_time_s=seconds, top_functions=())}
    config = StartupConfig(top_n=1)
    return StartupBundle(run=base.run, versions=base.versions, hardware=base.hardware, phases=phases, config=config)


def test_start_up_is_shown_and_never_fails() -> None:
    result = compare_bundles({Path("a.json"): startup(1.0)}, {Path("b.json"): startup(16.0)})
    (row,) = result.rows
    assert (row.name, row.change, row.verdict) == ("env_creation_s", 15.0, "advisory")
    with pytest.raises(UsageError, match="workflow startup ≠ runtime"):
        compare_bundles({Path("a.json"): startup(1.0)}, {Path("b.json"): runtime_bundle()})


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for name, fps in {"a": 1000.0, "b": 850.0, "c": 990.0}.items():
        write_bundle(runtime_bundle(fps), Path(f"{name}.json"))
    for i, fps in enumerate((1000.0, 1010.0, 990.0)):
        write_bundle(runtime_bundle(fps), Path(f"many/benchmark_runtime_{i}.json"))
    Path("many/benchmark_runtime_0.phases.json").write_text("{}")
    assert run(["benchmark", "compare", "a.json", "c.json"]) == 0
    assert run(["benchmark", "compare", "a.json", "b.json"]) == 1
    assert "regressed" in capfd.readouterr().out
    assert run(["benchmark", "compare", "a.json", "b.json", "--fail", "0.2"]) == 0
    assert "slower" in capfd.readouterr().out
    assert run(["benchmark", "compare", "many", "a.json,c.json"]) == 0
    assert "of 3 runs" in capfd.readouterr().out
    assert run(["benchmark", "compare", "a.json", "none.json"]) == 2
    assert capfd.readouterr().err == "genelab: cannot read none.json: No such file or directory\n"
    Path("empty").mkdir()
    assert run(["benchmark", "compare", "a.json", "empty"]) == 2
    assert len(bundle_files("many")) == 3
