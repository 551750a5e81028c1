"""Observations: functions of the environment that return `(num_envs, d)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from genelab.errors import ConfigError
from genelab.managers import ROBOT, Selection
from genelab.scene import FrameSensor

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
    frame = env.scene.sensor(sensor)
    if not isinstance(frame, FrameSensor):
        raise ConfigError(f"the sensor {sensor!r} is not a frame: it has no angular velocity")
    return frame.ang_vel_b


def generated_command(env: ManagerBasedRlEnv, command: str) -> Tensor:
    """The command as it is."""
    return env.commands[command]
