"""The models against the published data of the robots."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from genelab.scene import Articulation, PlaneCfg, Scene, SceneCfg
from genelab.scene.names import resolve_values
from genelab.sim import SimulationCfg
from genelab.sim.mujoco_engine import MujocoEngine
from genelab_unitree.go2w import STANCE, STANCE_HEIGHT
from genelab_unitree.robots import g1, go1, go2w
from genelab_unitree.robots.g1 import MOTORS
from tests.published import check_bodies

ROBOTS = {"go1": (go1.go1_spec, go1.go1_cfg), "g1": (g1.g1_spec, g1.g1_cfg), "go2w": (go2w.go2w_spec, go2w.go2w_cfg)}


def published(name: str) -> dict[str, Any]:
    return json.loads((Path(__file__).parent / "published" / f"{name}.json").read_text())


@pytest.mark.parametrize("name", ROBOTS)
def test_every_body_is_as_published(name: str) -> None:
    model, facts = ROBOTS[name][0]().compile(), published(name)
    check_bodies(model, facts["bodies"])
    for body_name, fact in facts["bodies"].items():
        if "joint" in fact:
            joint = model.joint(fact["joint"]["name"])
            assert model.body(int(joint.bodyid[0])).name == body_name
            np.testing.assert_allclose(joint.axis, fact["joint"]["axis"], atol=1e-9)
            assert bool(model.jnt_limited[joint.id]) is (fact["joint"]["range"] is not None)
            np.testing.assert_allclose(joint.range, fact["joint"]["range"] or (0.0, 0.0), atol=1e-9)


@pytest.mark.parametrize("name", ROBOTS)
def test_shapes_that_collide_are_as_published(name: str) -> None:
    model, facts = ROBOTS[name][0]().compile(), published(name)
    kinds = {
        kind: getattr(mujoco.mjtGeom, f"mjGEOM_{kind.upper()}") for kind in ("box", "sphere", "cylinder", "capsule")
    }
    for body_name, fact in facts["bodies"].items():
        body = model.body(body_name)
        geoms = range(int(body.geomadr[0]), int(body.geomadr[0] + body.geomnum[0])) if body.geomnum[0] else ()
        colliding = [i for i in geoms if model.geom_contype[i]]
        shapes = fact.get("shapes", [])
        assert len(colliding) == len(shapes), body_name
        for i, (kind, size, pos) in zip(colliding, shapes, strict=True):
            assert model.geom_type[i] == kinds[kind]
            np.testing.assert_allclose(model.geom_size[i][: len(size)], size, atol=1e-9)
            np.testing.assert_allclose(model.geom_pos[i], pos, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "mass", "rounding", "joints"),
    [("go1", 12.743, 5e-4, 12), ("g1", 33.341, 5e-4, 29), ("go2w", 19.712, 2e-3, 16)],
)
def test_total_mass_and_joints(name: str, mass: float, rounding: float, joints: int) -> None:
    """The published masses of the Go2-W add up to 1.6 g less than the published sum."""
    model = ROBOTS[name][0]().compile()
    assert model.body_mass.sum() == pytest.approx(mass, abs=rounding)
    assert model.njnt == joints + 1


@pytest.mark.parametrize("name", ROBOTS)
def test_no_shape_touches_another_in_the_default_pose(name: str) -> None:
    scene = Scene(SceneCfg(entities={"robot": ROBOTS[name][1]()}), SimulationCfg())
    scene.reset(None)
    assert isinstance(scene.engine, MujocoEngine)
    model = scene.engine.model
    data = mujoco.MjData(model)
    data.qpos[:] = scene.engine.qpos[0].numpy()
    mujoco.mj_forward(model, data)
    assert data.ncon == 0


@pytest.mark.parametrize(
    ("name", "seconds", "height"),
    [
        # Legs of two links of 0.213 m at 0.9 rad on feet of 0.023 m reach 0.288 m; servos of 25 N·m/rad yield under
        # 31 N a leg, and the trunk comes to rest 7 cm lower.
        ("go1", 4.0, 0.216),
        # Two ankles of 28.5 N·m/rad against 33 kg at 0.7 m, 230 N·m/rad: no humanoid stands on such servos for long.
        ("g1", 0.5, 0.734),
    ],
)
def test_it_stands_in_its_default_pose(name: str, seconds: float, height: float) -> None:
    scene = Scene(SceneCfg(entities={"robot": ROBOTS[name][1]()}, terrain=PlaneCfg()), SimulationCfg(dt=0.005))
    scene.reset(None)
    for _ in range(round(seconds / 0.02)):
        scene.step(4)
    robot = scene.articulation("robot")
    assert robot.root_pos_w[0, 2].item() == pytest.approx(height, abs=0.01)
    assert robot.projected_gravity_b[0, 2].item() < -math.cos(math.radians(12.0))
    scene.engine.close()


@pytest.mark.parametrize(
    ("motor", "armature", "stiffness", "damping", "scale"),
    [
        ("5020", 0.003610, 14.251, 0.9072, 0.4386),
        ("7520_14", 0.010178, 40.179, 2.5579, 0.5475),
        ("7520_22", 0.025102, 99.098, 6.3088, 0.3507),
        ("4010", 0.004250, 16.778, 1.0681, 0.0745),
        ("2x5020", 0.007219, 28.501, 1.8144, 0.4386),
    ],
)
def test_gains_follow_from_the_motors(
    motor: str, armature: float, stiffness: float, damping: float, scale: float
) -> None:
    data = MOTORS[motor][0]
    assert data.armature == pytest.approx(armature, abs=1e-6)
    assert data.stiffness == pytest.approx(stiffness, abs=2e-3)
    assert data.damping == pytest.approx(damping, abs=1e-4)
    assert data.action_scale == pytest.approx(scale, abs=1e-4)


def test_gains_reach_the_compiled_model() -> None:
    scene = Scene(SceneCfg(entities={"robot": g1.g1_cfg()}, terrain=PlaneCfg()), SimulationCfg())
    robot, model = scene.articulation("robot"), scene.engine.model
    knee = model.actuator("robot/left_knee_joint")
    assert knee.gainprm[0] == pytest.approx(99.098, abs=2e-3)
    assert list(knee.forcerange) == [-139.0, 139.0]
    assert model.joint("robot/left_knee_joint").armature[0] == pytest.approx(0.025102, abs=1e-6)
    assert sum(len(actuator.joint_names) for actuator in robot.actuators.values()) == 29
    scene.engine.close()


def rolling(lock_wheels: bool = False) -> Iterator[Articulation]:
    """Control steps of a Go2-W that stands for a second on legs that aim where they must, then is to roll."""
    cfg = go2w.go2w_cfg(lock_wheels=lock_wheels)
    scene = Scene(SceneCfg(entities={"robot": cfg}, terrain=PlaneCfg()), SimulationCfg(dt=0.005))
    scene.reset(None)
    robot = scene.articulation("robot")
    legs = robot.find_joints(go2w.LEGS)
    aim = torch.tensor(resolve_values(STANCE, [robot.joint_names[i] for i in legs], "stance"))
    for step in range(200):
        robot.joint_pos_target[:, legs] = robot.default_joint_pos[:, legs] + aim
        robot.joint_vel_target[:, robot.find_joints(go2w.WHEELS)] = min(max(step - 50, 0) * 0.2, 5.0)
        scene.step(4)
        yield robot


def test_wheels_roll_and_grip() -> None:
    """It stands where its stance aims, and at 5 rad/s on a radius of 0.086 m it goes 0.43 m/s, upright; each wheel has
    one contact or two."""
    contacts, speeds = set(), []
    for step, robot in enumerate(rolling()):
        assert isinstance(robot.engine, MujocoEngine)
        if step == 49:
            assert robot.root_pos_w[0, 2].item() == pytest.approx(STANCE_HEIGHT, abs=0.025)
        if step >= 25:
            contacts.add(standing_contacts(robot.engine))
        if step >= 100:  # the trunk swings on soft legs
            speeds.append(torch.cat((robot.root_lin_vel_b[0], robot.joint_vel[0, robot.find_joints(go2w.WHEELS)])))
    mean = torch.stack(speeds).mean(dim=0)
    assert mean[:2].tolist() == pytest.approx([0.43, 0.0], abs=0.02)
    assert mean[3:].tolist() == pytest.approx([5.0] * 4, abs=0.1)
    assert robot.projected_gravity_b[0, 2].item() < -math.cos(math.radians(6.0))
    assert contacts <= set(range(4, 9))


def standing_contacts(engine: MujocoEngine) -> int:
    data = mujoco.MjData(engine.model)
    data.qpos[:] = engine.qpos[0].numpy()
    mujoco.mj_forward(engine.model, data)
    return data.ncon


def test_wheels_that_are_locked_are_feet() -> None:
    *_, robot = rolling(lock_wheels=True)
    assert robot.actuators["wheels"].drive() == {
        "stiffness": [0.0] * 4,
        "damping": [20.0] * 4,
        "effort_limit": [50.0] * 4,
    }


def test_the_gains_of_a_go2w_are_the_published_ones() -> None:
    robot = next(rolling())
    drives = {name: actuator.drive() for name, actuator in robot.actuators.items()}
    assert drives["hips"] == {"stiffness": [25.0] * 8, "damping": [0.5] * 8, "effort_limit": [23.7] * 8}
    assert drives["knees"] == {"stiffness": [25.0] * 4, "damping": [0.5] * 4, "effort_limit": [45.43] * 4}
    assert drives["wheels"] == {"stiffness": [0.0] * 4, "damping": [5.0] * 4, "effort_limit": [50.0] * 4}


@pytest.mark.parametrize("turn", [0.0, 0.4])
def test_the_feet_of_the_g1_touch_each_other_on_coarse_soles_where_they_do_on_fine_ones(turn: float) -> None:
    def gap(sole: tuple[int, ...]) -> float:
        """How far apart its ankles are when, legs closing in the air, its feet meet."""
        model = g1.g1_spec(sole).compile()
        data = mujoco.MjData(model)
        feet = [model.body(f"{side}_ankle_roll_link").id for side in ("left", "right")]
        for roll in np.arange(0.0, 0.5, 0.002):
            for side, sign in (("left", -1.0), ("right", 1.0)):
                data.joint(f"{side}_hip_roll_joint").qpos[0] = sign * roll
                data.joint(f"{side}_ankle_roll_joint").qpos[0] = -sign * roll
            data.joint("left_hip_yaw_joint").qpos[0] = turn
            mujoco.mj_forward(model, data)
            if any(sorted(model.geom_bodyid[list(one.geom)]) == sorted(feet) for one in data.contact):
                return float(np.linalg.norm(data.xpos[feet[0]] - data.xpos[feet[1]]))
        raise AssertionError("the feet never met")

    assert gap(g1.COARSE_SOLE) == pytest.approx(gap(g1.SOLE), abs=0.002)


@pytest.mark.parametrize(("sole", "contacts"), [(g1.SOLE, 28), (g1.COARSE_SOLE, 8)])
def test_a_g1_stands_on_the_capsules_of_its_soles_alone(sole: tuple[int, ...], contacts: int) -> None:
    spec = g1.g1_spec(sole)
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=(1.0, 1.0, 0.1))
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    lowest = min(
        float(data.geom(f"{side}_foot_{n}_collision").xpos[2]) for side in ("left", "right") for n in g1.COARSE_SOLE
    )
    data.qpos[2] -= lowest - 0.0095  # half a millimetre into the ground
    mujoco.mj_forward(model, data)
    assert data.ncon == contacts
