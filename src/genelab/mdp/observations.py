"""Observations: functions of the environment that return `(num_envs, d)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genelab.managers import ROBOT, Selection
from genelab.mdp.sensors import get_sensor
from genelab.scene import ContactSensor, FrameSensor, HeightScan, PointsSensor

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv


def joint_pos_rel(env: ManagerBasedEnv, asset: Selection = ROBOT) -> Tensor:
    """Joint positions relative to the default pose."""
    return (asset.entity.joint_pos - asset.entity.default_joint_pos)[:, asset.joint_ids]


def joint_vel_rel(env: ManagerBasedEnv, asset: Selection = ROBOT) -> Tensor:
    """Joint velocities relative to the default ones."""
    return (asset.entity.joint_vel - asset.entity.default_joint_vel)[:, asset.joint_ids]


def last_action(env: ManagerBasedEnv) -> Tensor:
    """The action of the last control step."""
    return env.action_manager.action


def frame_ang_vel(env: ManagerBasedEnv, sensor: str) -> Tensor:
    """Angular velocity of a frame in itself, as a gyroscope has it."""
    return get_sensor(env, sensor, FrameSensor).ang_vel_b


def generated_command(env: ManagerBasedRlEnv, command: str) -> Tensor:
    """The command as it is."""
    return env.commands[command]


def base_lin_vel(env: ManagerBasedEnv, asset: Selection = ROBOT) -> Tensor:
    """Velocity of the root in its own frame: what no robot measures, for critics."""
    return asset.entity.root_lin_vel_b


def base_ang_vel(env: ManagerBasedEnv, asset: Selection = ROBOT) -> Tensor:
    """Angular velocity of the root in its own frame."""
    return asset.entity.root_ang_vel_b


def projected_gravity(env: ManagerBasedEnv, asset: Selection = ROBOT) -> Tensor:
    """The unit vector down, in the root's frame."""
    return asset.entity.projected_gravity_b


def joint_pos_measured(env: ManagerBasedEnv, asset: Selection = ROBOT) -> Tensor:
    """Joint positions relative to the default pose, as encoders with a constant error read them."""
    robot = asset.robot
    return (robot.joint_pos + robot.encoder_bias - robot.default_joint_pos)[:, asset.joint_ids]


def height_scan(env: ManagerBasedEnv, sensor: str, offset: float = 0.0) -> Tensor:
    """How far the ground lies below a frame at each point of a scan, less an offset."""
    return get_sensor(env, sensor, HeightScan).distance - offset


def foot_height(env: ManagerBasedEnv, sensor: str) -> Tensor:
    """Heights of the feet above the ground."""
    return get_sensor(env, sensor, PointsSensor).height


def foot_air_time(env: ManagerBasedEnv, sensor: str) -> Tensor:
    """How long each foot has been in the air, s."""
    return get_sensor(env, sensor, ContactSensor).air_time


def foot_contact(env: ManagerBasedEnv, sensor: str) -> Tensor:
    """1 for each foot on the ground."""
    return get_sensor(env, sensor, ContactSensor).touching.to(env.dtype)


def foot_contact_forces(env: ManagerBasedEnv, sensor: str) -> Tensor:
    """Forces on the feet on a logarithmic scale that keeps their sign, `(N, 3 · feet)`."""
    force = get_sensor(env, sensor, ContactSensor).force_w.flatten(1)
    return force.sign() * torch.log1p(force.abs())
