"""Training with rl_games: PPO learns, saves, loads and resumes, and leaves nothing of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from genelab import TASKS
from genelab.config import Override
from genelab.envs import ManagerBasedRlEnv
from genelab.errors import UsageError
from genelab.rl import EvalOptions, TrainResult, resume_task
from genelab.rl.backends import select_backend
from genelab.rl.config import RlGamesAgentCfg
from genelab.rl.world import eval_cfg
from tests.rl.helpers import (
    PENDULUM,
    agent_of,
    check_width_matters,
    return_of,
    same,
    train_agent,
)

TINY = {"horizon_length": 8, "hidden_dims": (16, 16)}

pytestmark = pytest.mark.usefixtures("alone")


def train(
    name: str,
    timesteps: int = 24,
    num_envs: int = 4,
    agent: dict[str, Any] = TINY,
    symmetric: bool = False,
    **options: Any,
) -> TrainResult:
    env = TASKS.get(PENDULUM).env
    if symmetric:
        del env.observations["critic"]
    return train_agent(RlGamesAgentCfg(timesteps=timesteps, **agent), name, env=env, num_envs=num_envs, **options)


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_loaded_policy_acts_exactly_as_the_live_one_did(
    symmetric: bool, learners: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    result = train("run", symmetric=symmetric)
    assert {path.name for path in Path.cwd().iterdir()} == {"run"}  # rl_games left nothing of its own
    assert capfd.readouterr().out == ""
    cfg = eval_cfg(TASKS.get(PENDULUM).play_env, 4)
    if symmetric:
        del cfg.observations["critic"]
    env, agent = ManagerBasedRlEnv(cfg), agent_of(result)
    live, other = learners[-1].inference(), RlGamesAgentCfg(timesteps=1)  # the checkpoint knows its networks
    loaded = [select_backend(cfg).load(env, cfg, result.checkpoint) for cfg in (agent, other)]
    random = select_backend(agent).load(env, agent, result.checkpoint, deterministic=False)
    with torch.inference_mode():
        observations, _ = env.reset(seed=0)
        for _ in range(20):
            action = live.policy(observations)
            assert action.shape == (4, 1)
            assert all(torch.equal(setup.policy(observations), action) for setup in loaded)
            assert not torch.equal(random.policy(observations), action)
            observations, *_ = env.step(action)


@pytest.mark.parametrize("symmetric", [False, True])
def test_an_interrupted_and_resumed_run_is_the_uninterrupted_one(symmetric: bool) -> None:
    whole = train("whole", timesteps=40, symmetric=symmetric)
    train("part", timesteps=14, symmetric=symmetric)  # two horizons of 8
    resumed = resume_task(Path("part"), max_iterations=40)
    assert resumed.env_steps == whole.env_steps == 40 * 4
    for name in ("model_final.pt", "resume.pt"):
        assert same(whole.path / name, resumed.path / name)


def test_in_training_evaluation_changes_nothing() -> None:
    plain = train("plain")
    watched = train("watched", evaluation=EvalOptions(every=1, episodes=2, num_envs=2))
    assert same(plain.checkpoint, watched.checkpoint)
    assert (watched.path / "best_model.pt").is_file()


def test_a_time_out_adds_a_value_and_a_failure_does_not(learners: list[Any], steps: list[tuple[Any, ...]]) -> None:
    train("run", timesteps=8, overrides=[Override("env.episode_length_s", "0.05")])
    reward, truncated = torch.stack([s[0] for s in steps]), torch.stack([s[2] & ~s[1] for s in steps])
    assert truncated.any()
    stored = learners[-1].agent.experience_buffer.tensor_dict["rewards"][..., 0]
    assert torch.equal(stored != reward, truncated)


def test_a_warm_start_begins_with_the_weights_of_the_checkpoint() -> None:
    first = train("first")
    fixed = {**TINY, "lr_schedule": "fixed", "learning_rate": 0.0}
    second = train("second", timesteps=1, agent=fixed, checkpoint=first.checkpoint)
    before, after = (torch.load(result.checkpoint, weights_only=True)["model"] for result in (first, second))
    assert torch.equal(before["a2c_network.mu.weight"], after["a2c_network.mu.weight"])
    with pytest.raises(UsageError, match=r"made with agent.hidden_dims \(16, 16\); here it is \(128, 128\)"):
        train("third", agent={}, checkpoint=first.checkpoint)


def test_a_checkpoint_of_another_width_is_refused_in_one_line() -> None:
    check_width_matters(train("run"))


def test_minibatches_must_divide_the_batch() -> None:
    with pytest.raises(UsageError, match=r"agent.num_minibatches: 5 equal parts cannot be made of the 32 steps"):
        train("run", agent={**TINY, "num_minibatches": 5})


def test_the_config_reads_back() -> None:
    assert agent_of(train("run")) == RlGamesAgentCfg(timesteps=24, seed=3, **TINY)


def test_ppo_learns_to_balance() -> None:
    assert return_of(train("run", timesteps=360, num_envs=256, agent={})) > 10  # of 40; random actions earn 2, none 3
