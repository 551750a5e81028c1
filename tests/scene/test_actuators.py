"""The force that reaches a joint is the one its actuator's formula gives."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from genelab.errors import ConfigError
from genelab.scene import (
    ActuatorCfg,
    Articulation,
    ArticulationCfg,
    DcMotorActuatorCfg,
    IdealPdActuatorCfg,
    ImplicitPdActuatorCfg,
    ImplicitVelocityActuatorCfg,
    Scene,
    mjcf_text,
)
from genelab.sim import SolverCfg

DT = 0.001
MakeSlider = Callable[..., tuple[Scene, Articulation]]
# A point of 2 kg that slides along x and y.
SLIDER = """
<mujoco>
  {head}
  <worldbody>
    <body name="stage">
      <joint name="x" type="slide" axis="1 0 0" {x}/>
      <joint name="y" type="slide" axis="0 1 0" armature=".25" frictionloss=".5"/>
      <geom size=".1" mass="2"/>
    </body>
  </worldbody>
  {tail}
</mujoco>
"""


@pytest.fixture
def make_slider(make_scene: Callable[..., Scene]) -> MakeSlider:
    def make(
        *actuators: ActuatorCfg, head: str = "", x: str = "", tail: str = "", **simulation: object
    ) -> tuple[Scene, Articulation]:
        cfg = ArticulationCfg(
            spec=mjcf_text,
            spec_args={"xml": SLIDER.format(head=head, x=x, tail=tail)},
            actuators={f"drive{i}": actuator for i, actuator in enumerate(actuators)},
        )
        settings = {"dt": DT, "gravity": (0.0, 0.0, 0.0), "solver": SolverCfg(integrator="euler"), **simulation}
        scene = make_scene({"robot": cfg}, **settings)
        return scene, scene.articulation("robot")

    return make


def put(robot: Articulation, pos: float | list[float], vel: float | list[float]) -> None:
    """Set x, the same in all environments or one number each; y stays at zero."""
    state = [torch.zeros(4, 2, dtype=torch.float64) for _ in range(2)]
    state[0][:, 0], state[1][:, 0] = torch.tensor(pos), torch.tensor(vel)
    robot.write_joint_state(state[0], state[1], None)


def along_x(values: Tensor) -> list[float]:
    return values[:, 0].tolist()


def test_implicit_pd(make_slider: MakeSlider) -> None:
    scene, robot = make_slider(ImplicitPdActuatorCfg(joint_names=("x",), stiffness=20.0, damping=4.0))
    put(robot, 0.25, -0.5)
    robot.joint_pos_target[:, 0] = 1.0
    scene.step(1)
    force = 20 * (1 - 0.25) - 4 * (-0.5)  # 17 N
    assert along_x(robot.joint_effort) == pytest.approx([force] * 4)
    assert along_x(robot.joint_vel) == pytest.approx([-0.5 + DT * force / 2] * 4)
    assert robot.joint_effort[:, 1].tolist() == [0.0] * 4  # nothing drives y


def test_implicit_pd_is_integrated_implicitly_in_its_damping(make_slider: MakeSlider) -> None:
    servo = ImplicitPdActuatorCfg(joint_names=("x",), stiffness=20.0, damping=4.0)
    scene, robot = make_slider(servo, solver=SolverCfg(integrator="implicitfast"))
    put(robot, 0.25, -0.5)
    robot.joint_pos_target[:, 0] = 1.0
    scene.step(1)
    assert along_x(robot.joint_vel) == pytest.approx([-0.5 + DT * 17 / (2 + DT * 4)] * 4)


def test_implicit_velocity(make_slider: MakeSlider) -> None:
    scene, robot = make_slider(ImplicitVelocityActuatorCfg(joint_names=("x",), damping=4.0))
    put(robot, 0.25, -0.5)
    robot.joint_vel_target[:, 0] = 2.0
    scene.step(1)
    assert along_x(robot.joint_effort) == pytest.approx([4 * (2 + 0.5)] * 4)
    assert along_x(robot.joint_vel) == pytest.approx([-0.5 + DT * 10 / 2] * 4)


def test_ideal_pd_follows_position_velocity_and_effort(make_slider: MakeSlider) -> None:
    scene, robot = make_slider(IdealPdActuatorCfg(joint_names=("x",), stiffness=20.0, damping=4.0))
    put(robot, 0.25, -0.5)
    robot.joint_pos_target[:, 0] = 1.0
    robot.joint_vel_target[:, 0] = 2.0
    robot.joint_effort_target[:, 0] = 3.0
    scene.step(1)
    force = 20 * 0.75 + 4 * 2.5 + 3  # 28 N
    assert along_x(robot.joint_effort) == pytest.approx([force] * 4)
    assert along_x(robot.joint_vel) == pytest.approx([-0.5 + DT * force / 2] * 4)


def test_ideal_pd_sees_the_state_before_every_physics_step(make_slider: MakeSlider) -> None:
    scene, robot = make_slider(IdealPdActuatorCfg(joint_names=("x",), stiffness=20.0))
    put(robot, 0.25, 1.0)
    scene.step(3)
    x, v = 0.25, 1.0
    for _ in range(3):
        force = -20 * x
        v += DT * force / 2
        x += DT * v
    assert along_x(robot.joint_pos) == pytest.approx([x] * 4, abs=1e-12)
    assert along_x(robot.joint_effort) == pytest.approx([force] * 4)


@pytest.mark.parametrize("kind", [ImplicitPdActuatorCfg, IdealPdActuatorCfg])
def test_the_effort_limit_cuts_the_force_both_ways(
    make_slider: MakeSlider, kind: type[ImplicitPdActuatorCfg] | type[IdealPdActuatorCfg]
) -> None:
    scene, robot = make_slider(kind(joint_names=("x",), stiffness=20.0, damping=0.0, effort_limit=5.0))
    put(robot, 0.0, 0.0)
    robot.joint_pos_target[:, 0] = torch.tensor([-1.0, -0.2, 0.2, 1.0])
    scene.step(1)
    assert along_x(robot.joint_effort) == pytest.approx([-5.0, -4.0, 4.0, 5.0])
    assert along_x(robot.joint_vel) == pytest.approx([DT * force / 2 for force in (-5, -4, 4, 5)])


@pytest.mark.parametrize(("effort_limit", "force"), [(None, 3.0), (5.0, 5.0)])
def test_the_joints_own_force_range_counts_only_without_an_effort_limit(
    make_slider: MakeSlider, effort_limit: float | None, force: float
) -> None:
    motor = IdealPdActuatorCfg(joint_names=("x",), effort_limit=effort_limit)
    scene, robot = make_slider(motor, x='actuatorfrcrange="-3 3"')
    robot.joint_effort_target[:, 0] = 100.0
    scene.step(1)
    assert along_x(robot.joint_effort) == pytest.approx([force] * 4)
    assert along_x(robot.joint_vel) == pytest.approx([DT * force / 2] * 4)


def dc_motor(effort_limit: float | None = None) -> DcMotorActuatorCfg:
    """10 N at rest, nothing at 20 m/s."""
    return DcMotorActuatorCfg(
        joint_names=("x",), saturation_effort=10.0, velocity_limit=20.0, effort_limit=effort_limit
    )


@pytest.mark.parametrize(
    ("asked", "effort_limit", "forces"),
    [
        # at rest, at half the no-load speed, at it, above it
        (100.0, None, [10.0, 5.0, 0.0, -5.0]),
        (100.0, 8.0, [8.0, 5.0, 0.0, -5.0]),
        (100.0, 4.0, [4.0, 4.0, 0.0, -4.0]),
        (3.0, 8.0, [3.0, 3.0, 0.0, -5.0]),
        # braking has the whole torque at any speed
        (-100.0, None, [-10.0, -10.0, -10.0, -10.0]),
        (-100.0, 8.0, [-8.0, -8.0, -8.0, -8.0]),
        (-3.0, 8.0, [-3.0, -3.0, -3.0, -5.0]),
    ],
)
def test_dc_motor_torque_speed_line(
    make_slider: MakeSlider, asked: float, effort_limit: float | None, forces: list[float]
) -> None:
    for sign in (1.0, -1.0):
        scene, robot = make_slider(dc_motor(effort_limit))
        put(robot, 0.0, [0.0, sign * 10.0, sign * 20.0, sign * 30.0])
        robot.joint_effort_target[:, 0] = sign * asked
        scene.step(1)
        assert along_x(robot.joint_effort) == pytest.approx([sign * force for force in forces])


@pytest.mark.parametrize(("effort_limit", "force"), [(None, -10.0), (8.0, -8.0)])
def test_dc_motor_never_brakes_beyond_its_limit(
    make_slider: MakeSlider, effort_limit: float | None, force: float
) -> None:
    scene, robot = make_slider(dc_motor(effort_limit))
    put(robot, 0.0, 100.0)  # where the line is at −40 N
    scene.step(1)
    assert along_x(robot.joint_effort) == pytest.approx([force] * 4)


def test_numbers_by_joint(make_slider: MakeSlider) -> None:
    servo = ImplicitPdActuatorCfg(
        joint_names=(".*",), stiffness={"x": 10.0, "y": 20.0}, damping=0.0, effort_limit={".*": 100.0, "y": 7.0}
    )
    scene, robot = make_slider(servo)
    robot.joint_pos_target[:] = 0.5
    scene.step(1)
    assert robot.joint_effort[0].tolist() == pytest.approx([5.0, 7.0])


def test_actuators_of_the_model_on_the_same_joints_are_replaced(make_slider: MakeSlider) -> None:
    tail = '<actuator><position name="old" joint="x" kp="999"/><motor name="kept" joint="y"/></actuator>'
    scene, robot = make_slider(IdealPdActuatorCfg(joint_names=("x",)), tail=tail)
    model = scene.engine.model
    assert {model.actuator(i).name for i in range(model.nu)} == {"robot/kept", "robot/x"}
    robot.joint_effort_target[:, 0] = 3.0
    scene.step(1)
    assert along_x(robot.joint_effort) == pytest.approx([3.0] * 4)


@pytest.mark.parametrize("kind", [ImplicitPdActuatorCfg, IdealPdActuatorCfg])
def test_defaults_of_the_model_are_not_for_our_actuators(
    make_slider: MakeSlider, kind: type[ImplicitPdActuatorCfg] | type[IdealPdActuatorCfg]
) -> None:
    head = '<default><general ctrlrange="-.1 .1" forcerange="-.2 .2" gear="3"/></default>'
    scene, robot = make_slider(kind(joint_names=("x",), stiffness=20.0, damping=0.0), head=head)
    robot.joint_pos_target[:, 0] = 1.0
    scene.step(1)
    assert along_x(robot.joint_effort) == pytest.approx([20.0] * 4)
    assert along_x(robot.joint_vel) == pytest.approx([DT * 20 / 2] * 4)


def test_two_actuators_on_one_joint_are_an_error(make_slider: MakeSlider) -> None:
    with pytest.raises(ConfigError, match=r"^robot: two actuators drive the joint 'x'$"):
        make_slider(IdealPdActuatorCfg(joint_names=("x",)), IdealPdActuatorCfg(joint_names=(".*",)))


def test_an_actuator_for_a_joint_that_is_not_there_is_an_error(make_slider: MakeSlider) -> None:
    with pytest.raises(ConfigError, match=r"^robot actuator: nothing is called 'z'"):
        make_slider(IdealPdActuatorCfg(joint_names=("z",)))


@pytest.mark.parametrize(
    "cfg",
    [
        ImplicitPdActuatorCfg(joint_names=("x",), stiffness=20.0, damping=4.0),
        ImplicitVelocityActuatorCfg(joint_names=("x",), damping=4.0),
        IdealPdActuatorCfg(joint_names=("x",), stiffness=20.0, damping=4.0),
    ],
    ids=lambda cfg: type(cfg).__name__,
)
def test_gains_of_some_environments(make_slider: MakeSlider, cfg: ActuatorCfg) -> None:
    scene, robot = make_slider(cfg)
    actuator = robot.actuators["drive0"]
    stiffness = 0.0 if isinstance(cfg, ImplicitVelocityActuatorCfg) else 20.0
    assert [gain.flatten().tolist() for gain in actuator.gains()] == [[stiffness] * 4, [4.0] * 4]
    some = torch.tensor([1, 3])
    new = torch.tensor([[stiffness * 2], [stiffness * 3]], dtype=torch.float64)
    actuator.set_gains(new, torch.tensor([[5.0], [6.0]], dtype=torch.float64), some)
    kp, kd = (gain.flatten().tolist() for gain in actuator.gains())
    assert kp == [stiffness, stiffness * 2, stiffness, stiffness * 3]
    assert kd == [4.0, 5.0, 4.0, 6.0]
    put(robot, 0.0, -0.5)
    robot.joint_pos_target[:, 0] = 0.1
    robot.joint_vel_target[:, 0] = 0.25
    scene.step(1)
    rate = 0.5 + (0.25 if "velocity" in cfg.accepts else 0.0)
    assert along_x(robot.joint_effort) == pytest.approx([p * 0.1 + d * rate for p, d in zip(kp, kd, strict=True)])


def test_gains_have_the_precision_of_the_tensors(make_slider: MakeSlider) -> None:
    _, robot = make_slider(ImplicitPdActuatorCfg(joint_names=("x",), stiffness=20.0, damping=4.0), precision=32)
    assert [gain.dtype for gain in robot.actuators["drive0"].gains()] == [torch.float32] * 2


def test_armature_and_frictionloss_reach_the_model(make_slider: MakeSlider) -> None:
    motor = IdealPdActuatorCfg(joint_names=(".*",), armature={"x": 0.5, "y": 0.75}, frictionloss=1.5)
    scene, robot = make_slider(motor)
    assert scene.engine.model.dof_armature.tolist() == [0.5, 0.75]
    assert scene.engine.model.dof_frictionloss.tolist() == [1.5, 1.5]
    robot.joint_effort_target[:, 0] = 11.5
    scene.step(1)
    # 10 N of the 11.5 are left to move 2 kg and the rotor; MuJoCo's dry friction is soft at low speed
    assert along_x(robot.joint_acc) == pytest.approx([10 / 2.5] * 4, rel=0.02)


def test_without_armature_and_frictionloss_the_model_keeps_its_own(make_slider: MakeSlider) -> None:
    scene, _ = make_slider(IdealPdActuatorCfg(joint_names=(".*",)))
    assert scene.engine.model.dof_armature.tolist() == [0.0, 0.25]
    assert scene.engine.model.dof_frictionloss.tolist() == [0.0, 0.5]
