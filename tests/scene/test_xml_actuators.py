"""The actuators and keyframes that a model's own file has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco
import pytest
import torch

from genelab.envs import ManagerBasedEnv, ManagerBasedEnvCfg
from genelab.errors import ConfigError
from genelab.mdp import JointEffortActionCfg, JointPositionActionCfg
from genelab.scene import (
    ArticulationCfg,
    ImplicitPdActuatorCfg,
    InitialStateCfg,
    Scene,
    SceneCfg,
    XmlActuatorCfg,
    mjcf_text,
)

ARM = """
<mujoco>
  <option gravity="0 0 0" timestep="0.005" integrator="implicitfast"/>
  <worldbody>
    <body name="base" pos="0 0 .4">
      <freejoint/>
      <geom size=".2" mass="4"/>
      {links}
    </body>
  </worldbody>
  <actuator>
    <position name="servo" joint="a" kp="20" kv="2" ctrlrange="-1 1" forcerange="-3 3"/>
    <velocity name="wheel" joint="b" kv="4" gear="2"/>
    <motor name="motor" joint="c" gear="50" ctrlrange="-1 1"/>
    <general joint="d" gainprm="3" biastype="affine" biasprm="1 -2 0"/>
    <intvelocity joint="e" kp="10" actrange="-2 2"/>
  </actuator>
  <keyframe>
    <key name="home" qpos="0 0 1 0 1 0 0  .1 .2 .3 .4 .5 .6"/>
  </keyframe>
