"""A sensor with a memory and an observation of it: one file outside the package."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genelab import TASKS, TaskCfg, mdp
from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv, ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import (
    EventTermCfg,
    Meaning,
    ObservationGroupCfg,
    ObservationTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    observation,
)
from genelab.rl.config import RslRlOnPolicyRunnerCfg
from genelab.scene import ArticulationCfg, ImplicitPdActuatorCfg, SceneCfg, Sensor, SensorCfg, mjcf_text
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.scene import Scene

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


@dataclass(kw_only=True)
class OdometerCfg(SensorCfg):
    """Measures how far joints have gone in the last control steps."""

    steps: int = 4
    """Control steps it looks back."""

    def build(self, name: str) -> Sensor:
        return Odometer(name, self)


class Odometer(Sensor):
    """Sums of the ways of all joints, whichever way they went."""

    def __init__(self, name: str, cfg: OdometerCfg) -> None:
        super().__init__(name)
        self.cfg = cfg

    def initialize(self, scene: Scene) -> None:
        self.robot = scene.articulation(self.cfg.entity)
        self._last = torch.zeros_like(self.robot.joint_pos)
        self._ways: deque[Tensor] = deque([self._last] * self.cfg.steps, maxlen=self.cfg.steps)

    @property
    def way(self) -> Tensor:
        """What was gone, `(N, J)`, rad or m."""
        return torch.stack(list(self._ways)).sum(dim=0)

    def update(self, dt: float) -> None:
        place = self.robot.joint_pos.clone()
        self._ways.append((place - self._last).abs())
        self._last = place

    def reset(self, env_ids: EnvIds) -> None:
        rows = slice(None) if env_ids is None else env_ids
        self._last = self._last.clone()
        self._last[rows] = self.robot.joint_pos[rows]
        for way in (clone := [way.clone() for way in self._ways]):
            way[rows] = 0.0
        self._ways.extend(clone)


def _told(env: ManagerBasedEnv, sensor: str) -> Meaning:
    odometer = env.scene.sensor(sensor)
    assert isinstance(odometer, Odometer)
    return Meaning(unit="m", columns=tuple(odometer.robot.joint_names))


@observation(_told)
def way_gone(env: ManagerBasedEnv, sensor: str) -> Tensor:
    """How far each joint has gone in the last steps."""
    odometer = env.scene.sensor(sensor)
    assert isinstance(odometer, Odometer)
    return odometer.way


def distance(env: ManagerBasedRlEnv) -> Tensor:
    """How far the cart is from the middle, (N,)."""
    return env.robot.joint_pos[:, 0].abs()


def task() -> TaskCfg:
    """Come to rest in the middle of the rail."""
    servo = ImplicitPdActuatorCfg(joint_names=("rail",), stiffness=40.0, damping=4.0)
    robot = ArticulationCfg(spec=mjcf_text, spec_args={"xml": CART}, actuators={"servo": servo})
    terms = {
        "joint_pos": ObservationTermCfg(func=mdp.joint_pos_rel),
        "way": ObservationTermCfg(func=way_gone, params={"sensor": "odometer"}, scale=2.0, clip=(0.0, 1.0)),
    }
    start = {"position_range": (-1.0, 1.0), "velocity_range": (0.0, 0.0)}
    env = ManagerBasedRlEnvCfg(
        scene=SceneCfg(num_envs=4, entities={"robot": robot}, sensors={"odometer": OdometerCfg(entity="robot")}),
        decimation=4,
        episode_length_s=0.4,
        actions={"rail": mdp.JointPositionActionCfg()},
        observations={"policy": ObservationGroupCfg(terms=terms)},
        rewards={"distance": RewardTermCfg(func=distance, weight=-1.0)},
        terminations={"time_out": TerminationTermCfg(func=mdp.time_out, time_out=True)},
        events={"start": EventTermCfg(func=mdp.reset_joints_by_offset, mode="reset", params=start)},
    )
    return TaskCfg(env=env, play_env=play_cfg(env), agent=RslRlOnPolicyRunnerCfg(num_steps_per_env=8, max_iterations=2))


TASKS.register("Toy-Odometer-v0", "toy_sensor:task", description="Come to rest.", robot="cart", backend="rsl_rl PPO")
