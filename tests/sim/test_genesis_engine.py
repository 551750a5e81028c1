"""The Genesis engine: the contract of engines, and what is its own, beside the MuJoCo engine."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

from genelab.sim.cfg import SimulationCfg
from genelab.sim.contacts import ContactQuery, add_contact_sensor, may_collide
from genelab.sim.engine import Engine, EngineError, ModelError, told_if_slow
from genelab.sim.genesis_engine import GenesisEngine
from genelab.sim.mujoco_engine import MujocoEngine
from genelab.sim.options import apply_options
from genelab.testing import EngineContract

pytestmark = [pytest.mark.genesis, pytest.mark.xdist_group("genesis")]  # one process compiles the kernels

# A cart-pole (whose hinge has a reference, so that Genesis's joint position is not MuJoCo's), a drone with an arm, a
# stone whose origin is not its centre, and a ball on a box on the floor.
WORLD = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 .1" friction=".8"/>
    <body name="robot/cart" pos="0 0 1">
      <joint name="robot/slide" type="slide" axis="1 0 0" damping=".1" armature=".01" range="-2 2"/>
      <geom type="box" size=".2 .1 .1" mass="1" contype="0" conaffinity="0"/>
      <body name="robot/pole" pos="0 .01 0">
        <joint name="robot/hinge" axis="0 1 0" damping=".02" ref=".3"/>
        <geom type="capsule" fromto="0 0 0 .03 .05 .6137" size=".03" mass=".3" contype="0" conaffinity="0"/>
        <body name="robot/tip" pos="0 0 .6" quat="1 .2 .3 .4">
          <geom type="sphere" size=".02" mass=".05" contype="0" conaffinity="0"/>
        </body>
      </body>
    </body>
    <body name="drone" pos="0 3 5" quat="1 .3 -.2 .5">
      <freejoint/>
      <geom type="box" size=".1 .05 .02" pos=".01 .02 .03" mass=".5" contype="0" conaffinity="0"/>
      <body name="arm" pos=".1 0 0">
        <joint name="elbow" axis="0 0 1" pos=".01 0 0"/>
        <geom type="capsule" fromto="0 0 0 .2 0 .05" size=".02" mass=".1" contype="0" conaffinity="0"/>
      </body>
    </body>
    <body name="box" pos="3 0 .1">
      <freejoint/>
      <geom name="box" type="box" size=".1 .1 .1" mass="2" friction=".5"/>
    </body>
    <body name="ball" pos="3 0 .3">
      <freejoint/>
      <geom type="sphere" size=".1" mass="1"/>
    </body>
    <body name="stone" pos="0 -3 5" quat=".5 .5 -.5 .5">
      <freejoint/>
      <geom type="ellipsoid" size=".1 .05 .02" pos=".05 .02 .03" euler="20 30 40" mass=".5" contype="0"
        conaffinity="0"/>
    </body>
  </worldbody>
  <actuator>
    <position name="pole" joint="robot/hinge" kp="3" kv=".2"/>
    <velocity name="cart" joint="robot/slide" kv="2" forcerange="-9 9"/>
    <motor name="elbow" joint="elbow" ctrlrange="-.01 .01"/>
  </actuator>
</mujoco>
"""
TENDON = """
<mujoco>
  <worldbody><body><joint name="j"/><geom size=".1"/></body></worldbody>
  <tendon><fixed><joint joint="j" coef="1"/></fixed></tendon>
</mujoco>
"""
READINGS = ("qpos", "qvel", "ctrl", "actuator_force", "qacc", "body_pos", "body_quat", "body_lin_vel", "body_ang_vel")
STONE = {"qpos": 7, "qvel": 6, "qacc": 6, "body_pos": 1, "body_quat": 1, "body_lin_vel": 1, "body_ang_vel": 1}
"""Last columns of each reading. Genesis integrates a lone body in flight by the midpoint rule, MuJoCo does not."""


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[Engine, Engine]]:
    """Three environments on both engines."""
    genesis = TestGenesisEngine.build()
    yield genesis, TestGenesisEngine.build("mujoco")
    genesis.close()


class TestGenesisEngine(EngineContract):
    engine = "genesis"
    xml = WORLD
    carried: ClassVar = {("box", None): 2.0, ("box", "ball"): -1.0, ("ball", "box"): 1.0, ("box", "world"): 3.0}
    refused: ClassVar = {TENDON: "tendons"}
    repeats = 1e-12
    own_motion = ("stone",)

    @pytest.fixture(scope="class")
    def built(self, world: tuple[Engine, Engine]) -> Engine:
        return world[0]


