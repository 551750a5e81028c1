"""A skrl agent while it learns, in a loop of the lab's own."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from genelab.envs.manager_based_env import one_thread
from genelab.rl.backends.base import InferenceSetup, TrainContext
from genelab.rl.backends.loop import LoopLearner
from genelab.rl.backends.skrl.config import SkrlAgentCfg
from genelab.rl.backends.skrl.models import ON_POLICY, inference_of, make_policy, make_scaler, network_of
from genelab.rl.backends.skrl.wrapper import GenelabSkrlWrapper
from genelab.rl.checkpoint import check_network, save_atomically
from genelab.rl.monitor import TrainMonitor

SCALARS = {
    "Loss / Policy loss": "Loss/policy",
    "Loss / Value loss": "Loss/value",
    "Loss / Critic loss": "Loss/critic",
    "Loss / Entropy loss": "Loss/entropy",
    "Policy / Standard deviation": "Policy/mean_std",
    "Coefficient / Entropy coefficient": "Policy/entropy_coefficient",
}
"""What skrl's agents report, and what it is called here."""


class SkrlLearner(LoopLearner):
    """A skrl agent while it learns."""

    def __init__(self, agent: Any, env: GenelabSkrlWrapper, context: TrainContext[SkrlAgentCfg]) -> None:
        self.agent = agent
        self.env = env
        self.timestep = 0
        self._context = context
        self._cfg = context.agent

    def learn(self, budget: int, monitor: TrainMonitor) -> None:
        """Collect and learn until the budget is spent."""
        self.agent.enable_training_mode(True)
        on_policy = self._cfg.algorithm in ON_POLICY
        steps, collect, learn = 0, 0.0, 0.0
        while self.timestep < budget:
            start = time.perf_counter()
            with one_thread(self.env.device):
                self._collect(budget)
            middle = time.perf_counter()
            with contextlib.nullcontext() if on_policy else one_thread(self.env.device):  # a small batch, often
                self.agent.post_interaction(timestep=self.timestep, timesteps=budget)
            self.timestep += 1
            steps, collect, learn = steps + 1, collect + middle - start, learn + time.perf_counter() - middle
            if self.timestep % self._cfg.rollouts == 0 or self.timestep == budget:
                monitor.iteration(
                    self,
                    done=self.timestep,
                    env_steps=steps * self.env.num_envs,
                    collect_seconds=collect,
                    learn_seconds=learn,
                    scalars=self._scalars(),
                )
                steps, collect, learn = 0, 0.0, 0.0

    @torch.no_grad()
    def _collect(self, budget: int) -> None:
        clock = {"timestep": self.timestep, "timesteps": budget}
        observations, states = self.env.observations["policy"], self.env.state()
        actions, _ = self.agent.act(observations, states, **clock)
        _, rewards, terminated, truncated, info = self.env.step(actions)
        self.agent.record_transition(
            observations=observations,
            states=states,
            actions=actions,
            rewards=rewards.clone(),  # skrl adds the value of a time-out to it
            next_observations=self.env.outcome["policy"],
            next_states=self.env.outcome.get("critic"),
            terminated=terminated,
            truncated=truncated,
            infos=info,
            **clock,
        )

    def _scalars(self) -> dict[str, float]:
        found = {name: self.agent.tracking_data.get(key) for key, name in SCALARS.items()}
        self.agent.tracking_data.clear()
        optimizer = self.agent.optimizer if self._cfg.algorithm in ON_POLICY else self.agent.policy_optimizer
        rate = {"Loss/learning_rate": optimizer.param_groups[0]["lr"]}
        return {name: sum(values) / len(values) for name, values in found.items() if values} | rate

    def save(self, path: Path) -> None:
        content = {**self._modules(), "network": network_of(self._cfg), "genelab": self._context.meta()}
        save_atomically(content, path)

    def inference(self) -> InferenceSetup:
        with torch.random.fork_rng():  # a network is born with random weights; the learner must not notice
            policy, scaler = make_policy(self.env.env, self._cfg), make_scaler(self.env.env, self._cfg)
        policy.load_state_dict(self.agent.policy.state_dict())
        if scaler is not None:
            scaler.load_state_dict(self.agent.checkpoint_modules["observation_preprocessor"].state_dict())
        return inference_of(policy, scaler, self._cfg)

    def weights(self) -> dict[str, Tensor]:
        modules = self.agent.checkpoint_modules.items()
        states = {name: module.state_dict() for name, module in modules if isinstance(module, nn.Module)}
        return {f"{name}.{key}": value for name, state in states.items() for key, value in state.items()}

    def _modules(self) -> dict[str, Any]:
        """Networks, normalisers and optimizers."""
        return {name: module.state_dict() for name, module in self.agent.checkpoint_modules.items()}

    def load_weights(self, content: dict[str, Any], path: Path) -> None:
        """Start from the networks and normalisers of a checkpoint."""
        check_network(content["network"], network_of(self._cfg), path)
        for name, module in self.agent.checkpoint_modules.items():
            if isinstance(module, nn.Module):
                module.load_state_dict(content[name])

    def state(self) -> dict[str, Any]:
        memory = self.agent.memory
        # An on-policy memory is empty after an update, although its rows are still there.
        full = memory.filled and self._cfg.algorithm not in ON_POLICY
        rows = memory.memory_size if full else memory.memory_index
        entropy = getattr(self.agent, "log_entropy_coefficient", None)
        return {
            "timestep": self.timestep,
            "updates": getattr(self.agent, "_update_counter", 0),
            "modules": self._modules(),
            "log_entropy_coefficient": None if entropy is None else entropy.detach().cpu(),
            "observations": {name: value.cpu() for name, value in self.env.observations.items()},
            "memory": {name: values[:rows].to("cpu", copy=True) for name, values in memory.tensors.items()},
            "memory_index": memory.memory_index,
            "memory_filled": memory.filled,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Go on where an interrupted run stopped."""
        agent, memory = self.agent, self.agent.memory
        self.timestep = agent._rollout = state["timestep"]
        agent._update_counter = state["updates"]
        for name, module in agent.checkpoint_modules.items():
            module.load_state_dict(state["modules"][name])
        if state["log_entropy_coefficient"] is not None:
            agent.log_entropy_coefficient.data.copy_(state["log_entropy_coefficient"])
            agent._entropy_coefficient = agent.log_entropy_coefficient.detach().exp()
        self.env.observations = {name: value.to(self.env.device) for name, value in state["observations"].items()}
        for name, values in state["memory"].items():
            memory.tensors[name][: len(values)] = values.to(memory.device)
        memory.memory_index, memory.filled = state["memory_index"], state["memory_filled"]
