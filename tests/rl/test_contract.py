"""The contract of RL libraries, against the four of the package with every algorithm they have."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from genelab.envs import ManagerBasedRlEnvCfg
from genelab.rl.config import (
    RlGamesAgentCfg,
    RslRlDistributionCfg,
    RslRlModelCfg,
    RslRlOnPolicyRunnerCfg,
    Sb3AgentCfg,
    Sb3OffPolicyCfg,
    Sb3OnPolicyCfg,
    SkrlAgentCfg,
)
from genelab.testing import BackendContract
from genelab.testing.library import cart_env

ALGORITHMS = ("PPO", "A2C", "SAC", "TD3", "DDPG")
NARROW = (16, 16)


def rsl_rl(rnn_type: Literal["lstm", "gru"] | None) -> RslRlOnPolicyRunnerCfg:
    noise = RslRlDistributionCfg()
    actor, critic = (
        RslRlModelCfg(hidden_dims=NARROW, distribution=drawn, rnn_type=rnn_type, rnn_hidden_dim=8)
        for drawn in (noise, None)
    )
    return RslRlOnPolicyRunnerCfg(max_iterations=1, num_steps_per_env=8, actor=actor, critic=critic)


class TestRslRl(BackendContract):
    library = "rsl_rl"

    @pytest.fixture(scope="class", params=[None, "lstm", "gru"])
    def agent(self, request: pytest.FixtureRequest) -> RslRlOnPolicyRunnerCfg:
        return rsl_rl(request.param)


class TestSkrl(BackendContract):
    library = "skrl"

    @pytest.fixture(scope="class", params=ALGORITHMS)
    def agent(self, request: pytest.FixtureRequest) -> SkrlAgentCfg:
        replay: dict[str, Any] = {"batch_size": 32, "learning_starts": 4, "memory_size": 80}
        return SkrlAgentCfg(algorithm=request.param, timesteps=1, rollouts=8, hidden_dims=NARROW, **replay)


class TestRlGames(BackendContract):
    library = "rl_games"

    @pytest.fixture(scope="class", params=["critic", "alike"])
    def env(self, request: pytest.FixtureRequest) -> ManagerBasedRlEnvCfg:
        """Its critic is another network where it sees something else."""
        cfg = cart_env()
        if request.param == "alike":
            del cfg.observations["critic"]
        return cfg

    @pytest.fixture(scope="class")
    def agent(self) -> RlGamesAgentCfg:
        return RlGamesAgentCfg(timesteps=1, horizon_length=8, hidden_dims=NARROW)


class TestSb3(BackendContract):
    library = "sb3"

    @pytest.fixture(scope="class", params=ALGORITHMS)
    def agent(self, request: pytest.FixtureRequest) -> Sb3AgentCfg:
        return Sb3AgentCfg(
            algorithm=request.param,
            timesteps=1,
            hidden_dims=NARROW,
            on_policy=Sb3OnPolicyCfg(n_steps=8, n_epochs=2, batch_size=16),
            off_policy=Sb3OffPolicyCfg(buffer_size=200, learning_starts=16, iteration_steps=8, batch_size=32),
        )