@pytest.fixture
def engines(world: tuple[GenesisEngine, MujocoEngine]) -> tuple[GenesisEngine, MujocoEngine]:
    for engine in world:
        engine.reset(None)
        engine.refresh()
    return world


def numbers(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def start(engine: Engine) -> None:
    """Everything in motion, each environment differently."""
    speed = torch.linspace(-0.5, 0.5, 45, dtype=torch.float64).reshape(3, 15)
    engine.write_qvel(speed, [*range(9), *range(21, 27)], None)
    engine.write_qpos(numbers([0.1, 0.5], [0.0, 0.2], [-0.1, 0.3]), [0, 1], None)
    turned = torch.nn.functional.normalize(numbers([0.1, 0.2, 0.3, 0.4], [1, 0, 0, 0], [0, -1, 1, 0]))
    engine.write_qpos(turned, torch.arange(5, 9), None)
    engine.write_qvel(numbers([0.4, -0.3]), torch.tensor([8, 0]), torch.tensor([0, 2]))
    engine.refresh()
    engine.write_ctrl(numbers([0.2, 0.3, 0.004], [-0.2, 0.1, 0.5], [0.0, 0.4, -0.5]), slice(None))


def assert_same(genesis: Engine, other: Engine, names: tuple[str, ...] = READINGS, tolerance: float = 1e-9) -> None:
    for name in names:
        ours, theirs = getattr(genesis, name), getattr(other, name)
        width = ours.shape[1] - STONE.get(name, 0)
        ours, theirs = ours[:, :width], theirs[:, :width]
        torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance, msg=partial("{}: {}".format, name))


def test_contacts_agree(engines: tuple[GenesisEngine, MujocoEngine]) -> None:
    for engine in engines:
        engine.step(100)
    genesis, other = engines
    assert_same(genesis, other, ("contact_force", "contact_count"), tolerance=1e-4)
    assert genesis.contact_count[0].tolist() == [5, 1, 1, 4]
    force, count = genesis.contact_force, genesis.contact_count
    genesis._cache.clear()
    genesis._padded = True  # as on a GPU
    assert torch.equal(genesis.contact_force, force)
    assert torch.equal(genesis.contact_count, count)
    genesis._padded = False


