"""Entities: where they start, what they read, what can be written."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from genelab.errors import ConfigError
from genelab.scene import (
    Articulation,
    ArticulationCfg,
    HeightFieldCfg,
    IdealPdActuatorCfg,
    InitialStateCfg,
    RigidObjectCfg,
    Scene,
    mjcf_file,
    mjcf_text,
)
from genelab.sim import ModelError

HALF = math.sqrt(0.5)
YAW_90 = (HALF, 0.0, 0.0, HALF)
ROLL_90 = (HALF, HALF, 0.0, 0.0)

# A floating base with two joints, as unnamed as MJCF allows.
FLOATER = """
<mujoco>
  <worldbody>
    <body name="base" pos="7 8 9">
      <freejoint/>
      <geom type="box" size=".2 .1 .05" mass="3"/>
      <body name="arm" pos=".3 0 0">
        <joint name="shoulder" axis="0 1 0" range="0 120"/>
        <geom size=".05" mass=".5"/>
        <body name="hand" pos=".2 0 0">
          <joint name="wrist" axis="0 1 0"/>
          <geom size=".05" mass=".5"/>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
READINGS = (
    *("joint_pos", "joint_vel", "joint_acc", "joint_effort"),
    *("body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w"),
    *("root_pos_w", "root_quat_w", "root_lin_vel_w", "root_ang_vel_w", "root_lin_vel_b", "root_ang_vel_b"),
    *("projected_gravity_b", "heading_w"),
)
CART = """
<mujoco>
  <worldbody>
    <body name="rail" pos="0 0 1">
      <geom size=".1" mass="1"/>
      <body name="cart" pos=".5 0 0">
        <joint name="slide" type="slide" axis="1 0 0"/>
        <geom size=".1" mass="1"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def floater(**state: Any) -> ArticulationCfg:
    motor = IdealPdActuatorCfg(joint_names=("shoulder",))
    return ArticulationCfg(
        spec=mjcf_text,
        spec_args={"xml": FLOATER},
        init_state=InitialStateCfg(**state),
        actuators={"shoulder": motor},
        soft_joint_pos_limit_factor=0.75,
    )


def cart(**state: Any) -> RigidObjectCfg:
    return RigidObjectCfg(spec=mjcf_text, spec_args={"xml": CART}, init_state=InitialStateCfg(**state))


def flat(height: float) -> np.ndarray:
    return np.full((3, 3), height)


def test_a_body_with_an_unnamed_free_joint_is_free(make_scene: Callable[..., Scene]) -> None:
    robot = make_scene({"robot": floater()})["robot"]
    assert not robot.is_fixed_base
    assert robot.joint_names == ["shoulder", "wrist"]
    assert robot.body_names == ["base", "arm", "hand"]


def test_unnamed_parts_get_names_that_are_not_taken(make_scene: Callable[..., Scene]) -> None:
    xml = """
    <mujoco><worldbody>
      <body>
        <joint/>
        <geom size=".1"/>
        <body name="body1"><joint name="joint2"/><joint axis="1 0 0"/><geom size=".1"/></body>
      </body>
    </worldbody></mujoco>
    """
    entity = make_scene({"thing": RigidObjectCfg(spec=mjcf_text, spec_args={"xml": xml})})["thing"]
    assert entity.body_names == ["body2", "body1"]
    assert entity.joint_names == ["joint1", "joint2", "joint3"]


def test_a_fixed_root_stands_at_its_initial_pose(make_scene: Callable[..., Scene]) -> None:
    entity = make_scene({"cart": cart(pos=(1.0, 2.0, 0.0), rot=YAW_90)})["cart"]
    assert entity.is_fixed_base
    assert entity.root_pos_w[3].tolist() == pytest.approx([1.0, 2.0, 1.0])
    assert entity.root_quat_w[3].tolist() == pytest.approx(YAW_90)
    assert entity.body_pos_w[3, 1].tolist() == pytest.approx([1.0, 2.5, 1.0])  # the cart, half a metre along y
    assert entity.root_lin_vel_w[3].tolist() == entity.root_ang_vel_b[3].tolist() == [0.0, 0.0, 0.0]
    for write in (entity.write_root_pose, entity.write_root_velocity, entity.add_root_velocity):
        with pytest.raises(
            ConfigError, match=r"^'cart' is fixed to the world: its root (pose|velocity) cannot be set$"
        ):
            write(torch.zeros(4, 7), None)


def test_the_default_state_is_the_initial_one_above_the_environments_origin(make_scene: Callable[..., Scene]) -> None:
    robot = floater(
        pos=(1.0, 2.0, 3.0),
        rot=ROLL_90,
        lin_vel=(0.1, 0.2, 0.3),
        ang_vel=(0.0, 0.0, 2.0),
        joint_pos={"shoulder": 0.5},
        joint_vel={".*": 0.25},
    )
    scene = make_scene({"robot": robot}, terrain=HeightFieldCfg(heights=flat, heights_args={"height": 0.5}))
    entity = scene["robot"]
    assert scene.env_origins.tolist() == [[0.0, 0.0, 0.5]] * 4
    for env in range(4):
        assert entity.root_pos_w[env].tolist() == pytest.approx([1.0, 2.0, 3.5])
        assert entity.root_quat_w[env].tolist() == pytest.approx(ROLL_90)
        assert entity.root_lin_vel_w[env].tolist() == pytest.approx([0.1, 0.2, 0.3])
        assert entity.root_ang_vel_w[env].tolist() == pytest.approx([0.0, 0.0, 2.0])
        assert entity.root_ang_vel_b[env].tolist() == pytest.approx([0.0, 2.0, 0.0])
        assert entity.joint_pos[env].tolist() == [0.5, 0.0]
        assert entity.joint_vel[env].tolist() == [0.25, 0.25]


def test_a_quaternion_need_not_be_a_unit_one(make_scene: Callable[..., Scene]) -> None:
    entities = {"robot": floater(rot=(1.0, 1.0, 0.0, 0.0)), "cart": cart(rot=(1.0, 1.0, 0.0, 0.0))}
    scene = make_scene(entities)
    for entity in scene.entities.values():
        assert entity.root_quat_w[0].tolist() == pytest.approx(ROLL_90)
        assert entity.projected_gravity_b[0].tolist() == pytest.approx([0.0, -1.0, 0.0])


def test_joints_not_named_start_where_the_model_has_them(make_scene: Callable[..., Scene]) -> None:
    xml = CART.replace('type="slide"', 'type="slide" ref=".4"')
    entity = make_scene({"cart": RigidObjectCfg(spec=mjcf_text, spec_args={"xml": xml})})["cart"]
    assert entity.default_joint_pos.tolist() == [[0.4]]
    assert entity.joint_pos.tolist() == [[0.4]] * 4


def test_only_the_environments_of_a_reset_go_back(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene({"robot": floater(pos=(0.0, 0.0, 1.0), joint_pos={"wrist": 0.5})})
    robot = scene.articulation("robot")
    robot.write_joint_state(torch.full((4, 2), 0.25), None, None)
    for target in (robot.joint_pos_target, robot.joint_vel_target, robot.joint_effort_target):
        target[:] = 9.0
    scene.reset(torch.tensor([0, 2]))
    assert robot.joint_pos.tolist() == [[0.0, 0.5], [0.25, 0.25], [0.0, 0.5], [0.25, 0.25]]
    assert robot.joint_pos_target.tolist() == [[0.0, 0.5], [9.0, 9.0], [0.0, 0.5], [9.0, 9.0]]
    assert robot.joint_vel_target[:, 0].tolist() == [0.0, 9.0, 0.0, 9.0]
    assert robot.joint_effort_target[:, 1].tolist() == [0.0, 9.0, 0.0, 9.0]


def test_root_velocity_is_written_in_the_world_and_read_in_both_frames(make_scene: Callable[..., Scene]) -> None:
    entity = make_scene({"robot": floater()})["robot"]
    some = torch.tensor([1, 2])
    entity.write_root_pose(torch.tensor([[0.0, 0.0, 0.0, *YAW_90]], dtype=torch.float64).repeat(2, 1), some)
    velocity = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]], dtype=torch.float64).repeat(2, 1)
    entity.write_root_velocity(velocity, some)
    entity.engine.refresh()
    assert entity.root_lin_vel_w[1].tolist() == pytest.approx([1.0, 2.0, 3.0])
    assert entity.root_ang_vel_w[1].tolist() == pytest.approx([4.0, 5.0, 6.0])
    # The root's x axis is the world's y, its y axis the world's −x.
    assert entity.root_lin_vel_b[2].tolist() == pytest.approx([2.0, -1.0, 3.0])
    assert entity.root_ang_vel_b[2].tolist() == pytest.approx([5.0, -4.0, 6.0])
    assert entity.root_lin_vel_w[0].tolist() == entity.root_ang_vel_w[3].tolist() == [0.0, 0.0, 0.0]
    # The engine's own reading of the same body agrees.
    assert entity.body_lin_vel_w[1, 0].tolist() == pytest.approx([1.0, 2.0, 3.0])
    assert entity.body_ang_vel_w[1, 0].tolist() == pytest.approx([4.0, 5.0, 6.0])


def test_a_push_adds_to_the_velocity_in_the_world(make_scene: Callable[..., Scene]) -> None:
    entity = make_scene({"robot": floater()})["robot"]
    pose = torch.tensor([[0.0, 0.0, 0.0, *YAW_90]], dtype=torch.float64).repeat(4, 1)
    velocity = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]], dtype=torch.float64).repeat(4, 1)
    entity.write_root_state(pose, velocity, None)
    assert entity.root_ang_vel_b[1].tolist() == pytest.approx([5.0, -4.0, 6.0])  # the new pose's frame
    push = torch.tensor([[0.5, 0.0, -3.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
    entity.add_root_velocity(push, torch.tensor([2]))
    assert entity.root_lin_vel_w[2].tolist() == pytest.approx([1.5, 2.0, 0.0])
    assert entity.root_ang_vel_w[2].tolist() == pytest.approx([5.0, 5.0, 6.0])
    assert entity.root_ang_vel_w[1].tolist() == pytest.approx([4.0, 5.0, 6.0])


def test_joints_relative_to_the_default_pose(make_scene: Callable[..., Scene]) -> None:
    robot = make_scene({"robot": floater(joint_pos={"wrist": 0.5})}).articulation("robot")
    robot.write_joint_state(torch.full((4, 2), 0.75), torch.full((4, 2), 0.25), None)
    assert robot.joint_pos_rel[3].tolist() == [0.75, 0.25]
    assert robot.joint_vel_rel[3].tolist() == [0.25, 0.25]


def test_gravity_and_heading_in_the_roots_frame(make_scene: Callable[..., Scene]) -> None:
    entity = make_scene({"robot": floater()})["robot"]
    poses = torch.zeros(4, 7, dtype=torch.float64)
    turns = [(1.0, 0.0, 0.0, 0.0), YAW_90, ROLL_90, (HALF, 0.0, HALF, 0.0)]
    poses[:, 3:] = torch.tensor(turns, dtype=torch.float64)
    entity.write_root_pose(poses, None)
    down = entity.projected_gravity_b
    assert down[0].tolist() == pytest.approx([0.0, 0.0, -1.0])
    assert down[1].tolist() == pytest.approx([0.0, 0.0, -1.0])
    assert down[2].tolist() == pytest.approx([0.0, -1.0, 0.0])
    assert down[3].tolist() == pytest.approx([1.0, 0.0, 0.0])  # nose down
    assert entity.heading_w[:3].tolist() == pytest.approx([0.0, math.pi / 2, 0.0])


def test_some_joints_of_some_environments(make_scene: Callable[..., Scene]) -> None:
    entity = make_scene({"robot": floater()})["robot"]
    column = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    entity.write_joint_state(column, -column, torch.tensor([1, 3]), torch.tensor([1]))
    assert entity.joint_pos.tolist() == [[0.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 2.0]]
    assert entity.joint_vel.tolist() == [[0.0, 0.0], [0.0, -1.0], [0.0, 0.0], [0.0, -2.0]]
    entity.write_joint_state(None, column[:1].repeat(4, 2), None)
    assert entity.joint_pos[3].tolist() == [0.0, 2.0]
    assert entity.joint_vel[3].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("precision", [32, 64])
def test_what_was_read_stays_as_it_was(make_scene: Callable[..., Scene], precision: int) -> None:
    scene = make_scene({"robot": floater(pos=(0.0, 0.0, 1.0), ang_vel=(1.0, 2.0, 3.0))}, precision=precision)
    robot = scene.articulation("robot")
    robot.joint_effort_target[:, 0] = 1.0
    scene.step(2)
    kept = {name: getattr(robot, name) for name in READINGS}
    copies = {name: value.clone() for name, value in kept.items()}
    robot.joint_effort_target[:, 0] = -1.0
    scene.step(5)
    robot.write_root_pose(robot.default_root_pose.repeat(4, 1), None)
    for name in READINGS:
        assert torch.equal(kept[name], copies[name]), name
        assert not torch.equal(getattr(robot, name), copies[name]), name


def test_limits_hard_and_soft(make_scene: Callable[..., Scene]) -> None:
    robot = make_scene({"robot": floater()})["robot"]
    assert isinstance(robot, Articulation)
    full = math.radians(120)
    assert robot.joint_pos_limits.flatten().tolist() == pytest.approx([0.0, full, -math.inf, math.inf])
    # Three quarters of the range about its middle.
    assert robot.soft_joint_pos_limits.flatten().tolist() == pytest.approx(
        [full / 8, full * 7 / 8, -math.inf, math.inf]
    )


def test_names_that_are_not_there(make_scene: Callable[..., Scene]) -> None:
    entity = make_scene({"robot": floater()})["robot"]
    assert entity.find_joints("wrist") == [1]
    assert entity.find_bodies(("hand", "base")) == [0, 2]
    with pytest.raises(ConfigError, match=r"^robot joint: nothing is called 'writs'\. Did you mean 'wrist'\?$"):
        entity.find_joints("writs")
    with pytest.raises(ConfigError, match=r"^robot body: nothing is called 'wrist'"):
        entity.find_bodies("wrist")
    with pytest.raises(ConfigError, match=r"^robot joint: nothing is called 'elbow'"):
        make_scene({"robot": floater(joint_pos={"elbow": 1.0})})


def test_models_that_are_none(make_scene: Callable[..., Scene], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"^no MJCF file at '.*nowhere.xml'$"):
        mjcf_file(str(tmp_path / "nowhere.xml"))
    with pytest.raises(ModelError, match=r"^the MJCF text is not a valid model: .*bodi") as error:
        mjcf_text("<mujoco><worldbody><bodi/></worldbody></mujoco>")
    assert "\n" not in str(error.value)
    crowd = '<mujoco><worldbody><replicate count="1000000"><geom size=".1"/></replicate></worldbody></mujoco>'
    with pytest.raises(ModelError, match=r"^the MJCF text asks for 1000000 copies of parts, more than 100000$"):
        mjcf_text(crowd)
    with pytest.raises(ModelError, match=r"^the model of 'robot' has no body$"):
        make_scene({"robot": RigidObjectCfg(spec=mjcf_text, spec_args={"xml": "<mujoco/>"})})


def test_a_model_from_a_file(make_scene: Callable[..., Scene], tmp_path: Path) -> None:
    path = tmp_path / "cart.xml"
    path.write_text(CART)
    entity = make_scene({"cart": RigidObjectCfg(spec=mjcf_file, spec_args={"path": str(path)})})["cart"]
    assert entity.body_names == ["rail", "cart"]
