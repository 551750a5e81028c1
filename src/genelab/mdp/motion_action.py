"""Actions on top of a motion: the policy corrects it instead of repeating it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from genelab import math as gm
from genelab.managers import ActionTerm
from genelab.mdp.actions import JointPositionAction, JointPositionActionCfg
from genelab.mdp.motion_command import get_motion

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv


FORMULA = "target = offset + scale * action + share * (joint_pos + lead * joint_vel - default_joint_pos)"
"""For who runs an exported policy; `joint_pos` and `joint_vel` are those of the motion's frame."""


@dataclass(kw_only=True)
class MotionJointPositionActionCfg(JointPositionActionCfg):
    """Target = offset + scale · action + share · (position + lead · velocity − default pose), both of the motion.

    At a share of 0 the action is that of `JointPositionActionCfg`, at 1 zero action is the motion itself.
    """

    command: str = "motion"
    """The motion."""
    share: float = 1.0
    """How much of the motion is under the action."""
    lead: float = 0.0
    """How far ahead of the motion the target is, s. A servo with damping lags by damping / stiffness."""

    def build(self, name: str, env: ManagerBasedEnv) -> ActionTerm:
        return MotionJointPositionAction(name, self, env)


class MotionJointPositionAction(JointPositionAction):
    """Position targets on top of the motion's."""

    cfg: MotionJointPositionActionCfg
    env: ManagerBasedRlEnv

    def metadata(self) -> dict[str, Any]:
        default = gm.decimals(self.robot.default_joint_pos[0, self.joint_ids])
        return {**super().metadata(), "formula": FORMULA, "default_joint_pos": default}

    def apply(self, action: Tensor) -> None:
        super().apply(action)
        if self.cfg.share != 0.0:
            motion = get_motion(self.env, self.cfg.command)
            away = motion.joint_pos + self.cfg.lead * motion.joint_vel - self.robot.default_joint_pos
            self._target()[:, self.joint_columns] += self.cfg.share * gm.take(away, self.joint_columns)
