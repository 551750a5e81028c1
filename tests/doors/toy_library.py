"""A third party's RL library and a task for it, in one file: what `--import` brings. Nothing of genelab knows it."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from genelab import TASKS, TaskCfg, mdp
from genelab.config import Count, Positive
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import EventTermCfg, ObservationGroupCfg, ObservationTermCfg, RewardTermCfg, TerminationTermCfg
from genelab.rl.backends import Actor, InferenceSetup, LoopBackend, LoopLearner, TrainContext, register_backend
from genelab.rl.checkpoint import load_checkpoint, save_atomically
from genelab.rl.config import BackendConfig
from genelab.rl.monitor import TrainMonitor
from genelab.scene import ArticulationCfg, ImplicitPdActuatorCfg, SceneCfg, mjcf_text


@dataclass(kw_only=True)
class ToyCfg(BackendConfig):
    """Trains with the toy library."""

    timesteps: Count
    """Control steps of the vectorised environment."""
    horizon: Count = 8
    """Control steps that a rival is tried for: an iteration."""
    stride: Positive = 0.3
    """Standard deviation of the difference between a rival and the policy."""


class ToyLearner(LoopLearner):
    """Climbs a hill: a policy with other weights takes the place of the present one if it earns more."""

    def __init__(self, context: TrainContext[ToyCfg]) -> None:
        self.context = context
        self.policy = linear(context.env)
        self.score = -float("inf")
        self.done = 0
        self.observations, _ = context.env.reset()

    def learn(self, budget: int, monitor: TrainMonitor) -> None:
        agent, env = self.context.agent, self.context.env
        while self.done < budget:
            start = time.perf_counter()
            rival = copy.deepcopy(self.policy)
            for weight in rival.parameters():
                weight.data += agent.stride * torch.randn_like(weight)
            score = sum(self._step(rival) for _ in range(agent.horizon))
            middle = time.perf_counter()
            if score > self.score:
                self.policy, self.score = rival, score
            self.done += agent.horizon
            monitor.iteration(
                self,
                done=self.done,
                env_steps=agent.horizon * env.num_envs,
                collect_seconds=middle - start,
                learn_seconds=time.perf_counter() - middle,
                scalars={"Loss/score": score},
            )

    def _step(self, rival: nn.Linear) -> float:
        with torch.inference_mode():
            action = rival(self.observations["policy"].float())
        self.observations, reward, *_ = self.context.env.step(action)
        return float(reward.mean())

    def save(self, path: Path) -> None:
        save_atomically({"policy": self.policy.state_dict(), "genelab": self.context.meta()}, path)

    def inference(self) -> InferenceSetup:
        return inference_of(copy.deepcopy(self.policy))

    def weights(self) -> dict[str, Tensor]:
        return self.policy.state_dict()

    def load_weights(self, content: dict[str, Any], path: Path) -> None:
        self.policy.load_state_dict(content["policy"])

    def state(self) -> dict[str, Any]:
        seen = {name: value.cpu() for name, value in self.observations.items()}
        return {"policy": self.policy.state_dict(), "score": self.score, "done": self.done, "observations": seen}

    def resume(self, state: dict[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        self.score, self.done = state["score"], state["done"]
        self.observations = {name: value.to(self.context.env.device) for name, value in state["observations"].items()}


class ToyBackend(LoopBackend[ToyCfg]):
    """The smallest library that learns."""

    name = "toy"
    unit = "timesteps"
    reads_final_obs = False

    def default_agent(self) -> ToyCfg:
        return ToyCfg(timesteps=1)

    def budget(self, agent: ToyCfg) -> int:
        return agent.timesteps

    def set_budget(self, agent: ToyCfg, budget: int) -> None:
        agent.timesteps = budget

    def budget_per_iteration(self, agent: ToyCfg, num_envs: int) -> int:
        return agent.horizon

    def algorithm(self, agent: ToyCfg) -> str:
        return "hill climbing"

    def learner(self, context: TrainContext[ToyCfg]) -> ToyLearner:
        return ToyLearner(context)

    def load(
        self, env: ManagerBasedRlEnv, agent: ToyCfg, checkpoint: Path, *, deterministic: bool = True
    ) -> InferenceSetup:
        policy = linear(env)
        policy.load_state_dict(load_checkpoint(checkpoint, self.name, env)["policy"])
        return inference_of(policy)


def linear(env: ManagerBasedRlEnv) -> nn.Linear:
    """A policy that does nothing yet; nothing random is drawn for it."""
    policy = nn.utils.skip_init(nn.Linear, env.observation_manager.groups["policy"].dim, env.action_dim)
    for weight in policy.parameters():
        nn.init.zeros_(weight)
    return policy.to(env.device).requires_grad_(False)


def inference_of(policy: nn.Linear) -> InferenceSetup:
    """A policy as the lab plays, judges and exports it."""
    actor = Actor(network=policy, algorithm="hill climbing", normalizes=False, action_range=None)
    return InferenceSetup(policy=lambda observations: policy(observations["policy"].float()), actor=actor)


CART = """
<mujoco>
  <worldbody>
    <body name="cart">
      <joint name="rail" type="slide" axis="1 0 0" damping=".1"/>
      <geom type="box" size=".1 .1 .1" mass="1" contype="0" conaffinity="0"/>
    </body>
  </worldbody>
</mujoco>
"""


def task() -> TaskCfg:
    """Come to the middle of the rail."""
    servo = ImplicitPdActuatorCfg(joint_names=("rail",), stiffness=40.0, damping=4.0, effort_limit=20.0)
    robot = ArticulationCfg(spec=mjcf_text, spec_args={"xml": CART}, actuators={"servo": servo})
    terms = {
        "joint_pos": ObservationTermCfg(func=mdp.joint_pos_rel),
        "joint_vel": ObservationTermCfg(func=mdp.joint_vel_rel, scale=0.1),
    }
    start = {"position_range": (-1.0, 1.0), "velocity_range": (0.0, 0.0)}
    env = ManagerBasedRlEnvCfg(
        scene=SceneCfg(num_envs=4, entities={"robot": robot}),
        decimation=4,
        episode_length_s=0.4,
        actions={"rail": mdp.JointPositionActionCfg()},
        observations={"policy": ObservationGroupCfg(terms=terms)},
        rewards={"distance": RewardTermCfg(func=mdp.joint_pos_l2, weight=-1.0)},
        terminations={"time_out": TerminationTermCfg(func=mdp.time_out, time_out=True)},
        events={"start": EventTermCfg(func=mdp.reset_joints_by_offset, mode="reset", params=start)},
    )
    return TaskCfg(env=env, play_env=play_cfg(env), agent=ToyCfg(timesteps=80))


register_backend(ToyCfg, "toy_library:ToyBackend", name="toy", packages=["psutil"])
TASKS.register("Toy-Climb-v0", "toy_library:task", description="Come to rest.", robot="cart", backend="toy")
