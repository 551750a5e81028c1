"""Wheels: what is seen of their angles, and what they do under the policy's action."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from genelab import mdp
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, play_cfg
from genelab.errors import ConfigError, UsageError
from genelab.managers import ObservationGroupCfg, SceneEntityCfg, ScheduleCfg, obs
from genelab.managers.base import select
from genelab.mdp import RollingActionCfg, VelocityCommandCfg, augment
from genelab.rl.export_metadata import describe_actions
from genelab.rl.transforms import check_transforms, transforms_of
from genelab.scene import ArticulationCfg, ImplicitVelocityActuatorCfg, SceneCfg, mjcf_text
from genelab.sim import SimulationCfg

# A cart on two wheels of 0.1 m, 0.2 m to the left and to the right of its middle.
CART = """
<mujoco>
  <worldbody>
    <body name="cart" pos="0 0 .1">
      <freejoint/>
      <geom type="box" size=".1 .1 .05" mass="1" contype="0"/>
      <body name="left_wheel" pos="0 .2 0">
        <joint name="left_wheel" axis="0 1 0"/>
        <geom type="cylinder" size=".1 .02" euler="90 0 0" mass=".1"/>
      </body>
      <body name="right_wheel" pos="0 -.2 0">
        <joint name="right_wheel" axis="0 AXIS 0"/>
        <geom type="cylinder" size=".1 .02" euler="90 0 0" mass=".1"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
ROLLS = {"left_wheel": (10.0, 0.0, -2.0), "right_wheel": (10.0, 0.0, 2.0)}


def cart_cfg(axis: int = 1, **action: Any) -> ManagerBasedRlEnvCfg:
    robot = ArticulationCfg(
        spec=mjcf_text,
        spec_args={"xml": CART.replace("AXIS", str(axis))},
        actuators={"wheels": ImplicitVelocityActuatorCfg(joint_names=(".*",), damping=1.0)},
    )
    command = VelocityCommandCfg(lin_vel_x=(0.5, 0.5), lin_vel_y=(0.0, 0.0), ang_vel_z=(1.0, 1.0))
    settings = {"scale": 20.0, "rolls": ROLLS, "acceleration": 100.0, **action}
    return ManagerBasedRlEnvCfg(
        scene=SceneCfg(num_envs=2, entities={"robot": robot}),
        simulation=SimulationCfg(engine="mujoco", precision=64, threads=1, gravity=(0.0, 0.0, 0.0)),
        decimation=2,
        episode_length_s=1.0,
        seed=1,
        commands={"twist": command},
        actions={"wheels": RollingActionCfg(**settings)},
        observations={"policy": ObservationGroupCfg(terms={"angle": obs(mdp.wheel_angle)}, history_length=3)},
    )


@pytest.fixture
def cart() -> Iterator[ManagerBasedRlEnv]:
    env = ManagerBasedRlEnv(cart_cfg())
    env.reset()
    yield env
    env.close()


def test_wheels_speed_up_to_what_the_command_asks_and_the_action_comes_on_top(cart: ManagerBasedRlEnv) -> None:
    """5 − 2 and 5 + 2 rad/s, by 100 rad/s² in steps of 0.01 s, and 0.1 of 20 rad/s."""
    targets = []
    for _ in range(9):
        cart.step(torch.full((2, 2), 0.1))
        targets.append((cart.robot.joint_vel_target[1] - 2.0).tolist())
    assert targets[:3] == [pytest.approx([k, k]) for k in (1.0, 2.0, 3.0)]
    assert targets[-1] == pytest.approx([3.0, 7.0])
    cart.commands.term("twist").fix(torch.zeros(2, 3).double())
    cart.step(torch.zeros(2, 2))
    assert cart.robot.joint_vel_target[1].tolist() == pytest.approx([2.0, 6.0])


