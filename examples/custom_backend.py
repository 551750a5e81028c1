"""An RL library of one's own in one file: augmented random search (Mania, Guy and Recht, 2018), and a task for it.

`genelab train Pendulum-ARS-v0 --import examples/custom_backend.py`, and then `eval`, `play`, `export`, `--resume`:
every verb works with it.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from genelab import TASKS, TaskCfg
from genelab.config import Count, Positive
from genelab.envs import ManagerBasedRlEnv
from genelab.rl.backends import Actor, InferenceSetup, LoopBackend, LoopLearner, TrainContext, register_backend
from genelab.rl.checkpoint import load_checkpoint, save_atomically
from genelab.rl.config import BackendConfig
from genelab.rl.monitor import TrainMonitor


@dataclass(kw_only=True)
class ArsCfg(BackendConfig):
    """Augmented random search with a linear policy; half as many directions as there are environments."""

    iterations: Count
    """Updates of the policy."""
    horizon: Count = 200
    """Control steps for which a direction is tried."""
    best: Count = 8
    """How many of the directions count."""
    step: Positive = 0.1
    """Length of an update."""
    noise: Positive = 0.1
    """How far a direction is tried."""


class ArsLearner(LoopLearner):
    """Tries directions both ways, one in each environment, and follows those that made the largest difference."""

    def __init__(self, context: TrainContext[ArsCfg]) -> None:
        self.context = context
        self.policy = linear(context.env)
        self.done = 0

    def learn(self, budget: int, monitor: TrainMonitor) -> None:
        agent, env = self.context.agent, self.context.env
        half = env.num_envs // 2
        weight = self.policy.weight
        while self.done < budget:
            start = time.perf_counter()
            directions = torch.randn(half, *weight.shape, device=weight.device)
            returns = self._try(weight + agent.noise * torch.cat((directions, -directions)))
            middle = time.perf_counter()
            forth, back = returns[:half], returns[half : 2 * half]
            chosen = torch.maximum(forth, back).topk(min(agent.best, half)).indices
            spread = torch.cat((forth[chosen], back[chosen])).std() + 1e-6
            gain = (forth - back)[chosen, None, None]
            weight.add_(agent.step / (len(chosen) * spread) * (gain * directions[chosen]).sum(dim=0))
            self.done += 1
            monitor.iteration(
                self,
                done=self.done,
                env_steps=agent.horizon * env.num_envs,
                collect_seconds=middle - start,
                learn_seconds=time.perf_counter() - middle,
                scalars={"Loss/return": float(returns.mean())},
            )

    def _try(self, weights: Tensor) -> Tensor:
        """Returns of a policy in each environment, until its episode ends or the horizon is reached, `(N,)`."""
        env = self.context.env
        observations, _ = env.reset()
        total = torch.zeros(env.num_envs, device=env.device)
        running = torch.ones_like(total)
        for _ in range(self.context.agent.horizon):
            action = torch.einsum("nao,no->na", weights, observations["policy"].float())
            observations, reward, terminated, truncated, _ = env.step(action)
            total += running * reward.float()
            running = running * ~(terminated | truncated)
        return total

    def save(self, path: Path) -> None:
        save_atomically({"policy": self.policy.state_dict(), "genelab": self.context.meta()}, path)

    def inference(self) -> InferenceSetup:
        return inference_of(copy.deepcopy(self.policy))

    def weights(self) -> dict[str, Tensor]:
        return self.policy.state_dict()

    def load_weights(self, content: dict[str, Any], path: Path) -> None:
        self.policy.load_state_dict(content["policy"])

    def state(self) -> dict[str, Any]:
        return {"policy": self.policy.state_dict(), "done": self.done}

    def resume(self, state: dict[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        self.done = state["done"]


class ArsBackend(LoopBackend[ArsCfg]):
    """Augmented random search."""

    name = "ars"
    unit = "iterations"
    reads_final_obs = False

    def default_agent(self) -> ArsCfg:
        return ArsCfg(iterations=100)

    def budget(self, agent: ArsCfg) -> int:
        return agent.iterations

    def set_budget(self, agent: ArsCfg, budget: int) -> None:
        agent.iterations = budget

    def budget_per_iteration(self, agent: ArsCfg, num_envs: int) -> int:
        return 1

    def algorithm(self, agent: ArsCfg) -> str:
        return "ARS"

    def learner(self, context: TrainContext[ArsCfg]) -> ArsLearner:
        return ArsLearner(context)

    def load(
        self, env: ManagerBasedRlEnv, agent: ArsCfg, checkpoint: Path, *, deterministic: bool = True
    ) -> InferenceSetup:
        policy = linear(env)
        policy.load_state_dict(load_checkpoint(checkpoint, self.name, env)["policy"])
        return inference_of(policy)


def linear(env: ManagerBasedRlEnv) -> nn.Linear:
    """A policy that does nothing yet."""
    policy = nn.Linear(env.observation_manager.groups["policy"].dim, env.action_dim, bias=False)
    nn.init.zeros_(policy.weight)
    return policy.to(env.device).requires_grad_(False)


def inference_of(policy: nn.Linear) -> InferenceSetup:
    """A policy as the lab plays, judges and exports it."""
    actor = Actor(network=policy, algorithm="ARS", normalizes=False, action_range=None)
    return InferenceSetup(policy=lambda observations: policy(observations["policy"].float()), actor=actor)


def task() -> TaskCfg:
    """The inverted pendulum, learned by random search."""
    cfg = TASKS.get("GeneLab-Inverted-Pendulum-v0")
    return TaskCfg(env=cfg.env, play_env=cfg.play_env, agent=ArsCfg(iterations=60))


register_backend(ArsCfg, "custom_backend:ArsBackend", name="ars")
TASKS.register("Pendulum-ARS-v0", "custom_backend:task", description="By random search.", robot="cart", backend="ars")
