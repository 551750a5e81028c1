"""Events: functions `(env, env_ids, **params)` that change the world of some environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genelab import math as gm
from genelab.errors import ConfigError
from genelab.managers import ROBOT, Selection
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv


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
    offset = _sample_axes(env, len(origins), pose_range)
    turn = gm.quat_from_euler(*offset[:, 3:].unbind(dim=1))
    rot = gm.quat_mul(turn, entity.default_root_pose[:, 3:].expand_as(turn))
    pos = origins + entity.default_root_pose[:, :3] + offset[:, :3]
    if env.scene.terrain is not None:  # jittered away from its origin, a robot must not start inside a step
        ground = env.scene.terrain.height_at(pos)
        pos[:, 2] += (ground - origins[:, 2]).clamp(min=0.0)
    entity.write_root_pose(torch.cat((pos, rot), dim=1), env_ids)
    velocity = entity.default_root_vel + _sample_axes(env, len(origins), velocity_range or {})
    entity.write_root_velocity(velocity, env_ids)


def push_by_velocity(
    env: ManagerBasedEnv,
    env_ids: EnvIds,
    velocity_range: dict[str, tuple[float, float]],
    ramp: tuple[float, int] | None = None,
    asset: Selection = ROBOT,
) -> None:
    """Add a random velocity to the root's, by axis as in `reset_root_uniform`; `ramp` as a reward's."""
    entity = asset.entity
    velocity = torch.cat((entity.root_lin_vel_w, entity.root_ang_vel_w), dim=1)
    velocity = velocity if env_ids is None else velocity[env_ids]
    share = gm.ramp_share(ramp, env.common_step_counter)
    entity.write_root_velocity(velocity + share * _sample_axes(env, len(velocity), velocity_range), env_ids)


_AXES = ("x", "y", "z", "roll", "pitch", "yaw")


def _sample_axes(env: ManagerBasedEnv, count: int, ranges: dict[str, tuple[float, float]]) -> Tensor:
    """Random numbers `(count, 6)` within the ranges, zero for axes without one."""
    for axis in ranges:
        if axis not in _AXES:
            raise ConfigError(f"{axis!r} is not an axis: they are {', '.join(_AXES)}")
    bounds = torch.tensor([ranges.get(axis, (0.0, 0.0)) for axis in _AXES], device=env.device, dtype=env.dtype)
    return gm.uniform(bounds[:, 0], bounds[:, 1], (count, 6), env.rng, env.dtype)
