"""Rewards: functions of the environment that return `(num_envs,)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.linalg import vector_norm

from genelab import math as gm
from genelab.managers import ROBOT, RewardTermCfg, Selection
from genelab.mdp.sensors import get_sensor, root_height
from genelab.scene import ContactSensor
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv


def is_alive(env: ManagerBasedRlEnv) -> Tensor:
    """1 while the episode has not failed."""
    return (~env.termination_manager.terminated).to(env.dtype)


def joint_pos_l2(env: ManagerBasedRlEnv, asset: Selection = ROBOT) -> Tensor:
    """Sum of squared joint positions."""
    return gm.take(asset.entity.joint_pos, asset.joint_ids).square().sum(dim=1)


def joint_vel_l2(env: ManagerBasedRlEnv, asset: Selection = ROBOT) -> Tensor:
    """Sum of squared joint velocities."""
    return gm.take(asset.entity.joint_vel, asset.joint_ids).square().sum(dim=1)


def joint_cos(env: ManagerBasedRlEnv, asset: Selection = ROBOT) -> Tensor:
    """Mean cosine of joint angles: 1 where all are zero."""
    return gm.take(asset.entity.joint_pos, asset.joint_ids).cos().mean(dim=1)


def action_rate_l2(env: ManagerBasedRlEnv) -> Tensor:
    """Sum of squared changes of the action."""
    return (env.action_manager.action - env.action_manager.prev_action).square().sum(dim=1)


# -- following a velocity command


def track_lin_vel_exp(env: ManagerBasedRlEnv, command: str, std: float, asset: Selection = ROBOT) -> Tensor:
    """Reward tracking of the commanded planar velocity, without vertical motion, with an exponential kernel.

    Args:
        env: The environment.
        command: Name of the velocity command.
        std: Width of the kernel, m/s.
        asset: The robot.

    Returns:
        exp(-(|v_xy - command_xy|² + v_z²) / std²), shape (num_envs,).
    """
    velocity = asset.entity.root_lin_vel_b
    error = (env.commands[command][:, :2] - velocity[:, :2]).square().sum(dim=1) + velocity[:, 2].square()
    return torch.exp(error / -(std**2))


def track_ang_vel_exp(env: ManagerBasedRlEnv, command: str, std: float, asset: Selection = ROBOT) -> Tensor:
    """Reward tracking of the commanded yaw rate, without rolling and pitching, with an exponential kernel.

    Args:
        env: The environment.
        command: Name of the velocity command.
        std: Width of the kernel, rad/s.
        asset: The robot.

    Returns:
        exp(-((w_z - command_z)² + |w_xy|²) / std²), shape (num_envs,).
    """
    velocity = asset.entity.root_ang_vel_b
    error = (env.commands[command][:, 2] - velocity[:, 2]).square() + velocity[:, :2].square().sum(dim=1)
    return torch.exp(error / -(std**2))


def error_vel_xy(env: ManagerBasedRlEnv, command: str, asset: Selection = ROBOT) -> Tensor:
    """Distance from the commanded velocity in the ground plane, m/s."""
    return vector_norm(env.commands[command][:, :2] - asset.entity.root_lin_vel_b[:, :2], dim=1)


def error_vel_y(env: ManagerBasedRlEnv, command: str, asset: Selection = ROBOT) -> Tensor:
    """Distance from the commanded velocity to the side, m/s."""
    return (env.commands[command][:, 1] - asset.entity.root_lin_vel_b[:, 1]).abs()


def error_vel_yaw(env: ManagerBasedRlEnv, command: str, asset: Selection = ROBOT) -> Tensor:
    """Distance from the commanded turning rate, rad/s."""
    return (env.commands[command][:, 2] - asset.entity.root_ang_vel_b[:, 2]).abs()


# -- how the body is carried


def lin_vel_z_l2(env: ManagerBasedRlEnv, asset: Selection = ROBOT) -> Tensor:
    """Squared vertical velocity of the root, in its own frame."""
    return asset.entity.root_lin_vel_b[:, 2].square()


def ang_vel_xy_l2(env: ManagerBasedRlEnv, asset: Selection = ROBOT) -> Tensor:
    """Squared rolling and pitching rates of the root."""
    return asset.entity.root_ang_vel_b[:, :2].square().sum(dim=1)


def body_ang_vel_xy_l2(env: ManagerBasedRlEnv, asset: Selection = ROBOT) -> Tensor:
    """Squared horizontal angular velocities of bodies, world frame."""
    return asset.entity.body_ang_vel_w[:, asset.body_ids, :2].square().sum(dim=(1, 2))


def flat_orientation_l2(env: ManagerBasedRlEnv, asset: Selection = ROBOT) -> Tensor:
    """Squared sine of the root's tilt."""
    return asset.entity.projected_gravity_b[:, :2].square().sum(dim=1)


