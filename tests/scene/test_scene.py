"""Entities, ground and sensors in one world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from genelab.errors import ConfigError
from genelab.scene import (
    ActuatorCfg,
    ArticulationCfg,
    ContactSensorCfg,
    FrameSensorCfg,
    HeightFieldCfg,
    IdealPdActuatorCfg,
    ImplicitPdActuatorCfg,
    InitialStateCfg,
    PlaneCfg,
    RigidObjectCfg,
    Scene,
    mjcf_text,
)
from genelab.sim import SolverCfg

LEG = """
<mujoco>
  <worldbody>
    <body name="base">
      <freejoint/>
      <geom name="trunk" type="box" size=".2 .1 .1" mass="3"/>
      <body name="leg" pos="0 0 -.2">
        <joint name="hip" axis="0 1 0" range="-90 90" damping=".1"/>
        <geom name="shin" type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass=".5"/>
      </body>
    </body>
  </worldbody>
  <contact><exclude body1="base" body2="leg"/></contact>
  <keyframe><key name="home" qpos="0 0 1 1 0 0 0 .3"/></keyframe>
</mujoco>
"""
CRATE = """
<mujoco><worldbody><body name="base"><geom name="trunk" type="box" size=".2 .2 .2"/></body></worldbody></mujoco>
"""


def leg(*actuators: ActuatorCfg, **state: Any) -> ArticulationCfg:
    return ArticulationCfg(
        spec=mjcf_text,
        spec_args={"xml": LEG},
        init_state=InitialStateCfg(**state),
        actuators={f"drive{i}": actuator for i, actuator in enumerate(actuators)},
    )


def crate() -> RigidObjectCfg:
    return RigidObjectCfg(spec=mjcf_text, spec_args={"xml": CRATE})


def test_each_entity_has_its_own_names(make_scene: Callable[..., Scene]) -> None:
    servo = ImplicitPdActuatorCfg(joint_names=("hip",), stiffness=10.0, damping=1.0)
    scene = make_scene({"robot": leg(servo), "robot2": leg(), "crate": crate()}, terrain=PlaneCfg())
    model = scene.engine.model
    bodies = [model.body(i).name for i in range(model.nbody)]
    assert bodies == ["world", "robot/base", "robot/leg", "robot2/base", "robot2/leg", "crate/base"]
    assert model.actuator(0).name == "robot/hip"
    assert [model.geom(i).name for i in range(3)] == ["terrain", "robot/trunk", "robot/shin"]
    assert scene["robot2"].body_names == ["base", "leg"]
    assert scene["robot"].body_ids.tolist() == [1, 2]
    assert scene["robot2"].body_ids.tolist() == [3, 4]
    assert scene["crate"].body_ids.tolist() == [5]


def test_entities_read_and_write_their_own_part_of_the_state(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene({"one": leg(pos=(0.0, 0.0, 1.0)), "two": leg(pos=(0.0, 0.0, 2.0), joint_pos={"hip": 0.5})})
    scene["one"].write_joint_state(torch.full((4, 1), -0.25), None, None)
    assert scene["one"].joint_pos.tolist() == [[-0.25]] * 4
    assert scene["two"].joint_pos.tolist() == [[0.5]] * 4
    assert scene["two"].root_pos_w[:, 2].tolist() == [2.0] * 4


@pytest.mark.parametrize(("damping", "tolerance"), [(0.0, 1e-12), (0.5, 0.02)])
def test_an_explicit_pd_moves_like_the_implicit_one(
    make_scene: Callable[..., Scene], damping: float, tolerance: float
) -> None:
    """Exactly without damping; with it to a few percent of the way, for only one integrates it implicitly."""
    paths = []
    for kind in (ImplicitPdActuatorCfg, IdealPdActuatorCfg):
        robot = leg(kind(joint_names=("hip",), stiffness=10.0, damping=damping), joint_pos={"hip": 0.3})
        scene = make_scene({"robot": robot}, dt=0.002, gravity=(0.0, 0.0, 0.0), solver=SolverCfg(tolerance=1e-12))
        scene.articulation("robot").joint_pos_target[:, 0] = torch.tensor([-0.5, 0.0, 0.5, 1.0])
        path = []
        for _ in range(50):
            scene.step(4)
            path.append(scene["robot"].joint_pos[:, 0])
        paths.append(torch.stack(path))
    implicit, explicit = paths
    assert implicit.std() > 0.1
    assert (implicit - explicit).abs().max() < tolerance


def test_the_worlds_mjcf_compiles_in_plain_mujoco(make_scene: Callable[..., Scene]) -> None:
    servo = ImplicitPdActuatorCfg(joint_names=("hip",), stiffness=10.0, damping=1.0, effort_limit=7.0, armature=0.25)
    scene = make_scene(
        {"robot": leg(servo), "crate": crate()},
        terrain=HeightFieldCfg(heights=np.full, heights_args={"shape": (3, 5), "fill_value": 0.5}, friction=0.75),
        sensors={"feet": ContactSensorCfg(entity="robot", bodies=("leg",), other="world")},
        dt=0.002,
        gravity=(0.0, 0.0, -1.62),
    )
    model, again = scene.engine.model, mujoco.MjModel.from_xml_string(scene.spec.to_xml())
    for size in ("nq", "nv", "nu", "nbody", "njnt", "ngeom", "nsensordata", "nhfielddata", "nexclude", "nkey"):
        assert getattr(again, size) == getattr(model, size), size
    assert (model.nq, model.nv, model.nu, model.nkey) == (8, 7, 1, 0)
    assert again.opt.timestep == 0.002
    assert again.opt.gravity[2] == -1.62
    for field in ("body_mass", "jnt_range", "dof_armature", "dof_damping", "actuator_forcerange", "actuator_biasprm"):
        assert getattr(again, field) == pytest.approx(getattr(model, field), abs=1e-5), field
    assert model.jnt_range[1] == pytest.approx([-np.pi / 2, np.pi / 2])  # the leg's MJCF is in degrees
    assert again.geom("terrain").friction[0] == 0.75


def test_a_sensor_on_an_unknown_entity(make_scene: Callable[..., Scene]) -> None:
    message = r"^env\.scene\.sensors\.eye\.entity: no entity is called 'robto'\. Did you mean 'robot'\?$"
    with pytest.raises(ConfigError, match=message):
        make_scene({"robot": leg()}, sensors={"eye": FrameSensorCfg(entity="robto", body="base")})


def test_names_that_are_not_in_the_scene(make_scene: Callable[..., Scene]) -> None:
    sensors = {"eye": FrameSensorCfg(entity="robot", body="base")}
    scene = make_scene({"robot": leg(), "crate": crate()}, sensors=sensors)
    with pytest.raises(ConfigError, match=r"^no entity is called 'robt'\. Did you mean 'robot'\?$"):
        scene["robt"]
    with pytest.raises(ConfigError, match=r"^no sensor is called 'eyes'\. Did you mean 'eye'\?$"):
        scene.sensor("eyes")
    with pytest.raises(ConfigError, match=r"^'crate' is not an articulation$"):
        scene.articulation("crate")


def test_what_cannot_be_built(make_scene: Callable[..., Scene]) -> None:
    with pytest.raises(ConfigError, match=r"^env\.scene\.num_envs: must be at least 1, got 0$"):
        make_scene({"robot": leg()}, num_envs=0)
    with pytest.raises(ConfigError, match=r"^an entity's name has no slash: 'my/robot'$"):
        make_scene({"my/robot": leg()})
