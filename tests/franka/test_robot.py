"""The model against the published data of the arm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from genelab.scene import PlaneCfg, Scene, SceneCfg
from genelab.sim import SimulationCfg
from genelab_franka.robots.panda import panda_cfg, panda_spec
from tests.published import check_bodies, rotation

PUBLISHED: dict[str, Any] = json.loads((Path(__file__).parent / "published" / "panda.json").read_text())


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    scene = Scene(SceneCfg(entities={"robot": panda_cfg()}, terrain=PlaneCfg()), SimulationCfg())
    scene.reset(None)
    yield scene
    scene.engine.close()


def test_every_body_is_as_published() -> None:
    model = panda_spec().compile()
    check_bodies(model, PUBLISHED["bodies"])
    assert model.body_mass.sum() == pytest.approx(PUBLISHED["total_mass"], abs=5e-4)


def test_every_joint_is_as_published() -> None:
    model = panda_spec().compile()
    kinds = {"hinge": mujoco.mjtJoint.mjJNT_HINGE, "slide": mujoco.mjtJoint.mjJNT_SLIDE}
    facts = {name: body["joint"] for name, body in PUBLISHED["bodies"].items() if "joint" in body}
    assert model.njnt == len(facts) == 9
    for body, fact in facts.items():
        joint = model.joint(fact["name"])
        assert model.body(int(joint.bodyid[0])).name == body
        assert joint.type[0] == kinds[fact["type"]]
        np.testing.assert_allclose(joint.axis, fact["axis"], atol=1e-9)
        np.testing.assert_allclose(joint.range, fact["range"], atol=1e-9)
        assert joint.armature[0] == fact["armature"]
        assert joint.damping[0] == fact["damping"]


def test_the_hand_touches_with_the_published_shapes() -> None:
    model = panda_spec().compile()
    for name, fact in PUBLISHED["bodies"].items():
        if "shapes" not in fact:
            continue  # the links' shapes are ours
        start, count = int(model.body(name).geomadr[0]), int(model.body(name).geomnum[0])
        colliding = [i for i in range(start, start + count) if model.geom_contype[i]]
        assert len(colliding) == len(fact["shapes"])
        for i, (kind, size, pos, quat) in zip(colliding, fact["shapes"], strict=True):
            assert (
                model.geom_type[i] == {"box": mujoco.mjtGeom.mjGEOM_BOX, "capsule": mujoco.mjtGeom.mjGEOM_CAPSULE}[kind]
            )
            np.testing.assert_allclose(model.geom_size[i][: len(size)], size, atol=1e-9)
            np.testing.assert_allclose(model.geom_pos[i], pos, atol=1e-9)
            np.testing.assert_allclose(rotation(model.geom_quat[i]), rotation(quat), atol=1e-5)


def test_every_link_can_touch() -> None:
    model = panda_spec().compile()
    touching = {model.body(int(model.geom_bodyid[i])).name for i in range(model.ngeom) if model.geom_contype[i]}
    assert touching == set(PUBLISHED["bodies"])


@pytest.mark.parametrize("fingers", [0.0, 0.04])
def test_no_shape_touches_another_in_the_neutral_pose(scene: Scene, fingers: float) -> None:
    data = mujoco.MjData(scene.engine.model)
    data.qpos[:] = scene.engine.qpos[0].numpy()
    data.qpos[7:9] = fingers
    mujoco.mj_forward(scene.engine.model, data)
    assert data.ncon == 0


def test_neighbours_never_touch() -> None:
    """Whatever the pose, of two links that a joint connects, and of shapes that overlap by construction."""
    model = panda_spec().compile()
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    seen = dict.fromkeys(range(model.nbody), 0)
    for _ in range(500):
        data.qpos[:] = rng.uniform(model.jnt_range[:, 0], model.jnt_range[:, 1])
        mujoco.mj_forward(model, data)
        for first, second in {tuple(sorted(model.geom_bodyid[pair])) for pair in data.contact.geom}:
            assert second - first > 1
            seen[int(second)] += 1
    assert max(seen.values()) < 0.15 * 500  # what remains are collisions that the pose makes


def test_gains_and_limits_reach_the_compiled_model(scene: Scene) -> None:
    model = scene.engine.model
    for joint, effort in PUBLISHED["effort"].items():
        actuator = model.actuator(f"robot/{joint}")
        assert list(actuator.forcerange) == [-effort, effort]
        own = PUBLISHED["bodies"][joint.replace("joint", "link")]["joint"]["damping"]
        assert (-actuator.biasprm[2] + own) / actuator.gainprm[0] == pytest.approx(0.1)  # s, for every joint
    for joint in ("finger_joint1", "finger_joint2"):
        assert model.actuator(f"robot/{joint}").gainprm[0] == 800.0
        assert list(model.actuator(f"robot/{joint}").forcerange) == [-100.0, 100.0]


def test_in_the_neutral_pose_the_hand_points_down(scene: Scene) -> None:
    robot = scene.articulation("robot")
    hand = robot.find_bodies("hand")[0]
    scene.engine.refresh()
    assert robot.body_pos_w[0, hand].tolist() == pytest.approx([0.638, 0.0, 0.302], abs=1e-3)
    z_axis = rotation(robot.body_quat_w[0, hand].numpy())[:, 2]
    np.testing.assert_allclose(z_axis, [0.0, 0.0, -1.0], atol=1e-6)
