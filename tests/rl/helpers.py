"""What the tests of several RL libraries do alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from genelab import TASKS, TaskCfg
from genelab.config import load_json
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, rl_cfg
from genelab.rl import TrainResult, train_task
from genelab.rl.backends import select_backend
from genelab.rl.evaluator import evaluate
from genelab.rl.world import eval_cfg

PENDULUM = "GeneLab-Inverted-Pendulum-v0"
TASK = "Test-v0"


def train_agent(
    agent: Any, name: str, *, env: ManagerBasedRlEnvCfg | None = None, num_envs: int = 4, **options: Any
) -> TrainResult:
    """Train an agent on the pendulum, or on another task, into a directory of this name."""
    cfg = TaskCfg(env=env or rl_cfg(PENDULUM), agent=agent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TASKS, "_entries", dict(TASKS._entries))
        TASKS.register(TASK, lambda: cfg)
        return train_task(TASK, num_envs=num_envs, seed=3, log_dir=Path(name), **options)


def agent_of(result: TrainResult) -> Any:
    """The agent config that a run wrote."""
    return load_json(result.path / "params" / "agent.json")


def play_env(num_envs: int = 4) -> ManagerBasedRlEnv:
    """The pendulum as it is played."""
    return ManagerBasedRlEnv(eval_cfg(rl_cfg(PENDULUM, play=True), num_envs))


def return_of(result: TrainResult) -> float:
    """What the last checkpoint of a run earns on the pendulum."""
    env, agent = play_env(16), agent_of(result)
    return evaluate(env, select_backend(agent).load(env, agent, result.checkpoint), episodes=16, seed=0).return_mean


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors in nested dicts and lists."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in tensors(part)]
    return [value] if isinstance(value, torch.Tensor) else []


def same(first: Path, second: Path) -> bool:
    """Whether two files hold the same tensors; what was never written may be NaN."""
    a, b = (tensors(torch.load(path, weights_only=True)) for path in (first, second))
    return len(a) == len(b) > 0 and all(
        x.equal(y) or x.nan_to_num().equal(y.nan_to_num()) for x, y in zip(a, b, strict=True)
    )
