"""Rates, turns and forward kinematics, by numbers that can be checked by hand."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest

from genelab.errors import UsageError
from genelab.motion import Clip, Kinematics, cut, resample, smooth


def clip_of(joint_pos: np.ndarray, fps: float = 10.0, yaw: np.ndarray | None = None, x: float = 0.0) -> Clip:
    """Joints, a heading over time, and a root that moves along x, m/s."""
    count = len(joint_pos)
    half = (np.zeros(count) if yaw is None else yaw) / 2
    quat = np.stack((np.cos(half), 0 * half, 0 * half, np.sin(half)), axis=1)
    place = np.stack((x * np.arange(count) / fps, 0 * half, 1 + 0 * half), axis=1)
    return Clip(fps=fps, root_pos=place, root_quat=quat, joint_pos=joint_pos)


def test_bodies_are_where_the_joints_put_them(arm: Kinematics) -> None:
    motion = arm.motion(clip_of(np.tile([0.0, math.pi / 2], (3, 1))))
    assert motion.body_names == ("base", "upper", "lower")
    np.testing.assert_allclose(motion.body_pos_w[0], [[0.0, 0.0, 1.0], [0.0, 0.0, 1.1], [1.0, 0.0, 1.1]], atol=1e-12)
    np.testing.assert_allclose(motion.body_quat_w[0, 2], [math.sqrt(0.5), 0, 0, math.sqrt(0.5)], atol=1e-12)


def test_velocities_follow_from_the_frames(arm: Kinematics) -> None:
    """The base turns by 2 rad/s and moves by 3 m/s; the lower link, a metre ahead, moves to the side besides."""
    still = np.zeros((5, 2))
    motion = arm.motion(clip_of(still, fps=100.0, yaw=2.0 * np.arange(5) / 100.0, x=3.0))
    np.testing.assert_allclose(motion.body_ang_vel_w[:, 2], np.tile([0, 0, 2.0], (5, 1)), atol=1e-9)
    np.testing.assert_allclose(motion.body_lin_vel_w[:, 0], np.tile([3.0, 0, 0], (5, 1)), atol=1e-9)
    np.testing.assert_allclose(motion.body_lin_vel_w[0, 2], [3.0, 2.0, 0.0], atol=1e-9)


def test_joint_velocities_are_central_differences(arm: Kinematics) -> None:
    angles = np.array([0.0, 0.1, 0.4, 0.9])
    motion = arm.motion(clip_of(np.stack((angles, 0 * angles), axis=1)))
    np.testing.assert_allclose(motion.joint_vel[:, 0], [1.0, 2.0, 4.0, 5.0])


def test_another_rate_blends_evenly() -> None:
    clip = clip_of(np.array([[0.0, 0.0], [0.2, -0.2]]), yaw=np.array([0.0, 1.0]))
    doubled = resample(clip, 20.0)
    assert len(doubled) == 3
    np.testing.assert_allclose(doubled.joint_pos[1], [0.1, -0.1])
    np.testing.assert_allclose(doubled.root_quat[1], [math.cos(0.25), 0, 0, math.sin(0.25)])


def test_a_turn_goes_the_shorter_way() -> None:
    """Two quaternions of opposite sign are the same rotation: nothing turns between them."""
    clip = clip_of(np.zeros((2, 2)))
    clip.root_quat[1] *= -1
    np.testing.assert_allclose(np.abs(resample(clip, 40.0).root_quat), np.tile([1.0, 0, 0, 0], (5, 1)), atol=1e-12)


def test_a_rate_that_does_not_divide_the_time_ends_before_the_end() -> None:
    clip = clip_of(np.arange(8.0)[:, None].repeat(2, axis=1), fps=60.0)  # 7/60 s
    slower = resample(clip, 50.0)  # 6 frames are 5/50 s
    assert len(slower) == 6
    np.testing.assert_allclose(slower.joint_pos[:, 0], 1.2 * np.arange(6))
    with pytest.raises(UsageError, match="are one frame"):
        resample(clip, 5.0)


def test_cutting_keeps_both_ends() -> None:
    clip = clip_of(np.arange(11.0)[:, None].repeat(2, axis=1))
    part = cut(clip, 0.2, 0.5)
    assert part.joint_pos[:, 0].tolist() == [2.0, 3.0, 4.0, 5.0]
    assert cut(clip, None, None).joint_pos.shape == clip.joint_pos.shape
    for start, end in ((0.5, 0.5), (None, 1.1), (2.0, None)):
        with pytest.raises(UsageError, match=r"there is no motion from .*: it lasts 1.000 s"):
            cut(clip, start, end)


def test_smoothing_leaves_half_the_power_of_its_frequency_and_no_delay() -> None:
    time = np.arange(400) / 100.0
    wave = np.sin(2 * math.pi * 5.0 * time)
    smoothed = smooth(clip_of(np.stack((wave, time), axis=1), fps=100.0), 5.0).joint_pos
    inner = slice(100, 300)
    np.testing.assert_allclose(smoothed[inner, 0], math.sqrt(0.5) * wave[inner], atol=2e-3)
    np.testing.assert_allclose(smoothed[:, 1], time, atol=1e-9)  # a straight line stays, to its ends


def test_a_robot_that_is_fixed_has_no_motion() -> None:
    model = mujoco.MjSpec.from_string("<mujoco><worldbody><body name='a'><geom size='1'/></body></worldbody></mujoco>")
    with pytest.raises(UsageError, match="has no free joint"):
        Kinematics(model.compile())
