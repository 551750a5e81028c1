"""rsl_rl: PPO, with or without memory."""

from __future__ import annotations

from pathlib import Path

from genelab.envs import ManagerBasedRlEnv
from genelab.rl.backends.base import Backend, InferenceSetup, TrainContext
from genelab.rl.backends.rsl_rl.config import RslRlOnPolicyRunnerCfg
from genelab.rl.backends.rsl_rl.learner import MonitorLogger, RslRlLearner
from genelab.rl.backends.rsl_rl.networks import inference_of, make_actor
from genelab.rl.backends.rsl_rl.runner import make_runner
from genelab.rl.backends.rsl_rl.weights import naming_the_network, with_networks
from genelab.rl.backends.rsl_rl.wrapper import RslRlVecEnvWrapper
from genelab.rl.checkpoint import load_checkpoint
from genelab.rl.rank import Rank


class RslRlBackend(Backend[RslRlOnPolicyRunnerCfg]):
    """Trains with rsl_rl's on-policy runner."""

    name = "rsl_rl"
    distributed = True
    reads_final_obs = False  # it takes the value of the state before instead

    def default_agent(self) -> RslRlOnPolicyRunnerCfg:
        return RslRlOnPolicyRunnerCfg(max_iterations=1)

    def budget(self, agent: RslRlOnPolicyRunnerCfg) -> int:
        return agent.max_iterations

    def set_budget(self, agent: RslRlOnPolicyRunnerCfg, budget: int) -> None:
        agent.max_iterations = budget

    def control_steps(self, agent: RslRlOnPolicyRunnerCfg, num_envs: int) -> int:
        return agent.max_iterations * agent.num_steps_per_env

    def algorithm(self, agent: RslRlOnPolicyRunnerCfg) -> str:
        return "PPO"

    def train(self, context: TrainContext[RslRlOnPolicyRunnerCfg]) -> None:
        env = RslRlVecEnvWrapper(context.env, context.agent.clip_actions)
        with Rank.current().process_group(context.env.device):
            runner = make_runner(env, context.agent)
            context.monitor.learner = learner = RslRlLearner(runner, env, context)
            if context.checkpoint is not None:
                content = load_checkpoint(context.checkpoint, self.name, context.env, to_learn=True, may_grow=True)
                learner.load_weights(content, context.checkpoint)
            if context.resume is not None:
                learner.resume(context.resume)
            runner.logger = MonitorLogger(learner, context)
            context.on_ready()
            learner.aim_after(runner.current_learning_iteration)
            remaining = context.budget - runner.current_learning_iteration
            random_ages = context.agent.random_episode_ages and context.resume is None
            runner.learn(remaining, init_at_random_ep_len=random_ages)
            models = (runner.alg.actor, runner.alg.critic)
            Rank.current().check_equal(tensor for model in models for tensor in model.state_dict().values())

    def load(
        self, env: ManagerBasedRlEnv, agent: RslRlOnPolicyRunnerCfg, checkpoint: Path, *, deterministic: bool = True
    ) -> InferenceSetup:
        content = load_checkpoint(checkpoint, self.name, env)
        if (saved := content["genelab"].get("agent")) is not None:
            agent = with_networks(agent, saved)  # whatever the config says now
        actor = make_actor(env, agent)
        with naming_the_network(checkpoint, "agent.actor describes"):
            actor.load_state_dict(content["actor_state_dict"])
        return inference_of(actor, agent, deterministic=deterministic)
