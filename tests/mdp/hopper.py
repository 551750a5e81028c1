"""A hopper whose state is set by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv
from genelab.managers import ObservationGroupCfg, ObservationTermCfg, RewardTermCfg, SceneEntityCfg
from genelab.mdp import VelocityCommand
from tests.narrow import as_kind

MakeEnv = Callable[..., ManagerBasedRlEnv]

# A body of 2 kg on two legs of 1 kg that slide up and down; feet of 0.1 m, whose centres are 0.5 m below the body's.
HOPPER = """
<mujoco>
  <worldbody>
    <body name="trunk">
      <freejoint/>
      <geom name="trunk" type="box" size=".2 .2 .1" mass="2"/>
      <body name="left_leg" pos="0 .3 -.5">
        <joint name="left" type="slide" axis="0 0 1" range="-.2 .2"/>
        <geom name="left_foot" size=".1" mass="1" friction=".9"/>
      </body>
      <body name="right_leg" pos="0 -.3 -.5">
        <joint name="right" type="slide" axis="0 0 1" range="-.2 .2"/>
        <geom name="right_foot" size=".1" mass="1" friction=".9"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
GAIT = {"contact": "contact", "command": "twist", "threshold": 0.1}
TRUNK = SceneEntityCfg(body_names=("trunk",))


def pose(
    env: ManagerBasedRlEnv, *, quat: Any = (1.0, 0.0, 0.0, 0.0), velocity: Any = (0.0,) * 6, z: float = 0.6
) -> None:
    """Put all roots at a pose, with a world velocity."""
    env.robot.write_root_pose(torch.tensor([[0.0, 0.0, z, *quat]]).double().repeat(env.num_envs, 1), None)
    env.robot.write_root_velocity(torch.tensor([velocity]).double().repeat(env.num_envs, 1), None)
    env.scene.engine.refresh()


def reward(env: ManagerBasedRlEnv, func: Callable[..., Tensor], **params: Any) -> float:
    """What a reward term says now, of the second environment."""
    cfg = RewardTermCfg(func=func, params=params, weight=1 / env.step_dt)
    return type(env.reward_manager)({"term": cfg}, env).compute()[1].item()


def observed(env: ManagerBasedRlEnv, func: Callable[..., Tensor], **params: Any) -> list[float]:
    """What an observation term says now, of the second environment."""
    groups = {"policy": ObservationGroupCfg(terms={"term": ObservationTermCfg(func=func, params=params)})}
    return type(env.observation_manager)(groups, env).compute()["policy"][1].tolist()


def twist(env: ManagerBasedRlEnv) -> VelocityCommand:
    """The velocity that is asked for."""
    return as_kind(env.commands.term("twist"), VelocityCommand)
