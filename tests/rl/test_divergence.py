"""A learner whose numbers are none stops like physics does: one line that says who it was, and a dump."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from genelab import TASKS, TaskCfg
from genelab.cli.main import run
from genelab.envs import FiniteGuard, ManagerBasedRlEnv, ManagerBasedRlEnvCfg, NotFiniteError, rl_cfg
from genelab.rl import train_task
from genelab.rl.config import RlGamesAgentCfg, Sb3AgentCfg, Sb3OffPolicyCfg, Sb3OnPolicyCfg, SkrlAgentCfg
from genelab.rl.finite import first_not_finite
from tests.narrow import as_kind
from tests.rl.helpers import PENDULUM, train_agent

pytestmark = pytest.mark.usefixtures("alone")

SB3_OFF_POLICY = Sb3OffPolicyCfg(buffer_size=400, learning_starts=8, batch_size=16, gradient_steps=4, iteration_steps=8)
AGENTS: dict[str, Any] = {
    "skrl-PPO": SkrlAgentCfg(algorithm="PPO", timesteps=40, rollouts=4, hidden_dims=(8,), kl_threshold=0.0),
    "skrl-SAC": SkrlAgentCfg(
        algorithm="SAC", timesteps=40, rollouts=4, hidden_dims=(8,), learning_starts=4, memory_size=400, batch_size=16
    ),
    "sb3-PPO": Sb3AgentCfg(algorithm="PPO", timesteps=400, hidden_dims=(8,), on_policy=Sb3OnPolicyCfg(n_steps=8)),
    "sb3-SAC": Sb3AgentCfg(algorithm="SAC", timesteps=400, hidden_dims=(8,), off_policy=SB3_OFF_POLICY),
    "rl_games": RlGamesAgentCfg(timesteps=80, horizon_length=8, hidden_dims=(8,), lr_schedule="fixed"),
}


@pytest.mark.parametrize("name", AGENTS)
def test_every_library_says_that_it_was_the_learner(name: str) -> None:
    agent = AGENTS[name]
    agent.learning_rate = 1e30
    with pytest.raises(NotFiniteError, match=r"diverged, not the physics") as caught:
        train_agent(agent, "run")
    assert "\n" not in str(caught.value)
    assert json.loads(Path("run/run.json").read_text())["status"] == "failed"
    assert torch.load("run/nan_dump.pt", weights_only=True)["actions"].isfinite().all()


@pytest.mark.parametrize("change", ["agent.algorithm.learning_rate=1e10", "env.rewards.alive.weight=1e38"])
def test_rsl_rl_names_the_largest_reward_and_leaves_a_dump_that_plays(
    change: str, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["train", PENDULUM, "--num-envs", "8", "--max-iterations", "9", "--log-dir", "run", "-q", f"--{change}"]
    assert run(command) == 1
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith("genelab: the learner diverged, not the physics: ")
    assert ("(up to 1e+36, for 'alive')" in line) == ("alive" in change)
    assert run(["play", PENDULUM, "--replay", "run/nan_dump.pt"]) == 0
    assert "nan" not in capfd.readouterr().out.splitlines()[-1]


def nothing(env: ManagerBasedRlEnv) -> Tensor:
    return torch.full((env.num_envs,), torch.nan if env.common_step_counter > 3 else 0.0)


def test_an_evaluation_tells_a_policy_from_a_reward(capfd: pytest.CaptureFixture[str]) -> None:
    trained = train_task(PENDULUM, num_envs=4, max_iterations=1, log_dir=Path("run")).checkpoint
    content = torch.load(trained, weights_only=True)
    content["actor_state_dict"]["mlp.0.weight"][0, 0] = torch.nan
    torch.save(content, "broken.pt")
    assert run(["eval", PENDULUM, "broken.pt", "--episodes", "2"]) == 1
    assert "in environment 0 (and 1 more): the action. What the policy saw is finite: it" in capfd.readouterr().err
    assert not Path("eval.json").exists()


def test_observations_that_were_bad_at_the_reset_are_not_the_policys_fault() -> None:
    cfg = rl_cfg(PENDULUM, play=True)
    cfg.scene.num_envs = 2
    env = ManagerBasedRlEnv(cfg)
    env.watchers.append(FiniteGuard(env))
    env.reset(seed=0)
    with pytest.raises(NotFiniteError, match=r"environment 1: the action\. What the policy saw is finite"):
        env.step(torch.tensor([[0.0], [torch.inf]]))
    env.robot.write_joint_state(None, torch.full((1, 2), torch.nan), torch.tensor([1]))
    env.scene.engine.refresh()
    with pytest.raises(NotFiniteError, match=r"environment 1: the physics, observation 'policy/joint_vel'"):
        env.step(torch.tensor([[0.0], [torch.nan]]))
    env.close()


def test_large_numbers_are_numbers() -> None:
    assert first_not_finite({"a": torch.full((4,), 1e38), "count": torch.tensor(3)}) is None
    assert first_not_finite({"a": torch.ones(2), "b": torch.tensor([1.0, -torch.inf])}) == "b"
    assert first_not_finite({}) is None


def test_a_benchmark_of_a_broken_reward_says_so(capfd: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    def task() -> TaskCfg:
        cfg = TASKS.get(PENDULUM)
        as_kind(cfg.env, ManagerBasedRlEnvCfg).rewards["alive"].func = nothing
        return cfg

    monkeypatch.setattr(TASKS, "_entries", dict(TASKS._entries))
    TASKS.register("Test-Nothing-v0", task)
    assert run(["benchmark", "runtime", "Test-Nothing-v0", "--num-envs", "2", "--num-steps", "5"]) == 1
    assert "not a finite number in environment 0 (and 1 more): reward 'alive'" in capfd.readouterr().err
