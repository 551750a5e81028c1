"""Who looks on: load, stamps and status."""

from __future__ import annotations

import os
import subprocess
import time

import psutil
import pytest

from genelab.bench import BenchmarkMonitor, capture
from genelab.bench.capture import Load
from tests.bench.stubs import Clock


def test_it_samples_while_the_work_is_done() -> None:
    with BenchmarkMonitor(interval=0.02) as monitor:
        time.sleep(0.2)
    assert 2 <= len(monitor.samples) <= 11
    assert monitor.status == "completed"
    ram = monitor.resources.ram_gb
    assert ram is not None
    assert ram.mean == pytest.approx(psutil.Process().memory_info().rss / 1e9, rel=0.2)
    assert monitor.resources.gpu_mem_gb is None


def test_a_run_shorter_than_the_interval_has_a_sample() -> None:
    with BenchmarkMonitor() as monitor:
        pass
    assert len(monitor.samples) == 1


def test_looks_at_the_load_without_time_between_them_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """psutil has no time to go by at its first call, and says 0; soon after a call it says anything."""
    clock = Clock()
    monkeypatch.setattr(capture, "time", clock)
    answers = iter([0.0, 150.0, 7000.0, 50.0])
    monkeypatch.setattr(psutil.Process, "cpu_percent", lambda self: next(answers))
    look = capture.load_probe()
    seen = []
    for seconds in (0.2, 0.05, 0.2):
        clock.sleep(seconds)
        seen.append(look().cpu_util_pct)
    assert seen == [150.0, None, 50.0]


def test_the_last_sample_is_taken_only_half_an_interval_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("genelab.bench.monitor.time", clock)
    for after, count in ((0.4, 1), (0.6, 2)):
        with BenchmarkMonitor(interval=1.0) as monitor:
            clock.sleep(1.0)
            monitor._sample()
            clock.sleep(after)
        assert len(monitor.samples) == count


def test_the_load_before_the_measured_part_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("genelab.bench.monitor.time", clock)
    with BenchmarkMonitor() as monitor:
        assert not monitor.measuring
        clock.sleep(3.0)
        monitor._sample()
        monitor.begin()
        assert (monitor.measuring, monitor.samples) == (True, [])
        clock.sleep(0.4)
        monitor._sample()
        assert monitor.samples == []
    assert len(monitor.samples) == 1


def test_a_core_that_is_busy_is_a_hundred_percent() -> None:
    look = capture.load_probe()
    start, used = time.perf_counter(), time.process_time()
    while time.perf_counter() - start < 0.3:
        pass
    share = (time.process_time() - used) / (time.perf_counter() - start)
    assert look().cpu_util_pct == pytest.approx(100 * share, abs=25)


def test_stamps_are_of_the_start_and_of_the_end() -> None:
    with BenchmarkMonitor() as monitor:
        time.sleep(0.1)
    between = (monitor.ended - monitor.started).total_seconds()
    assert between == pytest.approx(monitor.duration_s, abs=0.05)
    assert monitor.duration_s >= 0.1


@pytest.mark.parametrize(("error", "status"), [(ValueError, "crashed"), (KeyboardInterrupt, "interrupted")])
def test_how_it_ended_is_kept_and_goes_on_up(error: type[BaseException], status: str) -> None:
    monitor = BenchmarkMonitor()
    with pytest.raises(error), monitor:
        raise error
    assert monitor.status == status
    assert not monitor._thread.is_alive()


def test_the_machine_in_physical_cores_and_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def cpu_count(logical: bool = True) -> int:
        asked.append(logical)
        return 8 if logical else 4

    monkeypatch.setattr(psutil, "cpu_count", cpu_count)
    machine = capture.capture_hardware()
    assert (machine.cpu_count, asked) == (4, [False])
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert machine.ram_gb == pytest.approx(pages / 10**9, rel=0.01)
    assert machine.gpu_devices == ()


def test_gpu_memory_is_what_torch_has_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cuda:
        def memory_reserved(self) -> int:
            return 2 * 10**9

        def utilization(self) -> int:
            raise ModuleNotFoundError("pynvml")

    monkeypatch.setattr(capture, "_gpu", Cuda)
    load = capture.load_probe()()
    assert isinstance(load, Load)
    assert (load.gpu_mem_gb, load.gpu_util_pct) == (2.0, None)


def test_the_software_is_named() -> None:
    found = capture.capture_versions()
    assert found.torch
    assert found.rsl_rl
    assert found.mujoco


def test_a_repository_that_does_not_answer_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(words: list[str], **options: object) -> None:
        raise subprocess.TimeoutExpired(words, 10)

    monkeypatch.setattr(subprocess, "run", slow)
    assert capture.capture_versions().git_commit is None
