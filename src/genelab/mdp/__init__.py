"""The library of terms.

A task writes `func=mdp.joint_pos_rel`: everything that can stand there has its name in this module.
"""

from genelab.mdp.actions import JointEffortActionCfg, JointPositionActionCfg, JointVelocityActionCfg
from genelab.mdp.events import reset_joints_by_offset, set_joint_velocity
from genelab.mdp.observations import frame_ang_vel, generated_command, joint_pos_rel, joint_vel_rel, last_action
from genelab.mdp.rewards import action_rate_l2, is_alive, joint_cos, joint_pos_l2, joint_vel_l2
from genelab.mdp.terminations import joint_pos_beyond, time_out

__all__ = [
    "JointEffortActionCfg",
    "JointPositionActionCfg",
    "JointVelocityActionCfg",
    "action_rate_l2",
    "frame_ang_vel",
    "generated_command",
    "is_alive",
    "joint_cos",
    "joint_pos_beyond",
    "joint_pos_l2",
    "joint_pos_rel",
    "joint_vel_l2",
    "joint_vel_rel",
    "last_action",
    "reset_joints_by_offset",
    "set_joint_velocity",
    "time_out",
]
