"""Rewards: functions of the environment that return `(num_envs,)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from genelab.managers import ROBOT, Selection

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv


def is_alive(env: ManagerBasedRlEnv) -> Tensor:
    """1 while the episode has not failed."""
    return (~env.termination_manager.terminated).to(env.dtype)


def joint_pos_l2(env: ManagerBasedRlEnv, asset: Selection = ROBOT) -> Tensor:
    """Sum of squared joint positions."""
    return asset.entity.joint_pos[:, asset.joint_ids].square().sum(dim=1)


def joint_vel_l2(env: ManagerBasedRlEnv, asset: Selection = ROBOT) -> Tensor:
    """Sum of squared joint velocities."""
    return asset.entity.joint_vel[:, asset.joint_ids].square().sum(dim=1)


def joint_cos(env: ManagerBasedRlEnv, asset: Selection = ROBOT) -> Tensor:
    """Mean cosine of joint angles: 1 where all are zero."""
    return asset.entity.joint_pos[:, asset.joint_ids].cos().mean(dim=1)


def action_rate_l2(env: ManagerBasedRlEnv) -> Tensor:
    """Sum of squared changes of the action."""
    return (env.action_manager.action - env.action_manager.prev_action).square().sum(dim=1)
