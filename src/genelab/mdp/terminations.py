"""Terminations: functions of the environment that return booleans `(num_envs,)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from genelab.managers import ROBOT, Selection

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv


def time_out(env: ManagerBasedRlEnv) -> Tensor:
    """The episode has reached its longest duration."""
    return env.episode_length_buf >= env.max_episode_length


def joint_pos_beyond(env: ManagerBasedRlEnv, bound: float, asset: Selection = ROBOT) -> Tensor:
    """Some joint is further than `bound` from zero."""
    return (asset.entity.joint_pos[:, asset.joint_ids].abs() > bound).any(dim=1)
