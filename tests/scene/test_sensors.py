"""Sensors against numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from genelab.errors import ConfigError
from genelab.scene import (
    ContactSensor,
    ContactSensorCfg,
    FrameSensor,
    FrameSensorCfg,
    HeightFieldCfg,
    HeightScan,
    HeightScanCfg,
    ImuSensor,
    ImuSensorCfg,
    InitialStateCfg,
    PlaneCfg,
    RigidObjectCfg,
    Scene,
    mjcf_text,
)
from genelab.sim import ModelError

HALF = math.sqrt(0.5)
YAW_90 = (HALF, 0.0, 0.0, HALF)
ROLL_90 = (HALF, HALF, 0.0, 0.0)

BOX = """
<mujoco><worldbody>
  <body name="box"><freejoint/><geom type="box" size=".1 .1 .1" mass="2"/></body>
</worldbody></mujoco>
"""
BALL = """
<mujoco><worldbody><body name="ball"><freejoint/><geom size=".1" mass="1"/></body></worldbody></mujoco>
"""
# Two balls that a sideways slide brings together; a third, out of reach, is the tree's root.
PINCHER = """
<mujoco><worldbody>
  <body name="palm">
    <geom size=".02" mass="1" contype="0" conaffinity="0"/>
    <body name="left" pos="-.2 0 0"><joint name="left" type="slide" axis="1 0 0"/><geom size=".1" mass="1"/></body>
    <body name="right" pos=".2 0 0"><joint name="right" type="slide" axis="1 0 0"/><geom size=".1" mass="1"/></body>
  </body>
</worldbody></mujoco>
"""
# Two arms that slide along y and can press on the trunk between them from both sides.
HUGGER = """
<mujoco>
  <worldbody>
    <body name="trunk">
      <geom type="box" size=".1 .1 .1" mass="1"/>
      <body pos="0 .15 0"><joint name="left" type="slide" axis="0 1 0"/><geom size=".05" mass="1"/></body>
      <body pos="0 -.15 0"><joint name="right" type="slide" axis="0 1 0"/><geom size=".05" mass="1"/></body>
    </body>
  </worldbody>
  <actuator><motor name="left" joint="left"/><motor name="right" joint="right"/></actuator>
</mujoco>
"""
ARM = """
<mujoco><worldbody>
  <body name="post" pos="0 0 1">
    <geom size=".1" mass="1"/>
    <body name="arm" pos="0 0 .5"><joint name="turn" axis="0 0 1"/><geom size=".05" pos=".3 0 0" mass="1"/></body>
  </body>
