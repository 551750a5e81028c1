"""Actions of arms, on arms whose inverse kinematics can be done by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from genelab import math as gm
from genelab import mdp
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.errors import ConfigError
from genelab.managers import ROBOT, EventTermCfg, Selection
from genelab.mdp.arm_actions import DifferentialIkAction
from genelab.scene import (
    ArticulationCfg,
    IdealPdActuatorCfg,
    ImplicitPdActuatorCfg,
    InitialStateCfg,
    SceneCfg,
    mjcf_text,
)
from genelab.sim import SimulationCfg
from tests.kinematics import jacobian
from tests.narrow import as_kind

# Three rails and a turntable carry a hand of 2 kg in all; its fingers open along y.
GANTRY = """
<mujoco>
  <worldbody>
    <body name="x_rail"><joint name="x" type="slide" axis="1 0 0" range="-1 1"/><geom size=".1" mass="1"/>
      <body name="y_rail"><joint name="y" type="slide" axis="0 1 0" range="-1 1"/><geom size=".1" mass="1"/>
        <body name="z_rail"><joint name="z" type="slide" axis="0 0 1" range="-1 0.51"/><geom size=".1" mass="0.5"/>
          <body name="hand"><joint name="yaw" axis="0 0 1"/><geom size=".1" mass="0.5"/>
            <body name="left"><joint name="left" type="slide" axis="0 1 0" range="0 .04"/>
              <geom size=".01" mass=".5"/>
            </body>
            <body name="right"><joint name="right" type="slide" axis="0 -1 0" range="0 .04"/>
              <geom size=".01" mass=".5"/>
            </body>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""

# A rod of 2 kg, 1 m, turning about y; its weight at its end.
ROD = """
<mujoco>
  <worldbody>
    <body name="rod" pos="0 0 1"><joint name="hinge" axis="0 1 0" pos="0 0 0"/>
      <geom size=".01" pos="1 0 0" mass="2"/>
    </body>
  </worldbody>
</mujoco>
"""

# Two arms on one turntable: what the left one does does not move the right one.
TWINS = """
<mujoco>
  <worldbody>
    <body name="table"><joint name="turn" axis="0 0 1"/><geom size=".1" mass="1"/>
      <body name="left" pos="0 .5 0"><joint name="left" axis="0 0 1"/><geom size=".1" pos="1 0 0" mass="1"/></body>
      <body name="right" pos="0 -.5 0"><joint name="right" axis="0 0 1"/><geom size=".1" pos="1 0 0" mass="1"/></body>
    </body>
  </worldbody>
</mujoco>
"""

# A base on a plane: two rails and a hinge of one body.
BASE = """
<mujoco>
  <worldbody>
    <body name="hand"><joint name="x" type="slide" axis="1 0 0"/><joint name="y" type="slide" axis="0 1 0"/>
      <joint name="yaw" axis="0 0 1"/><geom size=".1" mass="1"/>
    </body>
  </worldbody>
</mujoco>
"""

ARM = ("x", "y", "z", "yaw")
SERVO = ImplicitPdActuatorCfg(joint_names=(".*",), stiffness=1e4, damping=0.0)
SHRINK = 1 / (1 + 0.05**2)
"""What damping leaves of a step along a rail: its Jacobian is one."""

MakeEnv = Callable[..., ManagerBasedRlEnv]


@pytest.fixture
def make_env() -> Iterator[MakeEnv]:
    """Four arms at 50 Hz that have not yet been reset."""
    envs = []

    def make(actions: dict[str, Any], xml: str = GANTRY, servo: Any = SERVO, **settings: Any) -> ManagerBasedRlEnv:
        joints = settings.pop("joint_pos", {})
        robot = ArticulationCfg(
            spec=mjcf_text,
            spec_args={"xml": xml},
            init_state=InitialStateCfg(joint_pos=joints),
            actuators={} if servo is None else {"drive": servo},
        )
        cfg = ManagerBasedRlEnvCfg(
            scene=SceneCfg(num_envs=4, entities={"robot": robot}),
            simulation=SimulationCfg(engine="mujoco", dt=0.01, precision=64, threads=1),
            decimation=2,
            episode_length_s=10.0,
            seed=1,
            actions=actions,
            **settings,
        )
        env = ManagerBasedRlEnv(cfg)
        envs.append(env)
        return env

    yield make
    for env in envs:
        env.close()


