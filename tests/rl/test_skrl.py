"""Training with skrl, beyond the contract: what is special about its memory, its time-outs and its actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from genelab.errors import UsageError
from genelab.rl import TrainResult, resume_task
from genelab.rl.backends import GenelabSkrlWrapper
from genelab.rl.config import SkrlAgentCfg
from tests.rl.helpers import (
    play_env,
    return_of,
    same,
    train_agent,
)

TINY = {"rollouts": 8, "hidden_dims": (16, 16), "batch_size": 32, "learning_starts": 4, "memory_size": 80}

pytestmark = pytest.mark.usefixtures("alone")


Algorithm = Literal["PPO", "A2C", "SAC"]


def train(
    name: str,
    algorithm: Algorithm = "PPO",
    timesteps: int = 24,
    num_envs: int = 4,
    agent: dict[str, Any] = TINY,
    **options: Any,
) -> TrainResult:
    cfg = SkrlAgentCfg(algorithm=algorithm, timesteps=timesteps, **agent)
    return train_agent(cfg, name, num_envs=num_envs, **options)


@pytest.mark.parametrize("algorithm", ["PPO", "SAC"])
def test_a_run_that_stopped_within_a_rollout_goes_on_with_its_memory(algorithm: Algorithm) -> None:
    whole = train("whole", algorithm, timesteps=44)
    train("part", algorithm, timesteps=20)  # in the middle of a rollout; the memory of 20 steps is just full
    resumed = resume_task(Path("part"), max_iterations=44)
    assert resumed.env_steps == whole.env_steps == 44 * 4
    for name in ("model_final.pt", "resume.pt"):
        assert same(whole.path / name, resumed.path / name)


def test_the_memory_gets_the_observation_before_the_reset(learners: list[Any], steps: list[tuple[Any, ...]]) -> None:
    train("run", "SAC", timesteps=20, overrides={"env.episode_length_s": "0.05"})
    memory = learners[-1].agent.memory.tensors
    ends = 0
    for t in range(19):
        ended = steps[t][3].get("_final_obs", torch.zeros(4, dtype=torch.bool))
        for group, name in {"policy": "observations", "critic": "states"}.items():
            then, following = memory[f"next_{name}"][t], memory[name][t + 1]
            assert torch.equal(then[~ended], following[~ended])
            if ended.any():
                assert torch.equal(then[ended], steps[t][3]["final_obs"][group][ended])
                assert not torch.equal(then[ended], following[ended])
        assert torch.equal(memory["terminated"][t, :, 0], steps[t][1])
        ends += int(ended.sum())
    assert ends > 4  # most of them time-outs, after which the value goes on


@pytest.mark.parametrize("algorithm", ["PPO", "A2C"])
def test_a_time_out_adds_the_value_of_where_it_ended(
    algorithm: Algorithm, learners: list[Any], steps: list[tuple[Any, ...]]
) -> None:
    train("run", algorithm, timesteps=8, overrides={"env.episode_length_s": "0.05"})
    memory = learners[-1].agent.memory.tensors
    reward, truncated = torch.stack([s[0] for s in steps]), torch.stack([s[2] & ~s[1] for s in steps])
    assert truncated.any()
    assert torch.equal(memory["rewards"][..., 0] != reward, truncated)
    assert torch.equal(memory["truncated"][..., 0], truncated)


def test_actions_are_clipped_where_the_environment_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    env = play_env()
    original = env.step

    def step(action: Any) -> Any:
        seen.append(action)
        return original(action)

    monkeypatch.setattr(env, "step", step)
    for bound in (1.0, 100.0):
        wrapper = GenelabSkrlWrapper(env, bound)
        wrapper.step(torch.full((4, 1), -1e6))
        assert torch.equal(seen[-1], torch.full((4, 1), -bound))


def test_a_checkpoint_of_another_algorithm_is_refused() -> None:
    first = train("first")
    with pytest.raises(UsageError, match=r"made with agent.algorithm PPO; here it is SAC"):
        train("third", "SAC", checkpoint=first.checkpoint)


def test_ppo_learns_to_balance() -> None:
    assert (
        return_of(train("run", "PPO", timesteps=480, num_envs=256, agent={})) > 10
    )  # of 40; random actions earn 2, none 3


def test_sac_learns_to_balance() -> None:
    assert (
        return_of(train("run", "SAC", timesteps=500, num_envs=32, agent={})) > 5
    )  # of 40; random actions earn 2, none 3