</mujoco>
""".format(
    links="".join(
        f"<body name='link_{name}' pos='{i / 2} 0 0'><joint name='{name}' axis='0 1 0' damping='.1'/>"
        "<geom type='capsule' fromto='0 0 0 0 0 .3' size='.02' mass='.5'/></body>"
        for i, name in enumerate("abcdef", start=1)
    )
)


def arm(actuators: dict[str, Any], **state: Any) -> ArticulationCfg:
    return ArticulationCfg(
        spec=mjcf_text, spec_args={"xml": ARM}, actuators=actuators, init_state=InitialStateCfg(**state)
    )


def test_the_files_actuators_move_the_joints_as_they_do_alone(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene({"robot": arm({"own": XmlActuatorCfg()})}, num_envs=1)
    robot = scene.articulation("robot")
    assert robot.actuators["own"].joint_names == ["a", "b", "c", "d", "e"]
    # In units of the joints: 0.5 rad, 1 rad/s, 5 N·m; what has any other law is given its control.
    robot.joint_pos_target[:, 0] = 0.5
    robot.joint_vel_target[:, 1] = 1.0
    robot.joint_effort_target[:, 2], robot.joint_effort_target[:, 3] = 5.0, 0.7
    robot.joint_vel_target[:, 4] = -0.5
    model = mujoco.MjModel.from_xml_string(ARM)
    data = mujoco.MjData(model)
    data.ctrl[:] = [0.5, 2.0, 0.1, 0.7, -0.5]
    scene.step(40)
    mujoco.mj_step(model, data, 40)
    assert robot.joint_pos[0].tolist() == pytest.approx(data.qpos[7:].tolist(), abs=1e-12)
    assert robot.joint_effort[0].tolist() == pytest.approx([*(data.actuator_force * [1, 2, 50, 1, 1]), 0.0])


def test_what_they_follow_and_their_gains(make_scene: Callable[..., Scene]) -> None:
    robot = make_scene({"robot": arm({"own": XmlActuatorCfg()})}).articulation("robot")
    own = robot.actuators["own"]
    assert [own.follows(i)[0] for i in range(5)] == ["position", "velocity", "effort", "effort", "velocity"]
    drive = own.drive()
    assert drive["stiffness"] == [20.0, 0.0, 0.0, 0.0, 10.0]
    assert drive["damping"] == [2.0, 16.0, 0.0, 0.0, 0.0]  # through a gear of 2
    assert drive["effort_limit"][:3] == [3.0, float("inf"), 50.0]
    stiffness, damping = own.gains()
    assert (stiffness[0].tolist(), damping[0].tolist()) == (drive["stiffness"], drive["damping"])
    with pytest.raises(ConfigError, match=r"^robot: no gains to set: c, d have motors in the model's file$"):
        own.set_gains(stiffness, damping, None)


def test_gains_of_servos_can_be_changed(make_scene: Callable[..., Scene]) -> None:
    servos = XmlActuatorCfg(joint_names=("a", "b"), effort_limit=1.0, armature=0.5)
    scene = make_scene({"robot": arm({"own": servos})})
    own, model = scene.articulation("robot").actuators["own"], scene.engine.model
    own.set_gains(torch.full((4, 2), 8.0), torch.full((4, 2), 4.0), None)
    assert [gain[0].tolist() for gain in own.gains()] == [[8.0, 8.0], [4.0, 4.0]]
    assert scene.engine.get_model_field("actuator_gainprm")[0, :2, 0].tolist() == [8.0, 1.0]
    assert model.actuator_forcerange[:2].tolist() == [[-1.0, 1.0], [-0.5, 0.5]]  # 1 N·m through a gear of 2
    assert model.dof_armature[6:9].tolist() == [0.5, 0.5, 0.0]


def test_some_are_taken_over_and_others_replaced(make_scene: Callable[..., Scene]) -> None:
    servo = ImplicitPdActuatorCfg(joint_names=("a",), stiffness=7.0, damping=1.0)
    scene = make_scene({"robot": arm({"own": XmlActuatorCfg(joint_names=("b", "c")), "servo": servo})})
    robot = scene.articulation("robot")
    assert scene.engine.model.nu == 5
    assert robot.actuators["servo"].drive()["stiffness"] == [7.0]
    assert robot.actuators["own"].joint_names == ["b", "c"]
    with pytest.raises(ConfigError, match=r"^robot: two actuators drive the joint 'a'$"):
        make_scene({"robot": arm({"own": XmlActuatorCfg(), "servo": servo})})
    with pytest.raises(ConfigError, match=r"has no actuator on f; it has on: a, b, c, d, e$"):
        make_scene({"robot": arm({"own": XmlActuatorCfg(joint_names=("f",))})})


def test_an_action_of_another_kind_is_refused_joint_by_joint() -> None:
    scene = SceneCfg(entities={"robot": arm({"own": XmlActuatorCfg(joint_names=("a", "c"))})})
    cfg = ManagerBasedEnvCfg(scene=scene, actions={"joints": JointPositionActionCfg(joint_names=("a", "c"))})
    with pytest.raises(ConfigError, match=r"position targets: a follows position, c follows effort$"):
        ManagerBasedEnv(cfg)
    cfg.actions = {
        "arm": JointPositionActionCfg(joint_names=("a",)),
        "motor": JointEffortActionCfg(joint_names=("c",), scale=50.0),
    }
    env = ManagerBasedEnv(cfg)
    env.reset(seed=0)
    env.step(torch.tensor([[0.2, 0.5]]))
    assert env.scene.engine.ctrl[0].tolist() == pytest.approx([0.2, 0.0, 0.5, 0.0, 0.0])
    env.close()


def test_a_keyframe_is_where_episodes_start(make_scene: Callable[..., Scene]) -> None:
    robot = make_scene({"robot": arm({}, keyframe="home")})["robot"]
    assert robot.root_pos_w[0].tolist() == [0.0, 0.0, 1.0]
    assert robot.root_quat_w[0].tolist() == [0.0, 1.0, 0.0, 0.0]
    assert robot.joint_pos[0].tolist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    state = {"keyframe": "home", "pos": (1.0, 0.0, 2.0), "joint_pos": {"[ab]": 0.0}}
    robot = make_scene({"robot": arm({}, **state)})["robot"]
    assert robot.root_pos_w[0].tolist() == [1.0, 0.0, 2.0]
    assert robot.joint_pos[0].tolist() == [0.0, 0.0, 0.3, 0.4, 0.5, 0.6]
    assert make_scene({"robot": arm({})})["robot"].root_pos_w[0].tolist() == [0.0, 0.0, 0.4]  # where the model has it
    with pytest.raises(ConfigError, match=r"has no keyframe 'hoem'; it has home\. Did you mean 'home'\?$"):
        make_scene({"robot": arm({}, keyframe="hoem")})
