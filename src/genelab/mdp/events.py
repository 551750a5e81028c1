"""Events: functions `(env, env_ids, **params)` that change the world of some environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genelab import math as gm
from genelab.errors import ConfigError
from genelab.managers import ROBOT, EventTermCfg, Selection
from genelab.mdp.sensors import root_height
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv


def reset_joints_by_offset(
    env: ManagerBasedEnv,
    env_ids: EnvIds,
    position_range: tuple[float, float],
    velocity_range: tuple[float, float],
    asset: Selection = ROBOT,
) -> None:
    """Put joints near their default state, inside their limits."""
    entity = asset.entity
    pos = _sample_around(env, env_ids, entity.default_joint_pos[:, asset.joint_ids], position_range)
    vel = _sample_around(env, env_ids, entity.default_joint_vel[:, asset.joint_ids], velocity_range)
    limits = entity.joint_pos_limits[:, asset.joint_ids]
    pos = torch.clamp(pos, limits[..., 0], limits[..., 1])
    entity.write_joint_state(pos, vel, env_ids, asset.joint_ids)


def set_joint_velocity(
    env: ManagerBasedEnv, env_ids: EnvIds, velocity_range: tuple[float, float], asset: Selection = ROBOT
) -> None:
    """Give joints a random velocity."""
    default = torch.zeros_like(asset.entity.default_joint_vel[:, asset.joint_ids])
    vel = _sample_around(env, env_ids, default, velocity_range)
    asset.entity.write_joint_state(None, vel, env_ids, asset.joint_ids)


def _sample_around(env: ManagerBasedEnv, env_ids: EnvIds, centre: Tensor, span: tuple[float, float]) -> Tensor:
    count = env.num_envs if env_ids is None else len(env_ids)
    return centre + gm.uniform(*span, (count, centre.shape[1]), env.rng, env.dtype)


def reset_root_uniform(
    env: ManagerBasedEnv,
    env_ids: EnvIds,
    pose_range: dict[str, tuple[float, float]],
    velocity_range: dict[str, tuple[float, float]] | None = None,
    asset: Selection = ROBOT,
) -> None:
    """Put a free root near its default pose at its environment's origin.

    Ranges are by axis: `x`, `y`, `z` (m, m/s) and `roll`, `pitch`, `yaw` (rad, rad/s); axes not named stay as they are.
    """
    entity = asset.entity
    origins = entity.env_origins if env_ids is None else entity.env_origins[env_ids]
    offset = sample_axes(env, len(origins), pose_range)
    turn = gm.quat_from_euler(*offset[:, 3:].unbind(dim=1))
    rot = gm.quat_mul(turn, entity.default_root_pose[:, 3:])
    pos = origins + entity.default_root_pose[:, :3] + offset[:, :3]
    terrain = env.scene.terrain
    if terrain is not None and not terrain.is_plane:  # jittered away from its origin, it must not start inside a step
        ground = terrain.height_at(pos)
        pos[:, 2] += (ground - origins[:, 2]).clamp(min=0.0)
    pose = torch.cat((pos, rot), dim=1)
    if velocity_range:
        velocity = entity.default_root_vel + sample_axes(env, len(origins), velocity_range)
        entity.write_root_state(pose, velocity, env_ids)
    else:
        entity.write_root_pose(pose, env_ids)
        entity.write_default_root_velocity(pose[:, 3:], env_ids)


def push_by_velocity(
    env: ManagerBasedRlEnv,
    env_ids: EnvIds,
    velocity_range: dict[str, tuple[float, float]],
    schedule: str | None = None,
    asset: Selection = ROBOT,
) -> None:
    """Add a random velocity to the root's, by axis as in `reset_root_uniform`; `schedule` as a reward's."""
    count = env.num_envs if env_ids is None else len(env_ids)
    push, share = sample_axes(env, count, velocity_range), env.schedules.share(schedule)
    asset.entity.add_root_velocity(push if share == 1.0 else share * push, env_ids)


class HelpingWrench:
    """A hand that holds the root while a robot learns to walk, and lets go: of mode `step`, with a schedule to zero.

    It turns the root upright, carries it at a height and leads it the way the command asks.
    """

    def __init__(self, cfg: EventTermCfg, env: ManagerBasedRlEnv) -> None:
        self.holds = False
        """Whether a wrench acts."""

    def __call__(
        self,
        env: ManagerBasedRlEnv,
        env_ids: EnvIds,
        schedule: str,
        height: float,
        command: str,
        upright: tuple[float, float] = (80.0, 2.0),
        lift: tuple[float, float] = (800.0, 40.0),
        lift_limit: float = 200.0,
        lead: tuple[float, float] = (0.0, 0.0),
        asset: Selection = ROBOT,
    ) -> None:
        """`upright`: N·m/rad and N·m·s/rad; `lift` to `height` (m): N/m and N·s/m, never down, at most `lift_limit`, N;
        `lead`: N·s/m in the ground plane and N·m·s/rad about the vertical, for errors of up to 1 m/s and 1 rad/s."""
        share = env.schedules.share(schedule)
        if share == 0.0 and not self.holds:
            return
        self.holds = share != 0.0
        entity = asset.entity
        up, spin = -entity.projected_gravity_b, entity.root_ang_vel_b
        error = env.commands[command] - torch.cat((entity.root_lin_vel_b[:, :2], spin[:, 2:]), dim=1)
        towards = lead[0] * error[:, :2].clamp(-1.0, 1.0)
        turn = lead[1] * error[:, 2].clamp(-1.0, 1.0)
        tilt = torch.stack((-up[:, 1], up[:, 0]), dim=1)  # from the root's z axis to up
        torque = torch.cat((upright[0] * tilt - upright[1] * spin[:, :2], turn[:, None]), dim=1)
        torque = gm.quat_rotate(entity.root_quat_w, torque)
        (ahead, left), heading = towards.unbind(dim=1), entity.heading_w
        cos, sin = heading.cos(), heading.sin()
        sunk = height - root_height(env, entity)
        carried = (lift[0] * sunk - lift[1] * entity.root_lin_vel_w[:, 2]).clamp(0.0, lift_limit)
        force = torch.stack((cos * ahead - sin * left, sin * ahead + cos * left, carried), dim=1)
        wrench = share * force[:, None], share * torque[:, None]
        env.scene.engine.write_wrench(*wrench, entity.root_body, None)


_AXES = ("x", "y", "z", "roll", "pitch", "yaw")


def sample_axes(env: ManagerBasedEnv, count: int, ranges: dict[str, tuple[float, float]]) -> Tensor:
    """Random numbers `(count, 6)` within the ranges, zero for axes without one."""
    for axis in ranges:
        if axis not in _AXES:
            raise ConfigError(f"{axis!r} is not an axis: they are {', '.join(_AXES)}")
    bounds = zip(*(ranges.get(axis, (0.0, 0.0)) for axis in _AXES), strict=True)
    low, high = (gm.constant(ends, env.device, env.dtype) for ends in bounds)
    return gm.uniform(low, high, (count, 6), env.rng, env.dtype)
