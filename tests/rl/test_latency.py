"""How long an exported policy takes to answer."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor

from genelab.rl import latency
from genelab.rl.latency import measure_latency


class Sleeper:
    """Answers late now and then."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.calls = 0

    def __call__(self, obs: Tensor) -> Tensor:
        assert obs.shape == (1, 5)
        self.threads.add(torch.get_num_threads())
        self.calls += 1
        time.sleep(0.02 if self.calls % 25 == 0 else 0.0005)
        return obs


def test_it_is_timed_on_one_thread_and_its_late_answers_show(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Sleeper()
    monkeypatch.setattr(latency, "open_policy", lambda data, metadata, device: policy)
    monkeypatch.setattr(latency, "RUNS", 120)
    threads = torch.get_num_threads()
    found = measure_latency(b"", {"obs_dim": 5})
    assert policy.threads == {1}
    assert torch.get_num_threads() == threads
    assert found.runs >= 100
    assert policy.calls == found.runs + 50  # those before do not count
    assert 500.0 <= found.p50_us < found.p99_us
    assert found.p99_us >= 20_000.0


def test_export_and_benchmark_tell_it(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import json

    from genelab.cli.main import run

    monkeypatch.chdir(tmp_path)
    task = "GeneLab-Inverted-Pendulum-v0"
    assert run(["export", task, "pretrained", "--format", "onnx", "--out", "policy.onnx"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("latency"))
    assert "µs (p50)" in line
    assert "µs (p99) on one core" in line
    words = ["--num-steps", "4", "--warmup-steps", "1", "--num-envs", "2", "--checkpoint", "policy.onnx", "--out", "."]
    assert run(["benchmark", "play", task, *words]) == 0
    (path,) = tmp_path.glob("benchmark_play_*.json")
    extra = json.loads(path.read_text())["extra"]
    assert 0.0 < extra["policy_latency_p50_us"] <= extra["policy_latency_p99_us"]
