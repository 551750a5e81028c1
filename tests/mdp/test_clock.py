"""The gait clock, the feet that keep to it, the step it makes, and the hand that helps."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from genelab import mdp
from genelab.envs import ManagerBasedRlEnv
from genelab.errors import ConfigError, UsageError
from genelab.managers import EventTermCfg, ScheduleCfg
from genelab.mdp import GaitClockCfg, ScriptedJointPositionActionCfg, VelocityCommandCfg
from genelab.mdp.clock import get_clock
from genelab.mdp.scripted_action import ScriptedJointPositionAction
from genelab.mdp.sensors import get_sensor
from genelab.rl.export_metadata import describe_actions
from genelab.rl.targets.run import Clock, Controller, scripted
from genelab.rl.transforms import check_transforms, transforms_of
from genelab.scene import ContactSensor
from genelab.sim.mujoco_engine import MujocoEngine
from tests.mdp.hopper import MakeEnv, pose, reward
from tests.narrow import as_kind

STEPS = {"left_leg": {"left": 0.2}, "right_leg": {"right": 0.1}}


def walker(
    make_env: MakeEnv,
    share: float = 1.0,
    strides: dict[str, Any] | None = None,
    spread: dict[str, Any] | None = None,
    average_s: float = 0.0,
    lead: float = 0.0,
    **settings: Any,
) -> ManagerBasedRlEnv:
    """Two legs half a period apart at 12.5 Hz: a period is eight control steps of 0.01 s."""
    command = VelocityCommandCfg(lin_vel_x=(1.0, 1.0), lin_vel_y=(0.0, 0.0), ang_vel_z=(0.0, 0.0))
    clock = GaitClockCfg(frequency=12.5, offsets={"left_leg": 0.0, "right_leg": 0.5})
    action = ScriptedJointPositionActionCfg(
        scale=0.1, steps=STEPS, strides=strides or {}, spread=spread or {}, share=share, average_s=average_s, lead=lead
    )
    return make_env(commands={"twist": command, "gait": clock}, actions={"legs": action}, **settings)


def test_each_foot_lifts_and_stands_for_half_a_period(make_env: MakeEnv) -> None:
    env = walker(make_env)
    clock = get_clock(env, "gait")
    clock.phase[:] = 0.0
    lifts = []
    for _ in range(8):
        env.step(torch.zeros(4, 2))
        lifts.append(clock.lift[1].tolist())
    left, right = zip(*lifts, strict=True)
    assert left == pytest.approx([0.5, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0], abs=1e-9)
    assert right == pytest.approx([0.0, 0.0, 0.0, 0.0, 0.5, 1.0, 0.5, 0.0], abs=1e-9)


def test_a_clock_may_follow_some_axes_alone(make_env: MakeEnv) -> None:
    env = walker(make_env)
    clock = get_clock(env, "gait")
    clock.cfg.command_axes = (1, 2)
    for command, moves in (((1.0, 0.0, 0.0), False), ((1.0, 0.1, 0.0), True), ((0.0, 0.0, -0.2), True)):
        env.commands.term("twist").fix(torch.tensor([command] * 4).double())
        clock.update()
        assert clock.moving.tolist() == [moves] * 4


def test_a_foot_lands_ahead_and_moves_back_evenly_while_it_stands(make_env: MakeEnv) -> None:
    env = walker(make_env)
    clock = get_clock(env, "gait")
    sweeps = []
    for eighth in range(8):
        clock.phase[:] = eighth / 8
        sweeps.append(clock.sweep[1].tolist())
    left, right = zip(*sweeps, strict=True)
    half = math.sqrt(0.5)
    assert left == pytest.approx([-1.0, -half, 0.0, half, 1.0, 0.5, 0.0, -0.5], abs=1e-9)
    assert right == pytest.approx([*left[4:], *left[:4]], abs=1e-9)
    clock.phase[:] = 0.125
    assert clock.sweep_ahead(0.25)[1].tolist() == pytest.approx([left[3], right[3]], abs=1e-9)
    env.commands.term("twist").fix(torch.zeros(4, 3).double())
    clock.update()
    assert clock.sweep.tolist() == [[0.0, 0.0]] * 4


def test_it_shows_sine_and_cosine_and_hides_at_rest(make_env: MakeEnv) -> None:
    env = walker(make_env)
    clock = get_clock(env, "gait")
    clock.phase[:] = 0.0
    env.step(torch.zeros(4, 2))
    assert env.commands["gait"][1].tolist() == pytest.approx([math.sqrt(0.5)] * 2)
    env.commands.term("twist").fix(torch.zeros(1, 3).double(), torch.tensor([1]))
    env.step(torch.zeros(4, 2))
    assert env.commands["gait"][1].tolist() == [0.0, 0.0]
    assert clock.lift[1].tolist() == pytest.approx([0.0, 0.0])
    assert clock.phase[1] == 0.0  # and starts with all feet on the ground
    assert env.commands["gait"][2].tolist() == pytest.approx([1.0, 0.0], abs=1e-9)


def test_it_runs_out_when_the_robot_is_to_stand(make_env: MakeEnv) -> None:
    env = walker(make_env)
    clock = get_clock(env, "gait")
    clock.cfg.run_out = 0.025
    clock.phase[:] = torch.tensor([0.0, 0.5, 0.75, 0.75]).double()
    env.commands.term("twist").fix(torch.zeros(4, 3).double())
    moving = []
    for _ in range(12):
        env.step(torch.zeros(4, 2))
        moving.append(clock.moving.tolist())
    # Two steps and a half, and then to the end of the period.
    assert [sum(steps) for steps in zip(*moving, strict=True)] == [7, 3, 9, 9]
    env.reset()
    assert not clock.moving.any()  # who begins at rest stands


def test_episodes_begin_anywhere_in_the_period(make_env: MakeEnv) -> None:
    assert len(set(get_clock(walker(make_env), "gait").phase.tolist())) == 4


def test_feet_are_paid_for_being_where_the_clock_wants_them(make_env: MakeEnv) -> None:
    env = walker(make_env)
    get_clock(env, "gait").phase[:] = 0.25  # the left foot is at the top of its swing, the right one stands
    env.robot.write_joint_state(torch.tensor([0.08, 0.0]).double().repeat(4, 1), None, None)
    pose(env, z=0.6)  # soles at 0.08 and 0
    params = {"clock": "gait", "feet": "feet", "height": 0.1, "std": 0.02}
    assert reward(env, mdp.feet_height_phase, **params) == pytest.approx(math.exp(-1.0), rel=1e-4)
    assert reward(env, mdp.feet_height_phase, **params, ground=0.02) == pytest.approx(math.exp(-5.0), rel=1e-4)
    env.step(torch.zeros(4, 2))
    get_clock(env, "gait").phase[:] = 0.25
    assert get_sensor(env, "contact", ContactSensor).touching[1].tolist() == [False, True]
    assert reward(env, mdp.feet_contact_phase, clock="gait", contact="contact") == 1.0
    get_clock(env, "gait").phase[:] = 0.75
    assert reward(env, mdp.feet_contact_phase, clock="gait", contact="contact") == 0.0


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
def test_the_script_is_under_the_action(make_env: MakeEnv, share: float) -> None:
    env = walker(make_env, share)
    get_clock(env, "gait").phase[:] = 0.25
    env.step(torch.tensor([[1.0, -1.0]]).repeat(4, 1))
    assert env.robot.joint_pos_target[1].tolist() == pytest.approx([0.1 + share * 0.2, -0.1])


def test_strides_follow_the_command(make_env: MakeEnv) -> None:
    env = walker(make_env, 0.5, {"left_leg": {"left": (0.3, 0.0, 0.0)}, "right_leg": {"right": (0.1, 0.4, 0.0)}})
    env.commands.term("twist").fix(torch.tensor([[1.0, 0.5, 9.0]]).double().repeat(4, 1))
    get_clock(env, "gait").phase[:] = 0.0  # the left foot lifts off, the right one lands
    env.step(torch.zeros(4, 2))
    assert env.robot.joint_pos_target[1].tolist() == pytest.approx([0.5 * -0.3, 0.5 * (0.1 + 0.2)])
    (action,) = describe_actions(env.action_manager.terms.values())
    assert action["strides"]["right_leg"] == [[0.0, 0.1], [0.0, 0.4], [0.0, 0.0]]
    with pytest.raises(ConfigError, match=r"strides.left_leg.left: needs 3 numbers, got 1"):
        walker(make_env, strides={"left_leg": {"left": (0.3,)}})


def test_legs_spread_as_far_as_the_command_is_fast(make_env: MakeEnv) -> None:
    env = walker(make_env, 0.5, spread={"left": (0.0, 0.2, 0.0), "right": (0.1, -0.2, 0.0)})
    env.commands.term("twist").fix(torch.tensor([[1.0, -0.5, 0.0]]).double().repeat(4, 1))
    get_clock(env, "gait").phase[:] = 0.0  # no foot is lifted
    env.step(torch.zeros(4, 2))
    assert env.robot.joint_pos_target[1].tolist() == pytest.approx([0.5 * 0.1, 0.5 * (0.1 - 0.1)])
    (action,) = describe_actions(env.action_manager.terms.values())
    assert action["spread"] == [[0.0, 0.1], [0.2, -0.2], [0.0, 0.0]]
    with pytest.raises(ConfigError, match=r"spread.left: needs 3 numbers, got 2"):
        walker(make_env, spread={"left": (0.3, 0.0)})


def test_strides_may_follow_the_mean_of_the_last_commands(make_env: MakeEnv) -> None:
    """Over 0.04 s, four control steps; before an episode its first command counts."""
    env = walker(make_env, spread={"right": (0.1, 0.0, 0.0)}, average_s=0.04)
    script = as_kind(env.action_manager.terms["legs"], ScriptedJointPositionAction)
    clock, twist = get_clock(env, "gait"), env.commands.term("twist")
    angles = []
    for ahead in (0.5, 0.5, 1.5, 1.5, -1.0):
        twist.fix(torch.tensor([[ahead, 0.0, 0.0]]).double().repeat(4, 1))
        clock.phase[:] = 0.0  # the right foot stands
        env.step(torch.zeros(4, 2))
        angles.append(env.robot.joint_pos_target[1, 1].item())
    assert angles == pytest.approx([0.05, 0.05, 0.075, 0.1, 0.0625])
    script.reset(torch.tensor([1]))
    clock.phase[:] = 0.0
    env.step(torch.zeros(4, 2))
    assert env.robot.joint_pos_target[:, 1].tolist() == pytest.approx([0.025, 0.1, 0.025, 0.025])  # of -1, either way
    (action,) = describe_actions(env.action_manager.terms.values())
    assert action["frames"] == 4


def test_who_runs_an_export_makes_the_same_script_of_changing_commands(make_env: MakeEnv) -> None:
    strides = {"left_leg": {"left": (0.3, 0.0, 0.1)}, "right_leg": {"right": (0.1, 0.4, 0.0)}}
    env = walker(make_env, strides=strides, spread={"right": (0.1, 0.2, 0.0)}, average_s=0.05)
    (about,) = describe_actions(env.action_manager.terms.values())
    clock, twist = get_clock(env, "gait"), env.commands.term("twist")
    offsets = dict(zip(clock.foot_names, (0.0, 0.5), strict=True))
    theirs = Clock({"command": "twist", "swing_share": clock.cfg.swing_share, "offsets": offsets, "run_out": 0.0}, 0.01)
    controller = Controller.__new__(Controller)
    controller.clocks, controller.past, theirs.runs = {"gait": theirs}, {}, True
    draw = torch.Generator().manual_seed(0)
    for _ in range(12):
        command = torch.rand(4, 3, generator=draw, dtype=torch.float64) + 0.2
        action = torch.rand(4, 2, generator=draw, dtype=torch.float64)
        twist.fix(command)
        theirs.phase = clock.phase[1].item()
        env.step(action)
        expected = scripted(controller, about, action[1].numpy(), {"twist": command[1].numpy()})
        assert env.robot.joint_pos_target[1].tolist() == pytest.approx(expected.tolist(), abs=1e-6)


@pytest.mark.parametrize("run_out", [0.0, 0.025])
def test_the_clock_of_an_export_equals_the_one_of_the_lab(make_env: MakeEnv, run_out: float) -> None:
    """Command by command the same sine and cosine: the first step of a walk shows the clock one step on."""
    env = walker(make_env)
    clock, twist = get_clock(env, "gait"), env.commands.term("twist")
    clock.cfg.run_out = run_out
    about = {"frequency": 12.5, "run_out": run_out, "command_axes": None, "threshold": clock.cfg.threshold}
    theirs = Clock(about, env.step_dt)
    stand, walk = (0.0, 0.0, 0.0), (0.5, 0.0, 0.0)
    theirs.see(np.array(stand))
    twist.fix(torch.tensor([stand]).double().repeat(4, 1))
    clock.phase[:], clock.resting[:], clock.moving[:] = 0.0, run_out, False  # an episode that begins at rest
    clock.update()
    for asked in [stand] * 3 + [walk] * 11 + [stand] * 14 + [walk] * 5:
        twist.fix(torch.tensor([asked]).double().repeat(4, 1))
        env.step(torch.zeros(4, 2))
        theirs.tick(np.array(asked))
        assert theirs.shown.tolist() == pytest.approx(env.commands["gait"][0].tolist(), abs=1e-9)
        assert theirs.runs == clock.moving[0].item()


def test_the_script_may_fade(make_env: MakeEnv) -> None:
    fade = {"fade": ScheduleCfg(start=1.0, end=0.0, steps=2)}
    env = walker(make_env, schedules=fade)
    as_kind(env.cfg.actions["legs"], ScriptedJointPositionActionCfg).schedule = "fade"
    targets = []
    for _ in range(3):
        get_clock(env, "gait").phase[:] = 0.25
        env.step(torch.zeros(4, 2))
        targets.append(env.robot.joint_pos_target[1, 0].item())
    assert targets == pytest.approx([0.2, 0.1, 0.0])
    ended = ScriptedJointPositionActionCfg(steps=STEPS, schedule="fade")
    ended.end_schedules({"fade": 0.25})
    assert (ended.share, ended.schedule) == (0.25, None)


def test_a_policy_is_judged_above_as_much_of_the_script_as_it_was_trained_for(make_env: MakeEnv) -> None:
    trained = walker(make_env, 0.5, schedules={"fade": ScheduleCfg(start=1.0, end=0.4, steps=2)})
    as_kind(trained.cfg.actions["legs"], ScriptedJointPositionActionCfg).schedule = "fade"
    saved = transforms_of(trained)
    assert saved["env.actions.legs.share"] == 0.2  # what will be left of it
    check_transforms(saved, walker(make_env, 0.2), Path("policy.pt"))
    with pytest.raises(UsageError, match=r"share 0.2, here 1: pass `env.actions.legs.share=0.2`"):
        check_transforms(saved, walker(make_env), Path("policy.pt"))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"average_s": 0.04}, r"frames 1, here 4: pass `env.actions.legs.average_s=0`"),
        ({"lead": 0.1}, r"lead 0, here 0.1: pass `env.actions.legs.lead=0`"),
        (
            {"strides": {"left_leg": {"left": (0.1, 0.0, 0.0)}}},
            r"strides .* for left_leg: give env.actions.legs.strides",
        ),
        ({"spread": {"right": (0.1, 0.0, 0.0)}}, r"spread .*: give env.actions.legs.spread what it had in training"),
    ],
)
def test_a_policy_is_judged_above_the_script_that_it_was_trained_with(
    make_env: MakeEnv, other: dict[str, Any], message: str
) -> None:
    saved = transforms_of(walker(make_env))
    check_transforms(saved, walker(make_env), Path("policy.pt"))
    with pytest.raises(UsageError, match=message):
        check_transforms(saved, walker(make_env, **other), Path("policy.pt"))
    past = transforms_of(walker(make_env, average_s=0.04))
    with pytest.raises(UsageError, match=r"frames 4, here 1: pass `env.actions.legs.average_s=0.04`"):
        check_transforms(past, walker(make_env), Path("policy.pt"))


def test_metadata_tell_the_script(make_env: MakeEnv) -> None:
    (action,) = describe_actions(walker(make_env, 0.5).action_manager.terms.values())
    assert (action["clock"], action["share"]) == ("gait", 0.5)
    assert action["steps"] == {"left_leg": [0.2, 0.0], "right_leg": [0.0, 0.1]}
    assert action["joint_names"] == ["left", "right"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"frequency": 0.0}, "env.commands.gait.frequency: must be positive"),
        ({"swing_share": 1.0}, "env.commands.gait.swing_share: must be between 0 and 1"),
        ({"run_out": -1.0}, "env.commands.gait.run_out: must not be negative"),
        ({"offsets": {"left_leg": 0.0}}, "no value for right_leg"),
    ],
)
def test_a_clock_that_cannot_run_is_refused(make_env: MakeEnv, settings: dict[str, Any], message: str) -> None:
    values = {"frequency": 1.0, "offsets": {".*": 0.0}, **settings}
    twist = VelocityCommandCfg(lin_vel_x=(1.0, 1.0), lin_vel_y=(0.0, 0.0), ang_vel_z=(0.0, 0.0))
    with pytest.raises(ConfigError, match=message):
        make_env(commands={"twist": twist, "gait": GaitClockCfg(**values)})


def helped(make_env: MakeEnv, steps: int = 1000) -> ManagerBasedRlEnv:
    params = {"schedule": "hand", "height": 0.6, "lead": (10.0, 5.0), "command": "twist"}
    hand = EventTermCfg(func=mdp.HelpingWrench, mode="step", params=params)
    schedules = {"hand": ScheduleCfg(start=1.0, end=0.0, steps=steps)}
    return make_env(events={"hand": hand}, schedules=schedules)


def test_a_hand_turns_the_root_upright_carries_and_leads_it(make_env: MakeEnv) -> None:
    env = helped(make_env)
    tilted = (math.cos(0.1), math.sin(0.1), 0.0, 0.0)  # rolled by 0.2 rad
    pose(env, quat=tilted, z=0.5)
    env.event_manager.advance(env.step_dt)
    wrench = as_kind(env.scene.engine, MujocoEngine)._views["xfrc_applied"][1, env.robot.body_ids[0]].tolist()
    force, torque = wrench[:3], wrench[3:]
    assert torque[0] == pytest.approx(-80.0 * math.sin(0.2))
    assert force[2] == pytest.approx(800.0 * 0.1)
    assert force[:2] == pytest.approx([10.0 * 1.0, 10.0 * 0.5])  # towards 1 m/s ahead and 0.5 m/s to the left
    assert torque[2] == pytest.approx(5.0 * -0.5 * math.cos(0.2))


def test_a_hand_lets_go(make_env: MakeEnv) -> None:
    env = helped(make_env, steps=2)
    pose(env, z=0.5)
    forces = []
    for _ in range(4):
        env.step(torch.zeros(4, 2))
        forces.append(as_kind(env.scene.engine, MujocoEngine)._views["xfrc_applied"][1].abs().max().item())
    assert forces[0] > 1.0
    assert forces[1:] == [0.0, 0.0, 0.0]
    assert not as_kind(env.event_manager.terms["hand"]._func, mdp.HelpingWrench).holds
