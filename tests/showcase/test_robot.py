"""The hand against the published data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from genelab.scene import Scene, SceneCfg
from genelab.sim import SimulationCfg
from genelab_showcase.gestures import FIST, OK_SIGN, Pose
from genelab_showcase.robots.wuji_hand import FINGERS, JOINTS, Side, wuji_hand_cfg, wuji_hand_spec
from tests.published import check_places_and_masses

BODIES: dict[str, Any] = json.loads((Path(__file__).parent / "published" / "wuji_hand.json").read_text())["bodies"]
FACTS = {body["joint"]["name"]: body["joint"] for body in BODIES.values() if "joint" in body}


def test_every_body_is_as_published() -> None:
    model = wuji_hand_spec().compile()
    check_places_and_masses(model, BODIES, turned=1e-6)
    assert model.body_mass.sum() == pytest.approx(0.6228, abs=1e-6)


def test_every_joint_is_as_published() -> None:
    model = wuji_hand_spec().compile()
    assert [model.joint(i).name for i in range(model.njnt)] == list(FACTS) == list(JOINTS)
    for body, fact in ((name, body["joint"]) for name, body in BODIES.items() if "joint" in body):
        joint = model.joint(fact["name"])
        assert model.body(int(joint.bodyid[0])).name == body
        np.testing.assert_allclose(joint.axis, fact["axis"], atol=1e-9)
        np.testing.assert_allclose(joint.range, fact["range"], atol=1e-9)
        assert joint.armature[0] == fact["armature"]


def test_the_inertia_is_that_of_the_capsule_that_is_seen() -> None:
    """Published are masses only. A capsule of the middle finger: 21.2 g, 29.5 mm between the centres of its ends."""
    body = wuji_hand_spec().compile().body("middle_finger_middle")
    mass, radius, length = 0.0212, 0.009, 0.0295
    tube, ball = radius**2 * length, 4 / 3 * radius**3
    tube, ball = mass * tube / (tube + ball), mass * ball / (tube + ball)
    along = tube * radius**2 / 2 + ball * 2 / 5 * radius**2
    across = tube * (radius**2 / 4 + length**2 / 12)
    across += ball * (2 / 5 * radius**2 + length**2 / 4 + 3 / 8 * length * radius)
    np.testing.assert_allclose(sorted(body.inertia), sorted([along, across, across]), rtol=1e-6)
    np.testing.assert_allclose(body.ipos, [0.0, 0.0, -length / 2], atol=1e-9)


def test_fingers_are_capsules_and_the_palm_a_box() -> None:
    model = wuji_hand_spec().compile()
    solid = np.flatnonzero(model.geom_contype)
    assert len(solid) == 21
    assert model.geom("palm").size.tolist() == [0.04, 0.015, 0.04]
    fingers = [i for i in solid if model.geom_type[i] == mujoco.mjtGeom.mjGEOM_CAPSULE]
    assert len(fingers) == 20
    assert (model.geom_size[fingers, 0] == 0.009).all()


@pytest.mark.parametrize("side", ["right", "left"])
def test_servos_and_limits_reach_the_compiled_model(side: Side) -> None:
    scene = Scene(SceneCfg(entities={"robot": wuji_hand_cfg(side)}), SimulationCfg())
    model = scene.engine.model
    assert model.nu == 20
    for name, fact in FACTS.items():
        actuator = model.actuator(f"robot/{name}")
        assert actuator.gainprm[0] == 0.8
        assert actuator.biasprm[:3].tolist() == [0.0, -0.8, -0.04]
        assert actuator.forcerange.tolist() == [-fact["effort"], fact["effort"]]
    scene.engine.close()


def in_pose(model: mujoco.MjModel, pose: np.ndarray) -> mujoco.MjData:
    data = mujoco.MjData(model)
    data.qpos[:] = pose
    mujoco.mj_forward(model, data)
    return data


def angles(pose: Pose) -> np.ndarray:
    return np.concatenate([pose[finger] for finger in FINGERS])


def tip(model: mujoco.MjModel, data: mujoco.MjData, finger: str) -> np.ndarray:
    return data.site_xpos[model.site(f"{finger}_tip").id]


def test_the_left_hand_is_the_right_one_in_a_mirror() -> None:
    right, left = wuji_hand_spec("right").compile(), wuji_hand_spec("left").compile()
    np.testing.assert_array_equal(left.jnt_range, right.jnt_range)
    np.testing.assert_array_equal(left.body_mass, right.body_mass)
    rng = np.random.default_rng(0)
    for _ in range(5):
        pose = rng.uniform(right.jnt_range[:, 0], right.jnt_range[:, 1])
        one, other = in_pose(right, pose), in_pose(left, pose)
        for seen in ("site_xpos", "geom_xpos", "xipos"):
            np.testing.assert_allclose(getattr(other, seen), getattr(one, seen) * (-1, 1, 1), atol=1e-7)


def test_no_shape_touches_another_in_the_open_hand() -> None:
    model = wuji_hand_spec().compile()
    assert in_pose(model, np.zeros(20)).ncon == 0


def test_fingers_point_away_from_the_wrist_and_close_towards_the_palm() -> None:
    model = wuji_hand_spec().compile()
    opened, closed = in_pose(model, np.zeros(20)), in_pose(model, angles(FIST))
    for finger in FINGERS[1:]:
        assert tip(model, opened, finger)[2] < -0.14
        assert tip(model, closed, finger)[2] > -0.09
        assert tip(model, closed, finger)[1] > 0.01  # in front of the palm, which faces +y
    assert tip(model, opened, "thumb")[0] > 0.09  # to the side


def test_in_the_ok_sign_thumb_and_index_finger_meet() -> None:
    model = wuji_hand_spec().compile()
    data = in_pose(model, angles(OK_SIGN))
    assert np.linalg.norm(tip(model, data, "thumb") - tip(model, data, "index_finger")) < 0.03
    assert np.linalg.norm(tip(model, data, "thumb") - tip(model, data, "middle_finger")) > 0.08
