"""A model is the same in the world as it was alone, and what it says globally holds there."""

from __future__ import annotations

import importlib.util
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest

from genelab.errors import ConfigError
from genelab.scene import (
    ArticulationCfg,
    EntityCfg,
    InitialStateCfg,
    RigidObjectCfg,
    Scene,
    XmlActuatorCfg,
    mjcf_file,
    mjcf_text,
    urdf_file,
)
from genelab.scene.incoming import Incoming
from genelab.sim import ModelError, SolverCfg
from genelab.sim.genesis_mapping import inexpressible
from genelab.sim.options import _ORDER
from tests.lacking import lacking

ASSETS = Path(gymnasium.__file__).parent / "envs/mujoco/assets"
FILES = sorted(path.name for path in ASSETS.glob("*.xml"))
WITH_MESHES = (
    "xml/franka_emika_panda/panda.xml",
    "xml/universal_robots_ur5e/ur5e.xml",
    "urdf/go2/urdf/go2.urdf",
    "urdf/kuka_iiwa/model.urdf",
    "urdf/anymal_c/urdf/anymal_c.urdf",
)
"""Robots in the wheel of genesis-world, which has the files and need not be imported."""
ARRAYS = (
    *("body_mass", "body_inertia", "body_ipos", "body_iquat", "body_pos", "body_quat"),
    *("jnt_type", "jnt_axis", "jnt_range", "jnt_stiffness", "dof_damping", "dof_armature", "dof_frictionloss"),
    *("geom_size", "geom_friction", "geom_condim", "geom_solref", "geom_margin", "qpos0", "qpos_spring"),
    *("actuator_gear", "actuator_ctrlrange", "actuator_gainprm", "tendon_range", "eq_data"),
)
BALL = """
<mujoco>
  <option {option}><flag {flag}/></option>
  <worldbody><body name="ball"><freejoint/><geom size=".1" mass="2"/></body></worldbody>
</mujoco>
"""


def ball(option: str = "", flag: str = "") -> EntityCfg:
    xml = BALL.format(option=option, flag=flag)
    return RigidObjectCfg(spec=mjcf_text, spec_args={"xml": xml}, init_state=InitialStateCfg(pos=(0, 0, 1)))