def ik(**changes: Any) -> mdp.DifferentialIkActionCfg:
    settings: dict[str, Any] = {"joint_names": ARM, "body": "hand", "compensate_gravity": False, **changes}
    return mdp.DifferentialIkActionCfg(**settings)


def targets(env: ManagerBasedRlEnv, *action: float) -> Tensor:
    """Targets that an action sets, without a step."""
    env.action_manager.process(torch.tensor(action, dtype=torch.float64).repeat(4, 1))
    return env.robot.joint_pos_target


def test_the_hand_is_displaced_from_where_it_is(make_env: MakeEnv) -> None:
    env = make_env({"hand": ik()}, joint_pos={"x": 0.3})
    env.reset()
    step = 0.05 * SHRINK
    assert targets(env, 1.0, -0.5, 0.2)[0, :4].tolist() == pytest.approx([0.3 + step, -step / 2, step / 5, 0.0])
    assert targets(env, 1.0, 0.0, 0.0)[0, :4].tolist() == pytest.approx([0.3 + step, 0.0, 0.0, 0.0])  # nothing adds up
    assert env.robot.joint_pos_target[0, 4:].tolist() == [0.0, 0.0]  # the fingers are not its business


def test_actions_beyond_one_are_cut_and_targets_stay_within_limits(make_env: MakeEnv) -> None:
    env = make_env({"hand": ik()}, joint_pos={"z": 0.5})
    env.reset()
    assert targets(env, -7.0, 0.0, 1.0)[0, :3].tolist() == pytest.approx([-0.05 * SHRINK, 0.0, 0.51])


def test_a_long_step_is_shortened_in_all_joints_alike(make_env: MakeEnv) -> None:
    env = make_env({"hand": ik(max_joint_step=0.01)})
    env.reset()
    assert targets(env, 1.0, -0.5, 0.0)[0, :3].tolist() == pytest.approx([0.01, -0.005, 0.0])


def turn_by(env: ManagerBasedRlEnv, env_ids: Any, angles: tuple[float, ...], asset: Selection) -> None:
    rows = torch.arange(4) if env_ids is None else env_ids
    yaw = torch.tensor(angles, dtype=env.dtype)[rows, None]
    env.robot.write_joint_state(yaw, None, env_ids, torch.tensor([3]))


def test_the_orientation_of_the_reset_is_held(make_env: MakeEnv) -> None:
    event = EventTermCfg(func=turn_by, mode="reset", params={"angles": (0.0, 1.0, -2.0, 3.0), "asset": ROBOT})
    env = make_env({"hand": ik(max_joint_step=9.0)}, events={"turn": event})
    env.reset()
    assert targets(env, 0.0, 0.0, 0.0)[:, 3].tolist() == pytest.approx([0.0, 1.0, -2.0, 3.0])
    turned = torch.tensor([[0.1], [0.8], [-2.0], [-3.0]], dtype=torch.float64)
    env.robot.write_joint_state(turned, None, None, torch.tensor([3]))
    env.scene.engine.refresh()
    back = torch.tensor([-0.1, 0.2, 0.0, 6.0 - 2 * math.pi], dtype=torch.float64)  # the last one the short way round
    expected = turned[:, 0] + SHRINK * 2 * (back / 2).sin()
    assert targets(env, 0.0, 0.0, 0.0)[:, 3].tolist() == pytest.approx(expected.tolist())


def test_a_point_off_the_axis_is_carried_along_by_turning_which_the_rails_make_up_for(make_env: MakeEnv) -> None:
    action = ik(point=(0.0, 2.0, 0.0), damping=1e-6, max_joint_step=9.0)
    env = make_env({"hand": action}, joint_pos={"yaw": 1.0})
    env.reset()
    assert targets(env, 1.0, 0.0, 0.0)[0, :4].tolist() == pytest.approx([0.05, 0.0, 0.0, 1.0], abs=1e-9)
    env.robot.write_joint_state(torch.full((4, 1), 1.1, dtype=torch.float64), None, None, torch.tensor([3]))
    env.scene.engine.refresh()
    # The point is at (−2·sin 1.1, 2·cos 1.1); turning back by 0.1 moves it by 0.2·(cos 1.1, sin 1.1).
    back = 2 * math.sin(0.05)
    expected = [0.05 - 2 * back * math.cos(1.1), -2 * back * math.sin(1.1), 0.0, 1.1 - back]
    assert targets(env, 1.0, 0.0, 0.0)[0, :4].tolist() == pytest.approx(expected, abs=1e-9)


