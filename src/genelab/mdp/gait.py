"""Rewards for how feet are set.

`contact` names a contact sensor and `feet` a sensor of points, both over the same feet in the same order. Where a
command is given, a foot that should stand still is not judged: below `threshold` (m/s and rad/s alike) all is zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.linalg import vector_norm

from genelab import math as gm
from genelab.managers import ROBOT, RewardTermCfg, Selection
from genelab.mdp.sensors import get_sensor
from genelab.scene import ContactSensor, PointsSensor
from genelab.scene.names import resolve_values
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv


def asks_to_move(command: Tensor, threshold: float, axes: tuple[int, ...] | None = None) -> Tensor:
    """Return where a velocity command asks for more than standing: |v_xy| + |w_z| is above the threshold.

    Args:
        command: Forward and sideways speed and yaw rate, (num_envs, 3).
        threshold: What the sum must exceed, m/s and rad/s alike.
        axes: Columns of the command that count; None for all.

    Returns:
        Boolean, shape (num_envs,).
    """
    if axes is not None:
        command = command * gm.constant(tuple(float(i in axes) for i in range(3)), command.device, command.dtype)
    return vector_norm(command[:, :2], dim=1) + command[:, 2].abs() > threshold


def air_time(
    env: ManagerBasedRlEnv,
    contact: str,
    window: tuple[float, float],
    command: str,
    threshold: float,
    command_axes: tuple[int, ...] | None = None,
) -> Tensor:
    """How many feet are in the air for as long as a step takes.

    With `command_axes` only commands along these count: who has wheels need not step straight ahead.
    """
    time = get_sensor(env, contact, ContactSensor).air_time
    stepping = ((time > window[0]) & (time < window[1])).sum(dim=1, dtype=env.dtype)
    return stepping * asks_to_move(env.commands[command], threshold, command_axes)


def foot_slip(env: ManagerBasedRlEnv, contact: str, feet: str, command: str, threshold: float) -> Tensor:
    """Squared horizontal velocities of the feet on the ground."""
    touching = get_sensor(env, contact, ContactSensor).touching
    speed = get_sensor(env, feet, PointsSensor).lin_vel_w[..., :2].square().sum(dim=-1)
    return (speed * touching).sum(dim=1) * asks_to_move(env.commands[command], threshold)


def foot_clearance(env: ManagerBasedRlEnv, feet: str, target: float, command: str, threshold: float) -> Tensor:
    """Distance of the feet from a height, weighed by how fast they swing."""
    points = get_sensor(env, feet, PointsSensor)
    speed = vector_norm(points.lin_vel_w[..., :2], dim=-1)
    return ((points.height - target).abs() * speed).sum(dim=1) * asks_to_move(env.commands[command], threshold)


class FootSwingHeight:
    """Squared relative distance of a foot's highest point from a height, in the step the foot lands."""

    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        feet = get_sensor(env, cfg.params["feet"], PointsSensor)
        self.peak = torch.zeros(env.num_envs, len(feet.body_names), device=env.device, dtype=env.dtype)

    def __call__(
        self, env: ManagerBasedRlEnv, contact: str, feet: str, target: float, command: str, threshold: float
    ) -> Tensor:
        sensor = get_sensor(env, contact, ContactSensor)
        higher = torch.maximum(self.peak, get_sensor(env, feet, PointsSensor).height)
        self.peak = torch.where(sensor.touching, self.peak, higher)  # a foot that has landed is no part of its swing
        error = (self.peak / target - 1.0).clamp(-1.0, 3.0).square()
        landed = (error * sensor.first_contact).sum(dim=1)
        self.peak.masked_fill_(sensor.touching, 0.0)
        return landed * asks_to_move(env.commands[command], threshold)

    def reset(self, env_ids: EnvIds) -> None:
        """New episodes, new steps."""
        gm.fill(self.peak, env_ids)


def soft_landing(env: ManagerBasedRlEnv, contact: str, command: str, threshold: float) -> Tensor:
    """Forces on the feet that have just landed, N."""
    sensor = get_sensor(env, contact, ContactSensor)
    return (sensor.force * sensor.first_contact).sum(dim=1) * asks_to_move(env.commands[command], threshold)


class VariablePosture:
    """1 for joints at their default positions; how far each may stray depends on how fast the robot is to go."""

    not_state = ("variances",)

    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        robot = env.scene.articulation(cfg.params.get("asset", ROBOT).name)
        kinds = ("standing", "walking", "running")
        stds = [resolve_values(cfg.params[key], robot.joint_names, f"{key} of the posture") for key in kinds]
        self.variances = torch.tensor(stds, device=env.device, dtype=env.dtype).square()
        """What each kind of command allows each joint, `(3, J)`, rad²."""

    def __call__(
        self,
        env: ManagerBasedRlEnv,
        command: str,
        standing: float | dict[str, float],
        walking: float | dict[str, float],
        running: float | dict[str, float],
        walking_threshold: float,
        running_threshold: float,
        asset: Selection = ROBOT,
    ) -> Tensor:
        asked = env.commands[command]
        speed = vector_norm(asked[:, :2], dim=1) + asked[:, 2].abs()
        kind = torch.where(speed >= running_threshold, 2, (speed >= walking_threshold).long())
        error = asset.robot.joint_pos_rel.square()
        return torch.exp(-(error / self.variances[kind]).mean(dim=1))


def peak_force(env: ManagerBasedRlEnv, contact: str) -> Tensor:
    """Largest force on a foot, N."""
    return get_sensor(env, contact, ContactSensor).force.amax(dim=1)
