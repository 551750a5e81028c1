"""skrl: PPO, A2C, SAC, TD3, DDPG."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from genelab.envs import ManagerBasedRlEnv
from genelab.rl.backends.base import InferenceSetup, TrainContext
from genelab.rl.backends.loop import LoopBackend
from genelab.rl.backends.skrl.agent import make_agent
from genelab.rl.backends.skrl.config import SkrlAgentCfg
from genelab.rl.backends.skrl.learner import SkrlLearner
from genelab.rl.backends.skrl.models import MAX_ACTION, ON_POLICY, inference_of, make_policy, make_scaler
from genelab.rl.backends.skrl.wrapper import GenelabSkrlWrapper
from genelab.rl.checkpoint import load_checkpoint


class SkrlBackend(LoopBackend[SkrlAgentCfg]):
    """Trains with skrl's agents and memories, in a loop of its own."""

    name = "skrl"
    unit = "timesteps"

    def default_agent(self) -> SkrlAgentCfg:
        return SkrlAgentCfg(timesteps=1)

    def budget(self, agent: SkrlAgentCfg) -> int:
        return agent.timesteps

    def set_budget(self, agent: SkrlAgentCfg, budget: int) -> None:
        agent.timesteps = budget

    def control_steps(self, agent: SkrlAgentCfg, num_envs: int) -> int:
        return agent.timesteps

    def budget_per_iteration(self, agent: SkrlAgentCfg, num_envs: int) -> int:
        return agent.rollouts

    def learner(self, context: TrainContext[SkrlAgentCfg]) -> SkrlLearner:
        cfg = context.agent
        env = GenelabSkrlWrapper(context.env, MAX_ACTION if cfg.algorithm in ON_POLICY else 1.0)
        return SkrlLearner(make_agent(env, cfg), env, context)

    def load(
        self, env: ManagerBasedRlEnv, agent: SkrlAgentCfg, checkpoint: Path, *, deterministic: bool = True
    ) -> InferenceSetup:
        content = load_checkpoint(checkpoint, self.name, env)
        agent = dataclasses.replace(agent, **content["network"])  # whatever the config says now
        policy, scaler = make_policy(env, agent), make_scaler(env, agent)
        policy.load_state_dict(content["policy"])
        if scaler is not None:
            scaler.load_state_dict(content["observation_preprocessor"])
        return inference_of(policy, scaler, agent, deterministic=deterministic)
