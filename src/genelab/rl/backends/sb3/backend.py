"""Stable-Baselines3: PPO, A2C, SAC, TD3, DDPG, with hindsight experience replay and demonstrations."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

from genelab.envs import ManagerBasedRlEnv
from genelab.envs.manager_based_env import one_thread
from genelab.rl.backends.base import Backend, InferenceSetup, TrainContext
from genelab.rl.backends.sb3.archive import load_weights, read_archive
from genelab.rl.backends.sb3.config import Sb3AgentCfg
from genelab.rl.backends.sb3.demos import check_learning_starts, demo_path
from genelab.rl.backends.sb3.env import GenelabSb3VecEnv, Sb3Actor, action_space, groups_of, observation_space
from genelab.rl.backends.sb3.learner import MonitorCallback, Sb3Learner
from genelab.rl.backends.sb3.model import is_small, make_model, make_policy
from genelab.rl.backends.sb3.state import buffer_bytes


class Sb3Backend(Backend[Sb3AgentCfg]):
    """Trains with the algorithms of Stable-Baselines3."""

    name = "sb3"
    suffix = ".zip"
    final_name = "model"
    unit = "timesteps"

    def default_agent(self) -> Sb3AgentCfg:
        return Sb3AgentCfg(timesteps=1)

    def budget(self, agent: Sb3AgentCfg) -> int:
        return agent.timesteps

    def set_budget(self, agent: Sb3AgentCfg, budget: int) -> None:
        agent.timesteps = budget

    def control_steps(self, agent: Sb3AgentCfg, num_envs: int) -> int:
        return math.ceil(agent.timesteps / num_envs)

    def budget_per_iteration(self, agent: Sb3AgentCfg, num_envs: int) -> int:
        return agent.steps_per_iteration * num_envs

    def settle(self, agent: Sb3AgentCfg) -> None:
        agent.demo_path = demo_path(agent)

    def train(self, context: TrainContext[Sb3AgentCfg]) -> None:
        agent = context.agent
        env = GenelabSb3VecEnv(context.env, action_bound=agent.action_bound, her=agent.her)
        model = make_model(env, agent)
        context.monitor.learner = learner = Sb3Learner(model, env, context)
        if (buffer := getattr(model, "replay_buffer", None)) is not None:
            kept = buffer.buffer_size * buffer.n_envs
            context.notify(
                f"replay buffer: the last {kept:,} transitions, {buffer_bytes(buffer) / 1e6:,.0f} MB when full"
            )
        if context.checkpoint is not None:
            learner.warm_start(context.checkpoint)
        if context.resume is not None:
            learner.resume(context.resume)
        else:
            if agent.demo_path is not None:
                count = learner.fill_with_demos(Path(agent.demo_path))
                context.notify(f"{count:,} transitions of demonstrations from {agent.demo_path}")
            elif agent.her is not None:
                check_learning_starts(agent, context.env)
                context.notify("no demonstrations; agent.demo_path names a file of them")
            learner.start()
        context.on_ready()
        with one_thread(context.env.device) if is_small(model) else contextlib.nullcontext():
            model.learn(
                context.budget - model.num_timesteps,
                callback=MonitorCallback(learner, context.monitor, agent),
                log_interval=None,
                reset_num_timesteps=False,
            )

    def load(
        self, env: ManagerBasedRlEnv, agent: Sb3AgentCfg, checkpoint: Path, *, deterministic: bool = True
    ) -> InferenceSetup:
        """The policy of an archive, of whose content only the metadata and the weights are read.

        The algorithm and the networks are the archive's, whatever the agent config says now.
        """
        meta, weights = read_archive(checkpoint, self.name, env)
        saved = Sb3AgentCfg(timesteps=0, **meta["agent"])
        groups = groups_of(env, goals=meta["goals"])
        policy = make_policy(saved, observation_space(env, groups), action_space(env, saved.action_bound))
        load_weights(policy, weights, checkpoint)
        return Sb3Actor(policy, meta["normalizer"], deterministic=deterministic).setup(env.device, saved.algorithm)
