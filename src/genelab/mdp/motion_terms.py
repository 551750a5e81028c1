"""Following a motion: observations, rewards, ends, events and metrics.

A reward is 1 for a perfect match and falls with the mean squared error of the bodies. `near` errors are those of the
motion turned and moved over the ground to the robot's anchor: a robot that stands elsewhere can still do as asked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genelab import math as gm
from genelab.managers import ROBOT, XYZ, EventTermCfg, Meaning, Selection, observation
from genelab.mdp.events import sample_axes
from genelab.mdp.motion_command import MotionError, get_motion
from genelab.scene import POLAR, Image
from genelab.scene.mirror import of_names
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv

TURN = Image((0, 1, 2, 3, 4, 5), (1.0, -1.0, -1.0, 1.0, 1.0, -1.0))
"""Mirror image of the first two columns of a rotation's matrix, row by row."""
_COLUMNS = ("xx", "xy", "yx", "yy", "zx", "zy")
"""Names of these: the axis they are along, the turned axis they are of."""


def _per_body(unit: str, each: Image, columns: tuple[str, ...]) -> Callable[..., Meaning]:
    def meaning(env: ManagerBasedRlEnv, command: str) -> Meaning:
        motion = get_motion(env, command)
        return Meaning(
            unit=unit,
            frame="anchor",
            columns=tuple(f"{body} {column}" for body in motion.body_names for column in columns),
            mirror=partial(of_names, motion.body_names, motion.robot.cfg.sides, each),
        )

    return meaning


def _of_anchor(kind: str, unit: str, columns: tuple[str, ...], mirror: Image) -> Callable[..., Meaning]:
    """Where the motion's anchor is to the robot's."""

    def meaning(env: ManagerBasedRlEnv, command: str) -> Meaning:
        motion = get_motion(env, command)
        body = f"{motion.robot.name}/{motion.body_names[motion.anchor]}"
        source = {"kind": kind, "command": command, "body": body}
        return Meaning(unit=unit, frame="anchor", columns=columns, source=source, mirror=mirror)

    return meaning


# -- observations


@observation(_of_anchor("motion_anchor_pos", "m", XYZ, POLAR))
def motion_anchor_pos(env: ManagerBasedRlEnv, command: str) -> Tensor:
    """Where the motion's anchor is from the robot's, in the frame of that."""
    motion = get_motion(env, command)
    away = motion.asked_pos[:, motion.anchor] - motion.body_pos[:, motion.anchor]
    return gm.quat_rotate_inverse(motion.body_quat[:, motion.anchor], away)


@observation(_of_anchor("motion_anchor_ori", "1", _COLUMNS, TURN))
def motion_anchor_ori(env: ManagerBasedRlEnv, command: str) -> Tensor:
    """How the motion's anchor is turned from the robot's: two columns of the rotation's matrix, row by row."""
    motion = get_motion(env, command)
    back = gm.quat_conjugate(motion.body_quat[:, motion.anchor])
    return gm.quat_columns(gm.quat_mul(back, motion.asked_quat[:, motion.anchor]))


@observation(_per_body("m", POLAR, XYZ))
def robot_body_pos(env: ManagerBasedRlEnv, command: str) -> Tensor:
    """Where the robot's bodies are from its anchor, in the frame of that, `(N, 3 · B)`."""
    motion = get_motion(env, command)
    away = motion.body_pos - motion.body_pos[:, motion.anchor, None]
    turn = motion.body_quat[:, motion.anchor, None].expand(*away.shape[:2], 4)
    return gm.quat_rotate_inverse(turn, away).flatten(1)


@observation(_per_body("1", TURN, _COLUMNS))
def robot_body_ori(env: ManagerBasedRlEnv, command: str) -> Tensor:
    """How the robot's bodies are turned from its anchor, as `motion_anchor_ori`, `(N, 6 · B)`."""
    motion = get_motion(env, command)
    back = gm.quat_conjugate(motion.body_quat[:, motion.anchor, None]).expand_as(motion.body_quat)
    return gm.quat_columns(gm.quat_mul(back, motion.body_quat)).flatten(1)


# -- rewards


def _reward(squared: Tensor, std: float) -> Tensor:
    """1 without an error; of several bodies the mean counts."""
    return torch.exp(-(squared.mean(dim=1) if squared.dim() > 1 else squared) / std**2)


def motion_anchor_pos_exp(env: ManagerBasedRlEnv, command: str, std: float) -> Tensor:
    """For an anchor that is where the motion has it."""
    motion = get_motion(env, command)
    error = motion.asked_pos[:, motion.anchor] - motion.body_pos[:, motion.anchor]
    return _reward(error.square().sum(dim=-1), std)


def motion_anchor_ori_exp(env: ManagerBasedRlEnv, command: str, std: float) -> Tensor:
    """For an anchor that is turned as the motion has it."""
    motion = get_motion(env, command)
    return _reward(gm.quat_angle(motion.asked_quat[:, motion.anchor], motion.body_quat[:, motion.anchor]).square(), std)


def motion_body_pos_exp(env: ManagerBasedRlEnv, command: str, std: float) -> Tensor:
    """For bodies that are where the motion has them around the anchor."""
    motion = get_motion(env, command)
    return _reward((motion.near_pos - motion.body_pos).square().sum(dim=-1), std)


def motion_body_ori_exp(env: ManagerBasedRlEnv, command: str, std: float) -> Tensor:
    """For bodies that are turned as the motion has them around the anchor."""
    motion = get_motion(env, command)
    return _reward(gm.quat_angle(motion.near_quat, motion.body_quat).square(), std)