def upright_exp(env: ManagerBasedRlEnv, std: float, asset: Selection = ROBOT) -> Tensor:
    """1 for bodies that stand upright, by the squared sine of their tilt."""
    w, x, y, z = gm.take(asset.entity.body_quat_w, asset.body_ids).square().unbind(-1)  # (N, B)
    tilt = ((x + y) * (w + z)).sum(dim=1) * 4.0
    return torch.exp(tilt / -(std**2))


def base_height_l2(env: ManagerBasedRlEnv, target: float, asset: Selection = ROBOT) -> Tensor:
    """Squared distance of the root from a height above the ground."""
    return (root_height(env, asset.entity) - target).square()


def angular_momentum_l2(env: ManagerBasedRlEnv, asset: Selection = ROBOT) -> Tensor:
    """Squared angular momentum about the centre of mass, the bodies taken as points of mass, (kg·m²/s)²."""
    entity = asset.entity
    position, velocity = gm.planes(entity.body_com_pos_w), gm.planes(entity.body_com_vel_w)  # (3, N, B)
    mass = entity.body_mass  # (B,)
    centre = position @ (mass / mass.sum())  # (3, N)
    momentum = gm.cross(position - centre[..., None], velocity) @ mass
    return momentum.square().sum(dim=0)


# -- effort and limits


def joint_torques_l2(env: ManagerBasedRlEnv, asset: Selection = ROBOT) -> Tensor:
    """Sum of squared joint torques."""
    return gm.take(asset.robot.joint_effort, asset.joint_ids).square().sum(dim=1)


class JointAccL2:
    """Sum of squared joint accelerations: the change of velocity over the control step, none in an episode's first."""

    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        self.last: Tensor | None = None

    def __call__(self, env: ManagerBasedRlEnv, asset: Selection = ROBOT) -> Tensor:
        velocity = gm.take(asset.entity.joint_vel, asset.joint_ids)
        change = torch.zeros_like(velocity) if self.last is None else velocity - self.last
        self.last = velocity
        return change.square().sum(dim=1) / env.step_dt**2 * (env.episode_length_buf > 1)


def joint_pos_limits(env: ManagerBasedRlEnv, asset: Selection = ROBOT) -> Tensor:
    """How far joints are beyond their soft limits, summed."""
    limits = gm.take(asset.robot.soft_joint_pos_limits, asset.joint_ids)
    pos = gm.take(asset.robot.joint_pos, asset.joint_ids)
    return (pos - pos.clamp(limits[..., 0], limits[..., 1])).abs().sum(dim=1)


def undesired_contacts(env: ManagerBasedRlEnv, sensor: str) -> Tensor:
    """How many bodies of a contact sensor touch."""
    return get_sensor(env, sensor, ContactSensor).touching.sum(dim=1).to(env.dtype)


def any_contact(env: ManagerBasedRlEnv, sensor: str) -> Tensor:
    """Return 1 where any body of a contact sensor touches, else 0, shape (num_envs,)."""
    return get_sensor(env, sensor, ContactSensor).touching.any(dim=1).to(env.dtype)


class RecentContacts:
    """Number of the last control steps in which any body of a contact sensor touched, shape (num_envs,)."""

    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        self.hits = torch.zeros(env.num_envs, cfg.params["window"], dtype=torch.bool, device=env.device)

    def __call__(self, env: ManagerBasedRlEnv, sensor: str, window: int) -> Tensor:
        touching = get_sensor(env, sensor, ContactSensor).touching.any(dim=1, keepdim=True)
        self.hits = torch.cat((self.hits[:, 1:], touching), dim=1)
        return self.hits.sum(dim=1, dtype=env.dtype)

    def reset(self, env_ids: EnvIds) -> None:
        """Forget the contacts of the episodes that ended."""
        gm.fill(self.hits, env_ids, False)