def test_joints_that_do_not_move_the_hand_have_no_part_in_it(make_env: MakeEnv) -> None:
    point = (1.0, 0.0, 0.0)
    arm = ik(joint_names=("turn", "left", "right"), body="right", point=point)
    env = make_env({"arm": arm}, TWINS, joint_pos={"turn": 0.3, "left": 0.4, "right": -0.5})
    env.reset()
    term = as_kind(env.action_manager.terms["arm"], DifferentialIkAction)
    term.chain.update()
    body = env.robot.body_names.index("right")
    place = env.robot.body_pos_w[:, body] + gm.quat_rotate(
        env.robot.body_quat_w[:, body], torch.tensor(point, dtype=torch.float64)
    )
    engine = env.scene.engine
    expected = jacobian(engine.model, engine.qpos[0], int(env.robot.body_ids[body]), place[0])
    torch.testing.assert_close(term.chain.jacobian()[0].mT, expected)
    assert not term.chain.jacobian()[:, 1].any()


def test_a_body_of_several_joints_is_refused(make_env: MakeEnv) -> None:
    message = r"^env\.actions\.arm: robot/hand has 3 joints, expected one for each body$"
    with pytest.raises(ConfigError, match=message):
        make_env({"arm": ik(joint_names=("x", "y", "yaw"))}, BASE)


def test_weight_is_carried_on_a_rail(make_env: MakeEnv) -> None:
    env = make_env({"hand": ik(compensate_gravity=True)})
    env.reset()
    sag = (0.5 + 0.5 + 0.5 + 0.5) * 9.81 / 1e4
    assert targets(env, 0.0, 0.0, 0.0)[0, :4].tolist() == pytest.approx([0.0, 0.0, sag, 0.0])
    for _ in range(20):
        env.step(torch.zeros(4, 3))
    assert env.robot.joint_pos.abs().max() < 1e-9


@pytest.mark.parametrize("angle", [0.0, 0.5, -1.0])
def test_weight_is_carried_on_a_hinge(make_env: MakeEnv, angle: float) -> None:
    action = ik(joint_names=("hinge",), body="rod", point=(1.0, 0.0, 0.0), compensate_gravity=True)
    env = make_env({"hand": action}, xml=ROD, joint_pos={"hinge": angle})
    env.reset()
    load = -2 * 9.81 * math.cos(angle)  # N·m about y: positive turns the rod down
    assert targets(env, 0.0, 0.0, 0.0)[0, 0].item() == pytest.approx(angle + load / 1e4)
    for _ in range(20):
        env.step(torch.zeros(4, 3))
    assert env.robot.joint_pos[0, 0].item() == pytest.approx(angle, abs=1e-9)


def test_an_arm_that_does_not_carry_its_weight_sinks(make_env: MakeEnv) -> None:
    env = make_env({"hand": ik()})
    env.reset()
    for _ in range(20):
        env.step(torch.zeros(4, 3))
    assert env.robot.joint_pos[0, 2].item() < -0.01


def test_fingers_start_from_where_they_are_and_share_a_target(make_env: MakeEnv) -> None:
    action = mdp.GripperActionCfg(joint_names=("left", "right"), speed=0.1)
    env = make_env({"gripper": action}, joint_pos={"left": 0.02, "right": 0.03})
    env.reset()
    assert env.action_dim == 1
    assert targets(env, -1.0)[0, 4:].tolist() == pytest.approx([0.025 - 0.1 * 0.02] * 2)
    assert targets(env, 0.5)[0, 4:].tolist() == pytest.approx([0.025 + 0.05 * 0.02] * 2)
    env.robot.write_joint_state(torch.full((4, 2), 0.0395, dtype=torch.float64), None, None, torch.tensor([4, 5]))
    assert targets(env, 3.0)[0, 4:].tolist() == pytest.approx([0.04, 0.04])


@pytest.mark.parametrize(
    ("action", "servo", "message"),
    [
        (ik(body="hnad"), SERVO, "robot body: nothing is called 'hnad'"),
        (ik(body=".*"), SERVO, r"^env\.actions\.arm\.body: '\.\*' is 6 bodies, expected one$"),
        (ik(), None, r"^env\.actions\.arm: no actuator drives x, y, z, yaw$"),
        (
            mdp.GripperActionCfg(joint_names=("left",)),
            IdealPdActuatorCfg(joint_names=("x",)),
            r"^env\.actions\.arm: no actuator drives left$",
        ),
    ],
)
def test_actions_that_cannot_be(make_env: MakeEnv, action: Any, servo: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env({"arm": action}, servo=servo)