def motion_body_lin_vel_exp(env: ManagerBasedRlEnv, command: str, std: float) -> Tensor:
    """For bodies that move as those of the motion."""
    motion = get_motion(env, command)
    return _reward((motion.asked_lin_vel - motion.body_lin_vel).square().sum(dim=-1), std)


def motion_body_ang_vel_exp(env: ManagerBasedRlEnv, command: str, std: float) -> Tensor:
    """For bodies that turn as those of the motion."""
    motion = get_motion(env, command)
    return _reward((motion.asked_ang_vel - motion.body_ang_vel).square().sum(dim=-1), std)


# -- ends


def motion_ended(env: ManagerBasedRlEnv, command: str) -> Tensor:
    """The motion is over."""
    return get_motion(env, command).ended


def motion_anchor_too_far(env: ManagerBasedRlEnv, command: str, distance: float, schedule: str | None = None) -> Tensor:
    """The anchor is higher or lower than the motion has it by more than `distance`, m, times a schedule's share."""
    motion = get_motion(env, command)
    away = motion.asked_pos[:, motion.anchor, 2] - motion.body_pos[:, motion.anchor, 2]
    return away.abs() > distance * env.schedules.share(schedule)


def motion_anchor_tilted(env: ManagerBasedRlEnv, command: str, limit: float, schedule: str | None = None) -> Tensor:
    """The vertical component of the anchor's z axis differs from the motion's by more than `limit`."""
    motion = get_motion(env, command)

    def upright(quat: Tensor) -> Tensor:
        return 1.0 - 2.0 * (quat[:, 1].square() + quat[:, 2].square())

    away = upright(motion.asked_quat[:, motion.anchor]) - upright(motion.body_quat[:, motion.anchor])
    return away.abs() > limit * env.schedules.share(schedule)


def motion_end_effector_too_far(
    env: ManagerBasedRlEnv, command: str, distance: float, schedule: str | None = None
) -> Tensor:
    """A hand or a foot is higher or lower than the motion has it by more than `distance`, m."""
    motion = get_motion(env, command)
    away = (motion.asked_pos[..., 2] - motion.body_pos[..., 2])[:, motion.end_effectors]
    return (away.abs() > distance * env.schedules.share(schedule)).any(dim=1)


# -- events


def reset_to_motion(
    env: ManagerBasedRlEnv,
    env_ids: EnvIds,
    command: str,
    pose_range: dict[str, tuple[float, float]] | None = None,
    velocity_range: dict[str, tuple[float, float]] | None = None,
    joint_range: tuple[float, float] = (0.0, 0.0),
    schedule: str | None = None,
) -> None:
    """Begin an episode on the motion, where its `sampling` says, more or less: by axis as in `reset_root_uniform`.

    `joint_range` is added to every joint, rad, within its limits. A schedule says how much of all that there is.
    """
    motion, share = get_motion(env, command), env.schedules.share(schedule)
    frames = motion.draw_start(env_ids)
    pose, velocity = (share * sample_axes(env, len(frames), span or {}) for span in (pose_range, velocity_range))
    count = frames.shape[0], motion.num_joints
    motion.put(env_ids, frames, pose, velocity, share * gm.uniform(*joint_range, count, env.rng, env.dtype))


class MotionWrench:
    """A hand that carries the root along the motion while a robot learns, and lets go: of mode `step`, with a schedule
    to zero."""

    def __init__(self, cfg: EventTermCfg, env: ManagerBasedRlEnv) -> None:
        self.holds = False
        """Whether a wrench acts."""

    def __call__(
        self,
        env: ManagerBasedRlEnv,
        env_ids: EnvIds,
        schedule: str,
        command: str,
        force: tuple[float, float] = (400.0, 40.0),
        torque: tuple[float, float] = (200.0, 8.0),
        limits: tuple[float, float] = (200.0, 60.0),
        asset: Selection = ROBOT,
    ) -> None:
        """`force`: N/m and N·s/m, `torque`: N·m/rad and N·m·s/rad; at most `limits`, N and N·m."""
        share = env.schedules.share(schedule)
        if share == 0.0 and not self.holds:
            return
        self.holds = share != 0.0
        entity, asked = asset.entity, get_motion(env, command).root_state
        push = force[0] * (asked[:, :3] - entity.root_pos_w) + force[1] * (asked[:, 7:10] - entity.root_lin_vel_w)
        away = gm.quat_mul(asked[:, 3:7], gm.quat_conjugate(entity.root_quat_w))
        axis = 2.0 * away[:, 1:] * away[:, :1].sign()  # of twice the sine of half the angle
        turn = torque[0] * axis + torque[1] * (asked[:, 10:] - entity.root_ang_vel_w)
        wrench = [_at_most(part, limit) * share for part, limit in zip((push, turn), limits, strict=True)]
        env.scene.engine.write_wrench(wrench[0][:, None], wrench[1][:, None], entity.body_ids[:1], None)


def _at_most(vectors: Tensor, length: float) -> Tensor:
    return vectors * (length / vectors.norm(dim=1, keepdim=True).clamp(min=1e-9)).clamp(max=1.0)


# -- metrics


def motion_error(env: ManagerBasedRlEnv, command: str, kind: MotionError) -> Tensor:
    """How far the robot is from the motion."""
    return get_motion(env, command).errors[kind]
