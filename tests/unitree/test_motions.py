"""The G1's own motions, and how key poses become them."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genelab.errors import UsageError
from genelab.motion import Clip, Kinematics
from genelab_unitree.motions import CLIPS, FPS, SHIPPED, STANCE, Key, Solver, frames_of, keys_of, make, rows_of
from genelab_unitree.robots.g1 import g1_spec


@cache
def g1() -> Kinematics:
    return Kinematics(g1_spec().compile())


@cache
def clip(name: str) -> Clip:
    return g1().read(CLIPS / f"{name}.npz")


@pytest.mark.parametrize("name", SHIPPED)
def test_a_motion_begins_and_ends_standing_in_one_place_and_is_never_fast(name: str) -> None:
    motion = clip(name)
    assert motion.fps == FPS
    np.testing.assert_allclose(motion.joint_pos[0], motion.joint_pos[-1], atol=1e-2)
    np.testing.assert_allclose(motion.root_pos[0], motion.root_pos[-1], atol=1e-2)
    assert np.abs(np.diff(motion.joint_pos, axis=0)).max() * FPS < 8.0  # rad/s
    low, high = g1().model.jnt_range[g1().joints].T
    assert (motion.joint_pos > low).all()
    assert (motion.joint_pos < high).all()


def test_the_dance_lasts_between_20_and_30_seconds() -> None:
    assert 20.0 < clip("dance").seconds < 30.0
    assert all(5.0 < clip(name).seconds < 10.0 for name in SHIPPED if name != "dance")


def test_feet_that_stand_stay_where_they_are() -> None:
    motion = g1().motion(clip("squat"))
    for side, sign in (("left", 1.0), ("right", -1.0)):
        foot = motion.body_names.index(f"{side}_ankle_roll_link")
        place = motion.body_pos_w[:, foot]
        np.testing.assert_allclose(place[:, :2], np.tile([0.0, sign * STANCE], (len(place), 1)), atol=1e-3)
        np.testing.assert_allclose(np.abs(motion.body_quat_w[:, foot, 0]), 1.0, atol=1e-5)  # level
    pelvis = motion.body_pos_w[:, 0, 2]
    assert (pelvis.max(), pelvis.min()) == (pytest.approx(0.74, abs=2e-3), pytest.approx(0.53, abs=2e-3))


def test_from_key_to_key_with_minimum_jerk() -> None:
    frames = frames_of([Key(), Key(seconds=1.0, height=0.54, weight=1.0)])
    assert len(frames) == 51
    heights = [frames[i].height for i in (0, 25, 50)]
    assert heights == pytest.approx([0.74, 0.64, 0.54])
    assert frames[10].weight == pytest.approx(10 * 0.2**3 - 15 * 0.2**4 + 6 * 0.2**5)


def test_rows_change_what_they_name_and_do_other_motions_mirrored() -> None:
    source: dict[str, list[dict[str, Any]]] = {
        "step": [{"seconds": 1.0, "weight": -1.0, "torso": [1, 2, 3], "left_foot": [0, 0, 0.1, 0]}],
        "walk": [
            {"do": "step", "mirrored": True},
            {"seconds": 0.5, "arms": [1, 2, 3, 4]},
            {"seconds": 1, "stand": True},
        ],
    }
    _, step, arms, stand = keys_of("walk", source)
    assert (step.weight, step.torso, step.right_foot) == (1.0, (1, -2, -3), (0, 0, 0.1, 0))
    assert step.left_foot == Key().left_foot
    assert (arms.left_arm, arms.right_arm, arms.weight) == ((1, 2, 3, 4), (1, 2, 3, 4), 1.0)
    assert stand == Key(seconds=1)


def test_what_is_misspelt_is_told() -> None:
    with pytest.raises(UsageError, match=r"a key pose has no 'hight'. Did you mean 'height'\?"):
        keys_of("a", {"a": [{"seconds": 1.0, "hight": 0.5}]})
    with pytest.raises(UsageError, match="no motion is called 'b'"):
        list(rows_of("a", {"a": [{"do": "b"}]}))


def test_a_motion_is_made_anew_bit_for_bit() -> None:
    source = tomllib.loads((CLIPS / "motions.toml").read_text(encoding="utf-8"))
    data, line = make("wave", source, Solver())
    assert data == Path(CLIPS / "wave.npz").read_bytes()
    assert line.startswith("wave: 5.20 s, feet within 0.00 mm")