def test_a_new_episode_begins_at_rest_and_a_resumed_one_goes_on(cart: ManagerBasedRlEnv) -> None:
    for _ in range(4):
        cart.step(torch.zeros(2, 2))
    state = copy.deepcopy(cart.action_manager.state_dict())
    cart.action_manager.reset(torch.tensor([1]))
    term = cart.action_manager.terms["wheels"]
    assert isinstance(term, mdp.RollingAction)
    assert term.speed.tolist() == [pytest.approx([3.0, 4.0]), [0.0, 0.0]]
    cart.action_manager.load_state_dict(state)
    assert term.speed.tolist() == [pytest.approx([3.0, 4.0])] * 2


def test_metadata_tell_how_wheels_roll(cart: ManagerBasedRlEnv) -> None:
    (told,) = describe_actions(cart.action_manager.terms.values())
    assert told["target"] == "velocity"
    assert told["joint_names"] == ["left_wheel", "right_wheel"]
    assert told["rolls"] == [[10.0, 10.0], [0.0, 0.0], [-2.0, 2.0]]
    assert (told["scale"], told["acceleration"], told["share"]) == ([20.0, 20.0], 100.0, 1.0)
    assert "acceleration * step_dt" in told["formula"]


def test_rolling_may_fade() -> None:
    cfg = cart_cfg(schedule="help")
    cfg.schedules = {"help": ScheduleCfg(start=1.0, end=0.5, steps=10)}
    action = play_cfg(cfg).actions["wheels"]
    assert isinstance(action, RollingActionCfg)
    assert (action.share, action.schedule) == (0.5, None)
    env = ManagerBasedRlEnv(cfg)
    saved = transforms_of(env)
    assert saved["env.actions.wheels.share"] == 0.5
    env.close()
    other = ManagerBasedRlEnv(cart_cfg(share=0.5, rolls={"left_wheel": (5.0, 0.0, 0.0)}))
    with pytest.raises(UsageError, match=r"rolls .*: give env.actions.wheels.rolls what it had in training"):
        check_transforms(saved, other, Path("policy.pt"))
    other.close()


def test_a_row_of_another_width_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"env.actions.wheels.rolls.left_wheel: needs 3 numbers, got 2"):
        ManagerBasedRlEnv(cart_cfg(rolls={"left_wheel": (1.0, 2.0)}))


@pytest.mark.parametrize("turns", [0.0, 1.0, 100.0])
def test_an_angle_is_seen_the_same_after_every_turn(cart: ManagerBasedRlEnv, turns: float) -> None:
    angles = torch.tensor([[0.3, 0.9]] * 2).double() + 2 * math.pi * turns
    cart.robot.write_joint_state(angles, torch.zeros(2, 2).double(), None)
    cart.scene.engine.refresh()
    sine, cosine = (math.sin(0.3) + math.sin(0.9)) / 2, (math.cos(0.3) + math.cos(0.9)) / 2
    assert mdp.wheel_angle(cart, asset=select(SceneEntityCfg(), cart))[1].tolist() == pytest.approx([sine, cosine])


def test_its_mirror_image_turns_the_same_way_where_the_axes_do(cart: ManagerBasedRlEnv) -> None:
    seen = {"policy": torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]])}
    mirrored, actions = augment(cart, TensorDict(seen, batch_size=[1]), torch.tensor([[1.0, 2.0]]))
    assert torch.equal(mirrored["policy"][1], seen["policy"][0])
    assert actions is not None
    assert actions[1].tolist() == [2.0, 1.0]


def test_wheels_whose_axes_point_apart_turn_the_other_way_in_the_mirror() -> None:
    env = ManagerBasedRlEnv(cart_cfg(axis=-1))
    env.reset()
    mirrored, _ = augment(env, TensorDict({"policy": torch.tensor([[0.1, 0.2] * 3])}, batch_size=[1]), None)
    assert mirrored["policy"][1].tolist() == pytest.approx([-0.1, 0.2] * 3)
    env.close()