@pytest.mark.parametrize("name", FILES)
def test_models_of_others_are_not_changed_by_coming_in(
    make_scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = str(ASSETS / name)
    alone = mujoco.MjModel.from_xml_path(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = make_scene(
            {"robot": ArticulationCfg(spec=mjcf_file, spec_args={"path": path})}, num_envs=1, dt=0.01
        ).engine.model
    for array in ARRAYS:
        np.testing.assert_allclose(getattr(model, array), getattr(alone, array), rtol=1e-12, err_msg=array)
    for option in ("gravity", "density", "viscosity", "wind", "cone", "impratio", "solver", "o_margin"):
        np.testing.assert_array_equal(getattr(model.opt, option), getattr(alone.opt, option), err_msg=option)
    said = mujoco.MjSpec.from_file(path).authored.option
    for option in ("integrator", "iterations"):
        if said & 1 << _ORDER.index(option):
            assert getattr(model.opt, option) == getattr(alone.opt, option)
    assert list(tmp_path.iterdir()) == []  # no MUJOCO_LOG.TXT


@pytest.mark.parametrize("name", WITH_MESHES)
def test_robots_with_meshes_are_not_changed_either(make_scene: Callable[..., Scene], name: str) -> None:
    genesis = importlib.util.find_spec("genesis")
    if genesis is None or not genesis.submodule_search_locations:
        lacking("no genesis-world, which ships the models")
    path = str(Path(genesis.submodule_search_locations[0]) / "assets" / name)
    urdf, balance = name.endswith(".urdf"), {"compiler": {"balanceinertia": "true"}}
    options: dict[str, Any] = {"path": path, **(balance if urdf else {})}
    read: Callable[..., mujoco.MjSpec] = urdf_file if urdf else mjcf_file
    alone = read(**options).compile()
    cfg = ArticulationCfg(spec=read, spec_args=options, actuators={} if urdf else {"own": XmlActuatorCfg()})
    model = make_scene({"robot": cfg}, num_envs=1, dt=0.005).engine.model
    assert alone.nmesh > 5
    for array in (*ARRAYS, "mesh_vert"):
        np.testing.assert_allclose(getattr(model, array), getattr(alone, array), rtol=1e-12, err_msg=array)
    if urdf:
        masses = [float(mass.get("value", 0)) for mass in ET.parse(path).iterfind("link/inertial/mass")]
        assert alone.body_mass.sum() == pytest.approx(sum(masses))


def test_a_total_mass_holds_for_the_model_that_asks_for_it_alone(make_scene: Callable[..., Scene]) -> None:
    path = str(ASSETS / "half_cheetah.xml")
    scene = make_scene({"robot": ArticulationCfg(spec=mjcf_file, spec_args={"path": path}), "ball": ball()})
    assert scene["robot"].body_mass.sum().item() == pytest.approx(14.0)
    assert scene["ball"].body_mass.sum().item() == 2.0


def test_the_order_of_the_bits_is_mujocos() -> None:
    for name, value in (("gravity", "0 0 0"), ("cone", "elliptic"), ("iterations", "3"), ("sdf_iterations", "9")):
        spec = mujoco.MjSpec.from_string(f'<mujoco><option {name}="{value}"/></mujoco>')
        assert spec.authored.option == 1 << _ORDER.index(name)


def test_the_task_decides_then_the_model_then_the_default(make_scene: Callable[..., Scene]) -> None:
    robot = ball('density="1000" gravity="0 0 -1" integrator="Euler" cone="elliptic" impratio="10"')
    scene = make_scene({"robot": robot, "other": ball()}, gravity=(0.0, 0.0, -2.0), solver=SolverCfg(impratio=5.0))
    option = scene.engine.model.opt
    assert option.gravity.tolist() == [0.0, 0.0, -2.0]
    assert (option.density, option.impratio, option.iterations, option.ls_iterations) == (1000.0, 5.0, 100, 50)
    assert option.integrator == mujoco.mjtIntegrator.mjINT_EULER  # written, though it is MuJoCo's default
    assert option.cone == mujoco.mjtCone.mjCONE_ELLIPTIC
    sources = {name: scene.options[name].source for name in ("gravity", "density", "iterations", "timestep")}
    assert sources == {"gravity": "task", "density": "model", "iterations": "default", "timestep": "task"}
    plain = make_scene({"robot": ball()}).engine.model.opt
    assert plain.integrator == mujoco.mjtIntegrator.mjINT_IMPLICITFAST


def test_a_ball_in_water_sinks_as_it_does_alone(make_scene: Callable[..., Scene]) -> None:
    option = 'density="100" viscosity="0.1" timestep="0.005" integrator="implicitfast"'
    scene = make_scene({"ball": ball(option)})
    alone = mujoco.MjModel.from_xml_string(BALL.format(option=option, flag=""))
    data = mujoco.MjData(alone)
    data.qpos[2] = 1.0
    scene.step(100)
    mujoco.mj_step(alone, data, 100)
    assert scene["ball"].root_pos_w[0, 2].item() == pytest.approx(data.qpos[2], abs=1e-12)
    assert data.qvel[2] > -4.0  # in the air it would be 4.9


def test_models_that_disagree_are_refused_by_the_name_of_the_setting(make_scene: Callable[..., Scene]) -> None:
    pair = {"robot": ball('gravity="0 0 0"'), "cube": ball('gravity="0 0 -9.81"')}
    message = r"^the models of 'robot' and 'cube' disagree on gravity: .*\. Set env\.simulation\.gravity$"
    with pytest.raises(ConfigError, match=message):
        make_scene(pair)
    assert make_scene(pair, gravity=(0.0, 0.0, -1.0)).engine.model.opt.gravity[2] == -1.0
    with pytest.raises(ConfigError, match=r"Give both the same <option noslip_iterations>$"):
        make_scene({"robot": ball('noslip_iterations="2"'), "cube": ball('noslip_iterations="3"')})


def test_a_flag_of_one_model_is_of_the_world(make_scene: Callable[..., Scene]) -> None:
    flags = make_scene({"robot": ball(flag='contact="disable"'), "cube": ball()}).engine.model.opt.disableflags
    assert flags & mujoco.mjtDisableBit.mjDSBL_CONTACT
    with pytest.raises(ModelError, match=r"^the MuJoCo engine cannot express bodies that fall asleep"):
        make_scene({"robot": ball(flag='sleep="enable"')})


@pytest.mark.parametrize(
    ("option", "flag", "what"),
    [
        ('integrator="RK4"', "", "this integrator"),
        ('solver="CG"', "", "another solver"),
        ('density="1"', "", "a medium"),
        ("", 'contact="disable"', 'the flag contact="disable"'),
    ],
)
def test_what_genesis_would_step_otherwise_is_named(option: str, flag: str, what: str) -> None:
    model = mujoco.MjModel.from_xml_string(BALL.format(option=option, flag=flag))
    model.opt.integrator = model.opt.integrator or mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    assert next(iter(inexpressible(model)), "nothing").startswith(what)


def test_a_reference_to_a_part_that_is_not_there_is_told() -> None:
    """A copy of the spec leaves such a part out without a word."""
    xml = BALL.format(option="", flag="").replace("</mujoco>", '<actuator><motor joint="knee"/></actuator></mujoco>')
    with pytest.raises(
        ModelError, match=r"^the model of 'robot' does not compile: .*unknown transmission target 'knee'"
    ):
        Incoming("robot", mujoco.MjSpec.from_string(xml))


def test_a_model_that_would_change_is_refused() -> None:
    spec = mujoco.MjSpec.from_string(BALL.format(option="", flag=""))
    incoming, world = Incoming("robot", spec), mujoco.MjSpec()
    spec.bodies[1].geoms[0].mass = 3.0
    incoming.attach_to(world, world.worldbody.add_frame())
    message = r"^the model of 'robot' would change by coming into the world: body_inertia of 'ball' is .*$"
    with pytest.raises(ModelError, match=message):
        incoming.compare(world.compile(), lambda field, part: False, False)
    incoming.compare(world.compile(), lambda field, part: field in ("body_inertia", "body_mass"), False)


def test_what_a_file_does_to_all_bodies_is_done_to_its_own(make_scene: Callable[..., Scene]) -> None:
    xml = """
    <mujoco><compiler fusestatic="true" discardvisual="true"/><worldbody><body name="base"><freejoint/>
      <geom size=".1"/><geom size=".2" contype="0" conaffinity="0" mass="0"/>
      <body name="foot" pos="0 0 -1"><geom size=".1"/></body>
    </body></worldbody></mujoco>
    """
    scene = make_scene({"one": RigidObjectCfg(spec=mjcf_text, spec_args={"xml": xml}), "ball": ball()})
    assert scene["one"].body_names == ["base"]
    assert scene.engine.model.ngeom == 3