@pytest.mark.parametrize(
    ("field", "ids", "factor"),
    [
        ("body_ipos", [2, 4], 1.5),
        ("body_inertia", slice(1, None), 3.0),
        ("dof_armature", [0], 20.0),
        ("geom_friction", [0, 6, 7], 0.5),
    ],
)
def test_randomised_fields_act_as_in_mujoco(
    engines: tuple[GenesisEngine, MujocoEngine], field: str, ids: list[int] | slice, factor: float
) -> None:
    genesis, other = engines
    some = torch.tensor([1, 2])
    before = other.get_model_field(field).to(torch.float64)
    torch.testing.assert_close(genesis.get_model_field(field), before, rtol=1e-12, atol=1e-12)
    changed = before[some][:, ids] * numbers([factor], [1.0]).reshape(2, *[1] * (before.dim() - 1))
    for engine in engines:
        engine.set_model_field(field, changed, ids, some)
        start(engine)
        engine.write_qvel(numbers([1.0], [1.0], [1.0]), [9], None)  # the box slides
        engine.step(30)
    assert_same(genesis, other, tolerance=1e-6)
    torch.testing.assert_close(genesis.get_model_field(field)[some][:, ids], changed, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(genesis.get_model_field(field)[0], before[0], rtol=1e-12, atol=1e-12)
    for engine in engines:
        engine.set_model_field(field, before, slice(None), None)


def test_frictionloss_and_joint_range_act_as_in_mujoco(engines: tuple[GenesisEngine, MujocoEngine]) -> None:
    for engine in engines:
        engine.set_model_field("dof_frictionloss", numbers([0.3]), [0], torch.tensor([0]))
        engine.set_model_field("jnt_range", numbers([-2, 0.02]).reshape(1, 1, 2), [0], torch.tensor([1]))
        start(engine)
        engine.step(60)
    assert_same(*engines, tolerance=1e-5)
    assert engines[0].get_model_field("dof_frictionloss")[:, 0].tolist() == [0.3, 0, 0]
    assert engines[0].get_model_field("jnt_range")[:, 0].tolist() == [[-2, 2], [-2, 0.02], [-2, 2]]
    for engine in engines:
        engine.set_model_field("dof_frictionloss", numbers([0.0]), [0], None)
        engine.set_model_field("jnt_range", numbers([-2, 2]).reshape(1, 1, 2), [0], None)


def test_one_precision_at_a_time(engines: tuple[GenesisEngine, MujocoEngine]) -> None:
    with pytest.raises(EngineError, match="one precision"):
        GenesisEngine(SimulationCfg(precision=32), mujoco.MjSpec.from_string(WORLD), 1, torch.device("cpu"))


# -- what two geoms make of their parameters, and what a body feels of itself

# A slope of 30 degrees (gravity is turned) with three boxes, and a robot that can press on its trunk from both sides.
SLOPE = """
<mujoco>
  <worldbody>
    <geom name="ground" type="plane" size="5 5 .1" friction="1"/>
    <body name="first" pos="0 -1 .1">
      <freejoint/><geom name="first" type="box" size=".1 .1 .1" mass="1" friction=".3" priority="1"/>
    </body>
    <body name="equal" pos="0 1 .1">
      <freejoint/><geom type="box" size=".1 .1 .1" mass="1" friction=".3" solmix="3" solref=".04 1"/>
    </body>
    <body name="soft" pos="0 2 .1">
      <freejoint/><geom type="box" size=".1 .1 .1" mass="1" priority="1" solref=".03 1" solimp=".5 .6 .001"/>
    </body>
    <body name="trunk" pos="0 0 1">
      <geom type="box" size=".1 .1 .1"/>
      <body pos="0 .151 0"><joint name="left" type="slide" axis="0 1 0"/><geom size=".05" mass="1"/></body>
      <body pos="0 -.151 0"><joint name="right" type="slide" axis="0 1 0"/><geom size=".05" mass="1"/></body>
    </body>
  </worldbody>
  <actuator><motor joint="left"/><motor joint="right"/></actuator>
</mujoco>
"""


def test_friction_and_self_contact_are_mujocos() -> None:
    """In 0.3 s a box of friction mu gains 9.81 m/s² · (sin 30° − mu · cos 30°) · 0.3 s, or stays."""
    cfg = SimulationCfg(precision=64, gravity=(9.81 * 0.5, 0.0, -9.81 * math.sqrt(0.75)))
    spec = mujoco.MjSpec.from_string(SLOPE)
    apply_options(cfg, spec)
    itself = ContactQuery(sensor="self", body="trunk", other="trunk", subtree=True)
    add_contact_sensor(spec, itself)
    engines = [
        GenesisEngine(cfg, spec, 4, torch.device("cpu"), [itself]),
        MujocoEngine(cfg, spec, 4, torch.device("cpu"), [itself]),
    ]
    pushes = numbers([0, 0], [-49, 0], [-49, 49], [-49, 20])
    friction = numbers([0.1], [0.3], [0.5], [1.2])
    for engine in engines:
        box = engine.model.geom("first").id
        values = engine.get_model_field("geom_friction")[:, [box]].to(torch.float64)
        values[..., 0] = friction
        engine.set_model_field("geom_friction", values, [box], None)
        torch.testing.assert_close(engine.get_model_field("geom_friction")[:, [box]], values)
        engine.write_ctrl(pushes, slice(None))
        engine.step(60)
        speed = (9.81 * 0.3 * (0.5 - friction * math.sqrt(0.75))).clamp_min(0.0)
        torch.testing.assert_close(engine.qvel[:, :1], speed, rtol=0, atol=0.03)  # soft contacts chatter
        assert engine.qvel[:, [6, 12]].abs().max() < 0.05  # of equals the rougher counts, the ground
        felt = engine.contact_force[:, 0]
        torch.testing.assert_close(felt[:, 1], pushes.abs().sum(dim=1), rtol=1e-3, atol=1e-6)
        assert engine.contact_count[:, 0].tolist() == [0, 1, 2, 2]
    for name, boxes in (("qpos", slice(0, 21)), ("qvel", slice(0, 18))):
        ours, theirs = (getattr(engine, name)[:, boxes] for engine in engines)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    genesis, before = engines[0], engines[0].get_model_field("geom_friction")
    state = genesis.state_dict()
    genesis.set_model_field("geom_friction", 2 * before, slice(None), None)
    genesis.load_state_dict(state)
    assert torch.equal(genesis.get_model_field("geom_friction"), before)
    genesis.close()


# -- terrain


def test_balls_rest_on_a_height_field() -> None:
    """A slope up to a plateau; each ball is held by a slide along z, so it rests where it was dropped."""
    x = np.linspace(-2.0, 2.0, 21)  # 0.2 m apart
    y = np.linspace(-1.0, 1.0, 11)
    heights = np.where(y[:, None] < 0.35, np.clip(x, -1, 1)[None] * 0.4 + 0.4, 0.123)  # rows along y, 0 to 0.8 m
    spec = mujoco.MjSpec()
    spec.add_hfield(
        name="ground", nrow=11, ncol=21, size=[2.0, 1.0, 0.8, 0.1], userdata=(heights / 0.8).flatten().tolist()
    )
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname="ground", pos=[0.5, 0.25, -0.3], name="g")
    spots = [(-1.0, -0.25), (0.55, 0.0), (1.87, 0.1), (0.5, 1.0), (-0.2, -0.5)]
    for i, (x_ball, y_ball) in enumerate(spots):
        ball = spec.worldbody.add_body(name=f"ball{i}", pos=[x_ball, y_ball, 0.8])
        ball.add_joint(type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[0, 0, 1], damping=[5.0, 0.0, 0.0])
        ball.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.1, 0, 0], mass=1.0)
    cfg = SimulationCfg(precision=64)
    apply_options(cfg, spec)
    contacts = [ContactQuery(sensor="", body="ball1", other="world")]
    genesis = GenesisEngine(cfg, spec, 2, torch.device("cpu"), contacts)
    other = MujocoEngine(cfg, spec, 2, torch.device("cpu"))
    for engine in (genesis, other):
        engine.step(400)
    torch.testing.assert_close(genesis.body_pos[:, 1:, 2], other.body_pos[:, 1:, 2], rtol=0, atol=0.01)
    assert other.body_pos[0, 1:, 2].tolist() == pytest.approx([-0.2, 0.227, 0.6, -0.077, -0.073], abs=0.03)
    torch.testing.assert_close(genesis.contact_force[:, 0, 2], numbers([9.81, 9.81])[0], rtol=0.1, atol=0)
    genesis.close()


