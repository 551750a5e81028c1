"""Actions on top of a motion: the policy corrects it instead of repeating it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from genelab import math as gm
from genelab.managers import ActionTerm
from genelab.mdp.actions import JointPositionAction, JointPositionActionCfg
from genelab.mdp.motion_command import get_motion
from genelab.motion import Dynamics

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv


FORMULA = (
    "target = offset + scale * action + share * (joint_pos + lead * joint_vel - default_joint_pos)"
    " + feed_forward * torque / stiffness"
)
"""For who runs an exported policy; `joint_pos`, `joint_vel` and `torque` are those of the motion's frame, rows of
tables."""


@dataclass(kw_only=True)
class MotionJointPositionActionCfg(JointPositionActionCfg):
    """Target = offset + scale · action + share · (position + lead · velocity − default pose) + feed_forward · torque /
    stiffness, all of the motion.

    With both shares 0 the action is that of `JointPositionActionCfg`. With both 1 a robot that does nothing does the
    motion, until it loses its balance: to balance is what is left to learn.
    """

    command: str = "motion"
    """The motion."""
    share: float = 1.0
    """How much of the motion is under the action."""
    lead: float = 0.0
    """How far ahead of the motion the target is, s. A servo with damping lags by damping / stiffness."""
    feed_forward: float = 0.0
    """How much of the torque that the motion takes is under the action. It is known from inverse dynamics on flat
    ground; a servo gives it if its target is ahead by torque / stiffness."""

    def build(self, name: str, env: ManagerBasedEnv) -> ActionTerm:
        return MotionJointPositionAction(name, self, env)


class MotionJointPositionAction(JointPositionAction):
    """Position targets on top of the motion's."""

    cfg: MotionJointPositionActionCfg
    env: ManagerBasedRlEnv
    not_state = ("under", "torques")

    def metadata(self) -> dict[str, Any]:
        default = gm.decimals(self.robot.default_joint_pos[0, self.joint_ids])
        return {**super().metadata(), "formula": FORMULA, "default_joint_pos": default}

    @cached_property
    def under(self) -> Tensor:
        """What is added to the targets by each frame of the motions, `(T, dim)`."""
        motions, env = get_motion(self.env, self.cfg.command).motions.values(), self.env
        default = self.robot.default_joint_pos[0].cpu().numpy()
        rows = [self.cfg.share * (m.joint_pos + self.cfg.lead * m.joint_vel - default) for m in motions]
        table = np.concatenate(rows)
        if self.cfg.feed_forward != 0.0:
            table = table + self.cfg.feed_forward * self.torques / self._stiffness()
        return torch.as_tensor(table, device=env.device, dtype=env.dtype)[:, self.joint_ids].contiguous()

    @cached_property
    def torques(self) -> np.ndarray:
        """What each frame of the motions takes of all joints of the robot, `(T, J)`, N·m."""
        dynamics = Dynamics(self.env.cfg.scene.entities[self.cfg.entity])
        motions = get_motion(self.env, self.cfg.command).motions.values()
        return np.concatenate([dynamics.torques(motion.clip) for motion in motions])

    def tables(self) -> dict[str, np.ndarray]:
        if self.cfg.feed_forward == 0.0:
            return {}
        return {"torque": self.torques[:, self.joint_ids.tolist()].astype(np.float32)}

    def _stiffness(self) -> np.ndarray:
        """Of the servos of all joints, `(J,)`; infinite where there is none."""
        stiffness = np.full(len(self.robot.joint_names), np.inf)
        for actuator in self.robot.actuators.values():
            stiffness[actuator.joint_ids] = actuator.default_gains()[0].cpu().numpy()
        return stiffness

    def apply(self, action: Tensor) -> None:
        super().apply(action)
        if self.cfg.share != 0.0 or self.cfg.feed_forward != 0.0:
            frame = get_motion(self.env, self.cfg.command).frame
            self._target()[:, self.joint_columns] += self.under.index_select(0, frame)
