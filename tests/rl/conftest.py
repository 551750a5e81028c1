"""Fixtures of the tests of several RL libraries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from genelab.envs import ManagerBasedRlEnv
from genelab.rl.monitor import TrainMonitor


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A directory of its own, and one thread: the machine may be busy."""
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def learners(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The learners that were saved, the last one last."""
    found: list[Any] = []
    original = TrainMonitor.save

    def save(self: Any, stem: str) -> Path:
        found.append(self.learner)
        return original(self, stem)

    monkeypatch.setattr(TrainMonitor, "save", save)
    return found


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the environments answered to each step."""
    found: list[tuple[Any, ...]] = []
    original = ManagerBasedRlEnv.step

    def step(self: ManagerBasedRlEnv, action: torch.Tensor) -> Any:
        answer = original(self, action)
        found.append((answer[1].clone(), *answer[2:]))
        return answer

    monkeypatch.setattr(ManagerBasedRlEnv, "step", step)
    return found