</worldbody></mujoco>
"""


def thing(xml: str, **state: Any) -> RigidObjectCfg:
    return RigidObjectCfg(spec=mjcf_text, spec_args={"xml": xml}, init_state=InitialStateCfg(**state))


def contact(scene: Scene, name: str) -> ContactSensor:
    sensor = scene.sensor(name)
    assert isinstance(sensor, ContactSensor)
    return sensor


# -- contact


def test_the_ground_carries_the_weight(make_scene: Callable[..., Scene]) -> None:
    sensors = {"box": ContactSensorCfg(entity="box", bodies=("box",))}
    scene = make_scene({"box": thing(BOX, pos=(0.0, 0.0, 0.1))}, terrain=PlaneCfg(), sensors=sensors)
    scene.step(400)
    sensor = contact(scene, "box")
    assert sensor.force_w.shape == (4, 1, 3)
    assert sensor.force_w[0, 0].tolist() == pytest.approx([0.0, 0.0, 2 * 9.81], abs=1e-3)
    assert sensor.count.tolist() == [[4.0]] * 4
    assert sensor.touching.tolist() == [[True]] * 4


def test_a_reading_is_made_once_per_state(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(
        {"box": RigidObjectCfg(spec=mjcf_text, spec_args={"xml": BOX}, init_state=InitialStateCfg(pos=(0, 0, 0.1)))},
        terrain=PlaneCfg(),
        sensors={
            "ground": ContactSensorCfg(entity="box", bodies=("box",)),
            "frame": FrameSensorCfg(entity="box", body="box"),
        },
    )
    frame = scene.sensor("frame")
    assert isinstance(frame, FrameSensor)
    readers = [(contact(scene, "ground"), "touching"), (frame, "ang_vel_b"), (scene["box"], "projected_gravity_b")]
    before = [getattr(reader, name) for reader, name in readers]
    assert all(getattr(reader, name) is value for (reader, name), value in zip(readers, before, strict=True))
    scene.step(1)
    assert not any(getattr(reader, name) is value for (reader, name), value in zip(readers, before, strict=True))


def test_other_leaves_out_all_but_one_partner(make_scene: Callable[..., Scene]) -> None:
    sensors = {
        "any": ContactSensorCfg(entity="low", bodies=("box",)),
        "ground": ContactSensorCfg(entity="low", bodies=("box",), other="world"),
        "top": ContactSensorCfg(entity="low", bodies=("box",), other="high/box"),
        "tree_on_ground": ContactSensorCfg(entity="low", bodies=("box",), other="world", subtree=True),
        "high_on_ground": ContactSensorCfg(entity="high", bodies=("box",), other="world", subtree=True),
    }
    entities = {"low": thing(BOX, pos=(0.0, 0.0, 0.1)), "high": thing(BOX, pos=(0.0, 0.0, 0.3))}
    scene = make_scene(entities, terrain=PlaneCfg(), sensors=sensors)
    scene.step(600)
    up = {name: contact(scene, name).force_w[0, 0, 2].item() for name in sensors}
    weight = 2 * 9.81
    assert up["ground"] == up["tree_on_ground"] == pytest.approx(2 * weight, abs=1e-2)
    assert up["top"] == pytest.approx(-weight, abs=1e-2)
    assert up["any"] == pytest.approx(weight, abs=1e-2)
    assert up["high_on_ground"] == 0.0
    assert [contact(scene, name).count[0].item() for name in sensors] == [8.0, 4.0, 4.0, 4.0, 0.0]


def test_a_subtree_against_itself_is_self_collision(make_scene: Callable[..., Scene]) -> None:
    palm: dict[str, Any] = {"bodies": ("palm",), "entity": "hand"}
    sensors = {
        "self": ContactSensorCfg(**palm, other="hand/palm", subtree=True),
        "palm": ContactSensorCfg(**palm),
        "fingers": ContactSensorCfg(entity="hand", bodies=("right", "left"), other="hand/left"),
    }
    scene = make_scene({"hand": thing(PINCHER, pos=(0.0, 0.0, 1.0))}, sensors=sensors)
    closed = torch.zeros(4, 2, dtype=torch.float64)
    closed[1:3] = torch.tensor([0.11, -0.11])  # 0.02 of overlap
    scene["hand"].write_joint_state(closed, None, None)
    scene.step(1)
    assert contact(scene, "self").count.flatten().tolist() == [0.0, 1.0, 1.0, 0.0]
    assert contact(scene, "self").touching.flatten().tolist() == [False, True, True, False]
    assert contact(scene, "palm").count.flatten().tolist() == [0.0] * 4
    fingers = contact(scene, "fingers")
    assert fingers.body_names == ["left", "right"]  # in the order of the model
    assert fingers.count[1].tolist() == [0.0, 1.0]  # the left does not touch the left
    assert fingers.force_w[1, 1, 0].item() > 1.0  # pushed to the right


def test_self_collision_from_both_sides_does_not_cancel(make_scene: Callable[..., Scene]) -> None:
    sensor = ContactSensorCfg(entity="robot", bodies=("trunk",), other="robot/trunk", subtree=True, threshold=10.0)
    scene = make_scene({"robot": thing(HUGGER, pos=(0.0, 0.0, 1.0))}, sensors={"self": sensor})
    pushes = torch.tensor([[0.0, 0.0], [-49.0, 0.0], [-49.0, 49.0], [-4.0, 4.0]])
    scene.engine.write_ctrl(pushes, slice(None))
    scene.step(200)
    felt = contact(scene, "self")
    torch.testing.assert_close(felt.force_w[:, 0, 1], pushes.abs().sum(dim=1).double(), rtol=1e-4, atol=1e-4)
    assert felt.force_w[:, 0, [0, 2]].abs().max() < 1e-6
    assert felt.count[:, 0].tolist()[1:] == [1.0, 2.0, 2.0]
    assert felt.touching[:, 0].tolist() == [False, True, True, False]


def test_air_time_over_a_scripted_bounce(make_scene: Callable[..., Scene]) -> None:
    sensors = {"ball": ContactSensorCfg(entity="ball", bodies=("ball",))}
    scene = make_scene({"ball": thing(BALL)}, terrain=PlaneCfg(), sensors=sensors, gravity=(0.0, 0.0, 0.0))
    sensor, ball = contact(scene, "ball"), scene["ball"]
    step_dt = 0.02

    def place(down: str) -> None:
        """A control step in which the environments marked `x` are pressed into the ground and the others float."""
        pose = ball.default_root_pose.repeat(4, 1)
        pose[:, 2] = torch.tensor([0.099 if mark == "x" else 1.0 for mark in down])
        ball.write_root_pose(pose, None)
        ball.write_root_velocity(torch.zeros(4, 6, dtype=torch.float64), None)
        scene.step(1)
        scene.update(step_dt)

    def steps(values: torch.Tensor) -> list[int]:
        counts = values[:, 0] / step_dt
        assert counts.tolist() == pytest.approx(counts.round().tolist())
        return counts.round().int().tolist()

    place("x..x")
    assert steps(sensor.contact_time) == [1, 0, 0, 1]
    assert steps(sensor.air_time) == [0, 1, 1, 0]
    assert sensor.first_contact.flatten().tolist() == [False] * 4  # what was never in the air has not landed
    place("xx..")
    assert sensor.first_contact.flatten().tolist() == [False, True, False, False]
    assert steps(sensor.last_air_time) == [0, 1, 0, 0]
    assert steps(sensor.last_contact_time) == [0, 0, 0, 1]
    place("xx..")
    assert sensor.first_contact.flatten().tolist() == [False] * 4  # only in the step it lands
    place("..xx")
    assert sensor.first_contact.flatten().tolist() == [False, False, True, True]
    assert steps(sensor.last_air_time) == [0, 1, 3, 2]
    assert steps(sensor.last_contact_time) == [3, 2, 0, 1]
    assert steps(sensor.air_time) == [1, 1, 0, 0]
    assert steps(sensor.contact_time) == [0, 0, 1, 1]
    sensor.reset(torch.tensor([0, 3]))
    assert steps(sensor.air_time) == [0, 1, 0, 0]
    assert steps(sensor.contact_time) == [0, 0, 1, 0]
    assert steps(sensor.last_air_time) == [0, 1, 3, 0]
    assert steps(sensor.last_contact_time) == [0, 2, 0, 0]
    assert sensor.first_contact.flatten().tolist() == [False, False, True, False]
    place("xxxx")
    assert sensor.first_contact.flatten().tolist() == [False, True, False, False]


def test_a_touch_is_a_force_above_the_threshold(make_scene: Callable[..., Scene]) -> None:
    sensors = {
        "light": ContactSensorCfg(entity="box", bodies=("box",), threshold=19.0),
        "heavy": ContactSensorCfg(entity="box", bodies=("box",), threshold=20.0),
    }
    scene = make_scene({"box": thing(BOX, pos=(0.0, 0.0, 0.1))}, terrain=PlaneCfg(), sensors=sensors)
    scene.step(400)  # 19.62 N
    assert contact(scene, "light").touching.all()
    assert not contact(scene, "heavy").touching.any()


def test_a_sensor_without_times_has_forces_only(make_scene: Callable[..., Scene]) -> None:
    sensors = {"touch": ContactSensorCfg(entity="box", bodies=("box",), times=False)}
    scene = make_scene({"box": thing(BOX, pos=(0.0, 0.0, 0.1))}, terrain=PlaneCfg(), sensors=sensors)
    sensor = contact(scene, "touch")
    scene.step(200)
    scene.update(0.02)
    sensor.reset(torch.tensor([0]))
    assert sensor.touching.all()
    with pytest.raises(ConfigError, match="the contact sensor 'touch' counts no times: set its `times`"):
        sensor.air_time  # noqa: B018


def test_after_a_reset_the_old_contact_is_gone(make_scene: Callable[..., Scene]) -> None:
    sensors = {"box": ContactSensorCfg(entity="box", bodies=("box",))}
    scene = make_scene({"box": thing(BOX, pos=(0.0, 0.0, 0.5))}, terrain=PlaneCfg(), sensors=sensors)
    scene.step(400)
    scene.reset(torch.tensor([0, 1]))
    scene.engine.refresh()
    assert contact(scene, "box").count.flatten().tolist() == [0.0, 0.0, 4.0, 4.0]
    assert contact(scene, "box").touching.flatten().tolist() == [False, False, True, True]


def test_a_force_that_was_read_before_a_reset_reads_the_same_after_it(make_scene: Callable[..., Scene]) -> None:
    sensors = {"box": ContactSensorCfg(entity="box", bodies=("box",))}
    scene = make_scene({"box": thing(BOX, pos=(0.0, 0.0, 0.1))}, terrain=PlaneCfg(), sensors=sensors)
    scene.step(400)
    before = contact(scene, "box").force_w[1:].clone()
    assert before[:, 0, 2].min() > 19.0  # up
    scene.reset(torch.tensor([0]))
    scene.engine.refresh()
    assert torch.equal(contact(scene, "box").force_w[1:], before)


def test_bodies_that_are_not_there(make_scene: Callable[..., Scene]) -> None:
    with pytest.raises(ConfigError, match=r"^contact sensor 'feet', body: nothing is called 'foot'"):
        make_scene({"box": thing(BOX)}, sensors={"feet": ContactSensorCfg(entity="box", bodies=("foot",))})
    with pytest.raises(ModelError, match=r"^the model does not compile: .*box/foot") as error:
        make_scene(
            {"box": thing(BOX)}, sensors={"s": ContactSensorCfg(entity="box", bodies=("box",), other="box/foot")}
        )
    assert "\n" not in str(error.value)


# -- frame and inertial unit


def test_a_frame_with_offset_and_rotation(make_scene: Callable[..., Scene]) -> None:
    sensors = {
        "tool": FrameSensorCfg(entity="robot", body="arm", pos=(0.5, 0.0, 0.2), rot=ROLL_90),
        "bare": FrameSensorCfg(entity="robot", body="arm"),
        "unnormalised": FrameSensorCfg(entity="robot", body="arm", rot=(3.0, 3.0, 0.0, 0.0)),
    }
    scene = make_scene({"robot": thing(ARM)}, sensors=sensors)
    angle, rate = torch.full((4, 1), math.pi / 2), torch.full((4, 1), 2.0)
    scene["robot"].write_joint_state(angle.double(), rate.double(), None)
    scene.engine.refresh()
    tool = scene.sensor("tool")
    assert isinstance(tool, FrameSensor)
    assert tool.pos_w[0].tolist() == pytest.approx([0.0, 0.5, 1.7], abs=1e-6)
    assert tool.quat_w[0].tolist() == pytest.approx([0.5, 0.5, 0.5, 0.5], abs=1e-6)  # x → y → z → x
    assert tool.ang_vel_w[0].tolist() == pytest.approx([0.0, 0.0, 2.0], abs=1e-6)
    assert tool.lin_vel_w[0].tolist() == pytest.approx([-1.0, 0.0, 0.0], abs=1e-6)
    # The frame's axes x, y, z are the world's y, z, x.
    assert tool.ang_vel_b[0].tolist() == pytest.approx([0.0, 2.0, 0.0], abs=1e-6)
    assert tool.lin_vel_b[0].tolist() == pytest.approx([0.0, 0.0, -1.0], abs=1e-6)
    bare, unnormalised = scene.sensor("bare"), scene.sensor("unnormalised")
    assert isinstance(bare, FrameSensor)
    assert isinstance(unnormalised, FrameSensor)
    assert bare.pos_w[0].tolist() == pytest.approx([0.0, 0.0, 1.5], abs=1e-6)
    assert bare.lin_vel_w[0].tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-6)
    assert bare.quat_w[0].tolist() == pytest.approx(YAW_90, abs=1e-6)
    assert unnormalised.ang_vel_b[0].tolist() == pytest.approx([0.0, 2.0, 0.0], abs=1e-6)


def test_a_frame_is_on_one_body(make_scene: Callable[..., Scene]) -> None:
    with pytest.raises(ConfigError, match=r"^sensor 'eye': '.\*' is 2 bodies, expected one$"):
        make_scene({"robot": thing(ARM)}, sensors={"eye": FrameSensorCfg(entity="robot", body=".*")})


def test_an_accelerometer_at_rest_and_in_free_fall(make_scene: Callable[..., Scene]) -> None:
    sensors = {
        "level": ImuSensorCfg(entity="post", body="post"),
        "rolled": ImuSensorCfg(entity="post", body="post", rot=ROLL_90),
        "falling": ImuSensorCfg(entity="box", body="box", pos=(0.05, 0.0, 0.0), rot=ROLL_90),
    }
    scene = make_scene({"post": thing(ARM), "box": thing(BOX, pos=(0.0, 5.0, 9.0))}, sensors=sensors)
    units = {name: scene.sensor(name) for name in sensors}
    for _ in range(3):
        scene.step(4)
        scene.update(4 * 0.005)
    readings = {}
    for name, unit in units.items():
        assert isinstance(unit, ImuSensor)
        readings[name] = unit.lin_acc_b[0].tolist()
    assert readings["level"] == pytest.approx([0.0, 0.0, 9.81])
    assert readings["rolled"] == pytest.approx([0.0, 9.81, 0.0])  # its y axis points up
    assert readings["falling"] == pytest.approx([0.0, 0.0, 0.0], abs=1e-9)
    rolled = units["rolled"]
    assert isinstance(rolled, ImuSensor)
    assert rolled.projected_gravity_b[0].tolist() == pytest.approx([0.0, -1.0, 0.0])


def test_an_accelerometer_reads_the_mean_of_a_control_step(make_scene: Callable[..., Scene]) -> None:
    unit_cfg = ImuSensorCfg(entity="box", body="box")
    scene = make_scene({"box": thing(BOX, rot=YAW_90)}, sensors={"imu": unit_cfg}, gravity=(0.0, 0.0, 0.0))
    unit, box = scene.sensor("imu"), scene["box"]
    assert isinstance(unit, ImuSensor)
    velocity = torch.zeros(4, 6, dtype=torch.float64)
    velocity[:, 0] = 3.0
    box.write_root_velocity(velocity, None)
    scene.step(4)
    scene.update(0.02)
    assert unit.lin_acc_b[0].tolist() == pytest.approx([0.0, -150.0, 0.0])  # 3 m/s in 0.02 s, along its −y axis
    unit.reset(torch.tensor([1, 2]))  # these are at 3 m/s from their beginning
    assert unit.lin_acc_b[:, 1].tolist() == pytest.approx([-150.0, 0.0, 0.0, -150.0])
    scene.step(4)
    scene.update(0.02)
    assert unit.lin_acc_b.flatten().tolist() == pytest.approx([0.0] * 12)


# -- height scan


def ramp() -> np.ndarray:
    """4 m × 4 m that rise by 0.1 per metre of x and 0.02 per metre of y."""
    axis = np.linspace(-2.0, 2.0, 41)
    return 0.1 * axis[:, None] + 0.02 * axis[None, :]


def scan_over_ramp(make_scene: Callable[..., Scene], rot: tuple[float, ...], **cfg: Any) -> HeightScan:
    body = thing(BOX, pos=(0.3, -0.2, 1.0), rot=rot)
    sensors = {"scan": HeightScanCfg(entity="box", body="box", **cfg)}
    sensor = make_scene({"box": body}, terrain=HeightFieldCfg(heights=ramp), sensors=sensors).sensor("scan")
    assert isinstance(sensor, HeightScan)
    return sensor


def test_a_scan_of_a_ramp_turns_with_the_heading(make_scene: Callable[..., Scene]) -> None:
    scan = scan_over_ramp(make_scene, YAW_90)
    assert scan.num_points == 17 * 11 == 187
    assert scan.distance.shape == (4, 187)
    # Behind on the right, then 0.1 m forward of it, ..., ahead on the left; forward is the world's y.
    spots = {0: (0.8, -1.0), 1: (0.8, -0.9), 17: (0.7, -1.0), 93: (0.3, -0.2), 186: (-0.2, 0.6)}
    for index, (x, y) in spots.items():
        ground = 0.1 * x + 0.02 * y
        assert scan.points_w[2, index].tolist() == pytest.approx([x, y, ground], abs=1e-6)
        assert scan.distance[2, index].item() == pytest.approx(1.0 - ground, abs=1e-6)


def test_a_scan_does_not_tilt(make_scene: Callable[..., Scene]) -> None:
    upright = scan_over_ramp(make_scene, YAW_90)
    pitched = scan_over_ramp(make_scene, (0.9 * HALF, -0.435889894 * HALF, 0.435889894 * HALF, 0.9 * HALF))
    assert torch.allclose(upright.distance, pitched.distance, atol=1e-6)


def test_a_scan_is_clipped(make_scene: Callable[..., Scene]) -> None:
    assert scan_over_ramp(make_scene, YAW_90, max_distance=0.5).distance.unique().tolist() == [0.5]


def test_a_scan_without_terrain_is_over_a_plane(make_scene: Callable[..., Scene]) -> None:
    sensors = {"scan": HeightScanCfg(entity="box", body="box", size=(0.2, 0.1), pos=(0.0, 0.0, 0.25))}
    scan = make_scene({"box": thing(BOX, pos=(0.0, 0.0, 1.0))}, sensors=sensors).sensor("scan")
    assert isinstance(scan, HeightScan)
    assert scan.distance.tolist() == [[1.25] * 6] * 4
