"""What no run could be made of is refused by its path before anything is built."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from genelab.cli.main import run
from genelab.config import TASKS, check_memory
from genelab.envs.manager_based_env import ManagerBasedEnvCfg
from genelab.errors import ConfigError
from genelab.rl.config import (
    BackendConfig,
    RlGamesAgentCfg,
    RslRlModelCfg,
    RslRlOnPolicyRunnerCfg,
    Sb3AgentCfg,
    Sb3OffPolicyCfg,
    SkrlAgentCfg,
    configure,
)
from genelab.scene import SceneCfg

TASK = "GeneLab-Inverted-Pendulum-v0"
HUGE = "99999999999999999999"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--agent.actor.hidden_dims=[]"], "agent.actor.hidden_dims: must have at least one element, got ()"),
        (["--agent.actor.hidden_dims=[8,0]"], "agent.actor.hidden_dims.1: must be at least 1, got 0"),
        (["--agent.critic.hidden_dims=[9000000000,9000000000]"], "would need 324 EB of memory or more"),
        (["--agent.actor.activation=tahn"], "got 'tahn'. Did you mean 'tanh'?"),
        (["--agent.actor.activation=nope"], "expected 'elu' | 'selu' | 'relu' |"),
        (["--agent.algorithm.num_mini_batches=0"], "agent.algorithm.num_mini_batches: must be at least 1, got 0"),
        (
            ["--num-envs", "4", "--agent.num_steps_per_env=4", "--agent.algorithm.num_mini_batches=1000000"],
            "agent.algorithm.num_mini_batches: 1,000,000 parts cannot be made of 16 samples of an iteration",
        ),
        (["--agent.num_steps_per_env", HUGE], f"agent.num_steps_per_env: must be at most {2**63 - 1}, got {HUGE}"),
        (["--agent.num_steps_per_env", "1000000000000"], "agent.num_steps_per_env: "),
        (["--agent.seed=-1"], "agent.seed: must not be negative, got -1"),
        (["--seed", "4294967296"], "--seed"),
        (["--agent.save_interval=0"], "agent.save_interval: must be at least 1, got 0"),
        (["--agent.algorithm.learning_rate=-1"], "agent.algorithm.learning_rate: must not be negative, got -1.0"),
        (["--agent.algorithm.learning_rate=inf"], "agent.algorithm.learning_rate: must be finite, got inf"),
        (["--agent.algorithm.gamma=1.01"], "agent.algorithm.gamma: must be at most 1, got 1.01"),
        (["--env.rewards.alive.weight=nan"], "env.rewards.alive.weight: must be a number, got nan"),
        (["--env.episode_length_s=inf"], "env.episode_length_s: must be finite, got inf"),
        (["--env.simulation.threads=5000"], "env.simulation.threads: must be at most 4096, got 5000"),
        (["--env.simulation.solver.iterations=0"], "env.simulation.solver.iterations: must be at least 1, got 0"),
        (["--env.observations.policy.history_length=100000"], "env.observations.policy.history_length: must be at"),
        (["--env.decimation=4294967296"], "env.decimation: must be at most 2147483647, got 4294967296"),
    ],
)
def test_a_value_out_of_bounds_is_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", TASK, "--max-iterations", "1", *words]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert message in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", ["2147483648", "1000000000"])
def test_more_environments_than_memory_holds(number: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["play", TASK, "--num-envs", number, "--steps", "1"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"genelab: env.scene.num_envs: {int(number):,} would need ")
    assert "of memory or more, and there are " in line


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "env.rewards.alive.func=genelab_pendulum.robots:single_pendulum_cfg",
            "single_pendulum_cfg cannot be called so",
        ),
        ("env.rewards.alive.func=genelab.mdp:JointPositionActionCfg", "JointPositionActionCfg cannot be called so"),
    ],
)
def test_a_callable_of_another_kind_is_refused(change: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["play", TASK, "--num-envs", "2", "--steps", "1", change]) == 2
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line]
    assert f"reward term 'alive': {message}" in line


def test_no_joints_are_none(capfd: pytest.CaptureFixture[str]) -> None:
    change = "env.terminations.cart_out_of_bounds.params.asset.joint_names=[]"
    assert run(["play", TASK, "--num-envs", "2", "--steps", "1", change]) == 0


def test_memory_is_estimated_from_below() -> None:
    check_memory("a", 1, 1e6)
    with pytest.raises(ConfigError, match=r"^a: 7 would need 1e\+03 EB of memory or more, and there are .* here$"):
        check_memory("a", 7, 1e21)


def test_every_task_passes() -> None:
    for task in (entry.id for entry in TASKS.entries() if entry.package.startswith("genelab_")):
        cfg = TASKS.get(task)
        configure(cfg.env, cfg.agent, learns=cfg.agent is not None)
        configure(cfg.play_env or cfg.env, cfg.agent)


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (SkrlAgentCfg(timesteps=0), "agent.timesteps: must be at least 1, got 0"),
        (SkrlAgentCfg(timesteps=1, rollouts=2, mini_batches=9), "agent.mini_batches: 9 parts cannot be made of 8"),
        (RlGamesAgentCfg(timesteps=1, tau=2.0), "agent.tau: must be at most 1, got 2.0"),
        (RlGamesAgentCfg(timesteps=1, horizon_length=1, num_minibatches=5), "agent.num_minibatches: 5 parts"),
        (Sb3AgentCfg(timesteps=1, hidden_dims=()), "agent.hidden_dims: must have at least one element, got ()"),
        (
            Sb3AgentCfg(timesteps=1, algorithm="SACK"),  # type: ignore[arg-type]
            "agent.algorithm: 'SACK' is none of PPO, A2C, SAC, TD3, DDPG.",
        ),
        (
            Sb3AgentCfg(timesteps=1, off_policy=Sb3OffPolicyCfg(gradient_steps=-2)),
            "agent.off_policy.gradient_steps: must be at least 1, got -2",
        ),
        (
            RslRlOnPolicyRunnerCfg(max_iterations=1, actor=RslRlModelCfg(rnn_type="lstm"), num_steps_per_env=99),
            "4 parts cannot be made of 2 environments (a network with memory takes their rollouts whole)",
        ),
    ],
)
def test_the_agents_of_all_libraries_are_checked(agent: BackendConfig, message: str) -> None:
    scene = SceneCfg(num_envs=2 if isinstance(agent, RslRlOnPolicyRunnerCfg) else 4)
    with pytest.raises(ConfigError) as caught:
        configure(ManagerBasedEnvCfg(scene=scene), agent, learns=True)
    assert message in str(caught.value)


def test_what_may_be_special_still_may() -> None:
    Sb3AgentCfg(timesteps=1, off_policy=Sb3OffPolicyCfg(gradient_steps=-1, ent_coef="auto")).validate()
    agent = RslRlOnPolicyRunnerCfg(max_iterations=1, clip_actions=math.inf)
    agent.algorithm.max_grad_norm = math.inf
    dataclasses.replace(agent, clip_actions=None).validate()
    agent.validate()
