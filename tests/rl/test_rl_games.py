"""Training with rl_games, beyond the contract: what is special about its time-outs and its batches."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from genelab.errors import UsageError
from genelab.rl import TrainResult
from genelab.rl.config import RlGamesAgentCfg
from tests.rl.helpers import return_of, train_agent

TINY = {"horizon_length": 8, "hidden_dims": (16, 16)}

pytestmark = pytest.mark.usefixtures("alone")


def train(
    name: str, timesteps: int = 24, num_envs: int = 4, agent: dict[str, Any] = TINY, **options: Any
) -> TrainResult:
    return train_agent(RlGamesAgentCfg(timesteps=timesteps, **agent), name, num_envs=num_envs, **options)


def test_a_time_out_adds_a_value_and_a_failure_does_not(learners: list[Any], steps: list[tuple[Any, ...]]) -> None:
    train("run", timesteps=8, overrides={"env.episode_length_s": "0.05"})
    reward, truncated = torch.stack([s[0] for s in steps]), torch.stack([s[2] & ~s[1] for s in steps])
    assert truncated.any()
    stored = learners[-1].agent.experience_buffer.tensor_dict["rewards"][..., 0]
    assert torch.equal(stored != reward, truncated)


def test_a_checkpoint_of_another_network_is_refused() -> None:
    first = train("first")
    with pytest.raises(UsageError, match=r"made with agent.hidden_dims \(16, 16\); here it is \(128, 128\)"):
        train("third", agent={}, checkpoint=first.checkpoint)


def test_minibatches_must_divide_the_batch() -> None:
    with pytest.raises(UsageError, match=r"agent.num_minibatches: 5 equal parts cannot be made of the 32 steps"):
        train("run", agent={**TINY, "num_minibatches": 5})


def test_ppo_learns_to_balance() -> None:
    assert return_of(train("run", timesteps=360, num_envs=256, agent={})) > 10  # of 40; random actions earn 2, none 3
