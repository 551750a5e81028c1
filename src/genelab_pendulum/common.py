"""What the pendulum tasks have in common."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from genelab import mdp
from genelab.envs import ManagerBasedRlEnvCfg
from genelab.managers import (
    EventTermCfg,
    ObservationGroupCfg,
    ObservationTermCfg,
    SceneEntityCfg,
    TerminationTermCfg,
    symmetric,
)
from genelab.rl.config import RslRlPpoAlgorithmCfg, RslRlSymmetryCfg
from genelab.scene import ArticulationCfg, FrameSensorCfg, PlaneCfg, SceneCfg
from genelab.sim import SimulationCfg

CART = SceneEntityCfg(joint_names=("cart",))


def pendulum_env(robot: ArticulationCfg, *, tip: str, spacing: float, episode_length_s: float) -> ManagerBasedRlEnvCfg:
    """A cart at 100 Hz that starts near upright, acts on the cart's position and sees its joints and its last pole."""
    return ManagerBasedRlEnvCfg(
        simulation=SimulationCfg(dt=0.005),
        decimation=2,
        episode_length_s=episode_length_s,
        scene=SceneCfg(
            num_envs=256,  # published: 4096
            env_spacing=spacing,
            entities={"robot": robot},
            terrain=PlaneCfg(),
            sensors={"tip": FrameSensorCfg(entity="robot", body=tip)},
        ),
        actions={"cart": mdp.JointPositionActionCfg(joint_names=("cart",), scale=1.0)},
        observations=_observations(),
        events={
            "reset_joints": EventTermCfg(
                func=mdp.reset_joints_by_offset,
                mode="reset",
                params={"position_range": (-0.05, 0.05), "velocity_range": (-0.05, 0.05)},
            )
        },
        terminations={
            "time_out": TerminationTermCfg(func=mdp.time_out, time_out=True),
            "cart_out_of_bounds": TerminationTermCfg(func=mdp.joint_pos_beyond, params={"bound": 2.4, "asset": CART}),
        },
    )


def _observations() -> dict[str, ObservationGroupCfg]:
    """The same terms for actor and critic; noise for the actor only."""
    policy = ObservationGroupCfg(
        terms={
            "joint_pos": ObservationTermCfg(func=mdp.joint_pos_rel, noise=symmetric(0.005)),
            "joint_vel": ObservationTermCfg(func=mdp.joint_vel_rel, noise=symmetric(0.05), scale=0.1),
            "pole_ang_vel": ObservationTermCfg(
                func=mdp.frame_ang_vel, params={"sensor": "tip"}, noise=symmetric(0.1), scale=0.2
            ),
            "last_action": ObservationTermCfg(func=mdp.last_action),
        }
    )
    critic = copy.deepcopy(policy)
    critic.enable_noise = False
    return {"policy": policy, "critic": critic}


def push(velocity: float, interval_s: tuple[float, float]) -> EventTermCfg:
    """Now and then the cart suddenly has another velocity."""
    return EventTermCfg(
        func=mdp.set_joint_velocity,
        mode="interval",
        interval_range_s=interval_s,
        params={"velocity_range": (-velocity, velocity), "asset": CART},
    )


def mirror(env: Any, obs: Any, actions: Tensor | None) -> tuple[Any, Tensor | None]:
    """A batch with its mirror images below it: seen from the other side, whatever a cart does has the other sign."""
    obs, actions = (None if batch is None else torch.cat([batch, -batch]) for batch in (obs, actions))
    return obs, actions


def equivariant_ppo() -> RslRlPpoAlgorithmCfg:
    """PPO for networks that are their own mirror image, as a cart with poles on it is."""
    return RslRlPpoAlgorithmCfg(symmetry_cfg=RslRlSymmetryCfg(data_augmentation_func=mirror, equivariant=True))
