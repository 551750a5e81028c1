"""Events: functions `(env, env_ids, **params)` that change the world of some environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genelab import math as gm
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
