"""Small tasks for the campaigns: the pendulum with each library, and one whose reward becomes NaN."""

from __future__ import annotations

from collections.abc import Callable

import torch

from genelab import mdp
from genelab.config import TASKS, TaskCfg
from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.rl.config import (
    BackendConfig,
    RlGamesAgentCfg,
    RslRlModelCfg,
    RslRlOnPolicyRunnerCfg,
    Sb3AgentCfg,
    Sb3OffPolicyCfg,
    SkrlAgentCfg,
)

NUM_ENVS = 4
BUDGETS = {"Rsl": 2, "Sac": 64, "Skrl": 16, "Games": 16, "Nan": 2}
"""What a fixture is trained with, in the library's unit: two iterations of each."""


def task_id(name: str) -> str:
    """The id of one of `BUDGETS`."""
    return f"Campaign-{name}-v0"


def _pendulum(agent: BackendConfig, *, alive: Callable[..., torch.Tensor] = mdp.is_alive) -> TaskCfg:
    agent.save_interval = 1
    envs = [rl_cfg("GeneLab-Inverted-Pendulum-v0", play=play) for play in (False, True)]
    for env in envs:
        env.scene.num_envs = NUM_ENVS
        env.simulation.threads = 1
        env.rewards["alive"].func = alive
    return TaskCfg(env=envs[0], play_env=envs[1], agent=agent)


def _ppo() -> RslRlOnPolicyRunnerCfg:
    agent = RslRlOnPolicyRunnerCfg(max_iterations=2, num_steps_per_env=8)
    agent.actor.hidden_dims, agent.critic = (8,), RslRlModelCfg(hidden_dims=(8,))
    return agent


def rsl() -> TaskCfg:
    """rsl_rl's PPO."""
    return _pendulum(_ppo())


def sac() -> TaskCfg:
    """SB3's SAC."""
    off_policy = Sb3OffPolicyCfg(buffer_size=4000, batch_size=16, learning_starts=16, iteration_steps=8)
    return _pendulum(Sb3AgentCfg(algorithm="SAC", timesteps=64, hidden_dims=(8,), off_policy=off_policy))


def skrl() -> TaskCfg:
    """skrl's PPO."""
    return _pendulum(SkrlAgentCfg(timesteps=16, rollouts=8, hidden_dims=(8,)))


def games() -> TaskCfg:
    """rl_games' PPO."""
    return _pendulum(RlGamesAgentCfg(timesteps=16, horizon_length=8, hidden_dims=(8,)))


def nan() -> TaskCfg:
    """A run that leaves a dump."""
    return _pendulum(_ppo(), alive=becomes_nan)


def becomes_nan(env: ManagerBasedRlEnv) -> torch.Tensor:
    """1, and after five control steps no number at all."""
    return torch.full((env.num_envs,), float("nan") if env.common_step_counter > 5 else 1.0)


for _name, _factory in {"Rsl": rsl, "Sac": sac, "Skrl": skrl, "Games": games, "Nan": nan}.items():
    TASKS.register(task_id(_name), _factory)
