"""rl_games: PPO."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from genelab.envs import ManagerBasedRlEnv
from genelab.rl.backends.base import InferenceSetup, TrainContext
from genelab.rl.backends.loop import LoopBackend
from genelab.rl.backends.rl_games.agent import make_agent
from genelab.rl.backends.rl_games.config import RlGamesAgentCfg
from genelab.rl.backends.rl_games.env import GenelabRlGamesVecEnv
from genelab.rl.backends.rl_games.learner import RlGamesLearner
from genelab.rl.backends.rl_games.models import inference_of, make_model
from genelab.rl.checkpoint import load_checkpoint


class RlGamesBackend(LoopBackend[RlGamesAgentCfg]):
    """Trains with rl_games' agent, epoch by epoch."""

    name = "rl_games"
    unit = "timesteps"
    reads_final_obs = False  # it takes the value of the state before instead

    def default_agent(self) -> RlGamesAgentCfg:
        return RlGamesAgentCfg(timesteps=1)

    def budget(self, agent: RlGamesAgentCfg) -> int:
        return agent.timesteps

    def set_budget(self, agent: RlGamesAgentCfg, budget: int) -> None:
        agent.timesteps = budget

    def control_steps(self, agent: RlGamesAgentCfg, num_envs: int) -> int:
        return agent.timesteps

    def budget_per_iteration(self, agent: RlGamesAgentCfg, num_envs: int) -> int:
        return agent.horizon_length

    def algorithm(self, agent: RlGamesAgentCfg) -> str:
        return "PPO"

    def learner(self, context: TrainContext[RlGamesAgentCfg]) -> RlGamesLearner:
        env = GenelabRlGamesVecEnv(context.env)
        return RlGamesLearner(make_agent(env, context.agent), env, context)

    def load(
        self, env: ManagerBasedRlEnv, agent: RlGamesAgentCfg, checkpoint: Path, *, deterministic: bool = True
    ) -> InferenceSetup:
        content = load_checkpoint(checkpoint, self.name, env)
        agent = dataclasses.replace(agent, **content["network"])  # whatever the config says now
        model = make_model(env, agent)
        model.load_state_dict(content["model"])
        return inference_of(model, deterministic=deterministic)