# -- what Genesis is not asked to do


def test_collision_rule_is_mujocos() -> None:
    """All geoms in one place: MuJoCo reports exactly the pairs that may collide."""
    model = mujoco.MjModel.from_xml_string(
        """<mujoco><worldbody><geom size=".1"/>
        <body><geom size=".1"/>
          <body name="a"><joint/><geom size=".1"/><geom size=".1" contype="2"/>
            <body><geom size=".1"/><body name="c"><joint/><geom size=".1"/></body></body></body></body>
        <body name="b"><freejoint/><geom size=".1"/><body><joint/><geom size=".1" contype="0" conaffinity="2"/></body>
        </body></worldbody>
        <contact><exclude body1="c" body2="b"/></contact></mujoco>"""
    )
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    touching = {tuple(sorted(pair)) for pair in data.contact.geom.tolist()}
    allowed = may_collide(model, np.arange(model.ngeom))
    assert {(i, j) for i, j in np.argwhere(allowed).tolist() if i < j} == touching


@pytest.mark.parametrize(
    ("actuator", "why"),
    [
        ('<motor name="m" joint="j" gear="3"/>', "'m': its gear is not 1"),
        ('<general name="m" joint="j" dyntype="filter"/>', "'m': it has internal dynamics"),
        ('<motor joint="j"/><motor name="m" joint="j"/>', "'m': its joint has another actuator"),
        (
            '<motor name="m" body="b"/>'.replace("motor", "adhesion").replace("/>", ' ctrlrange="0 1"/>'),
            "drive a joint",
        ),
    ],
)
def test_actuators_it_cannot_express_are_named(actuator: str, why: str) -> None:
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><body name="b"><joint name="j"/><geom size=".1"/></body></worldbody>'
        f"<actuator>{actuator}</actuator></mujoco>"
    )
    with pytest.raises(ModelError, match=f"the Genesis engine cannot express actuator .*{why}"):
        GenesisEngine.refuse(model)


def test_a_contact_without_friction_is_named() -> None:
    """The geom of higher priority decides, whatever the other's condim."""
    xml = """<mujoco><worldbody><geom name="ground" type="plane" size="1 1 .1"/>
        <body><freejoint/><geom name="ice" size=".1" condim="1" priority="{}"/></body></worldbody></mujoco>"""
    GenesisEngine.refuse(mujoco.MjModel.from_xml_string(xml.format(0)))
    with pytest.raises(ModelError, match=r"without friction \(condim 1\), as between the geoms 'ground' and 'ice'"):
        GenesisEngine.refuse(mujoco.MjModel.from_xml_string(xml.format(1)))


def test_a_build_that_takes_long_says_why_and_a_quick_one_nothing() -> None:
    said: list[str] = []
    with told_if_slow(said.append, "quick", 60.0):
        pass
    with told_if_slow(said.append, "slow", 0.0):
        for _ in range(200):
            if said:
                break
            time.sleep(0.01)
    assert said == ["slow"]
