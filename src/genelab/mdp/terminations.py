"""Terminations: functions of the environment that return booleans `(num_envs,)`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genelab import math as gm
from genelab.managers import ROBOT, Selection
from genelab.mdp.sensors import root_height

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv


def time_out(env: ManagerBasedRlEnv) -> Tensor:
    """The episode has reached its longest duration."""
    return env.episode_length_buf >= env.max_episode_length


def joint_pos_beyond(env: ManagerBasedRlEnv, bound: float, asset: Selection = ROBOT) -> Tensor:
    """Some joint is further than `bound` from zero."""
    return (gm.take(asset.entity.joint_pos, asset.joint_ids).abs() > bound).any(dim=1)


def bad_orientation(env: ManagerBasedRlEnv, limit: float, asset: Selection = ROBOT) -> Tensor:
    """The root is tilted by more than `limit`, rad."""
    return -asset.entity.projected_gravity_b[:, 2] < math.cos(limit)


def root_too_low(env: ManagerBasedRlEnv, height: float, asset: Selection = ROBOT) -> Tensor:
    """The root is less than `height` above the ground, m."""
    return root_height(env, asset.entity) < height


def out_of_terrain(env: ManagerBasedRlEnv, margin: float, asset: Selection = ROBOT) -> Tensor:
    """The root is less than `margin` from the edge of the terrain, or beyond it."""
    terrain = env.scene.terrain
    if terrain is None:
        return torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)
    return ~terrain.contains(asset.entity.root_pos_w, margin)
