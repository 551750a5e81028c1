"""Go2-W: stacked frames, wheels that roll or are locked, and what is for training only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from genelab import TASKS
from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.mdp import RollingAction
from genelab.mdp.clock import get_clock
from genelab.mdp.sensors import get_sensor
from genelab.rl import export_metadata
from genelab.rl.config import RslRlOnPolicyRunnerCfg
from genelab.scene import PointsSensor
from genelab_unitree.robots.go2w import WHEEL_RADIUS, WHEELS
from tests.narrow import as_kind

FLAT = "Genelab-Velocity-Flat-Unitree-Go2W-v0"
STAGE_1 = "Genelab-Velocity-Flat-Unitree-Go2W-CrabStage1-v0"


def make(task: str, *, training: bool = False, num_envs: int = 4) -> ManagerBasedRlEnv:
    cfg = rl_cfg(task, play=not training)
    cfg.scene.num_envs, cfg.seed, cfg.simulation.vis = num_envs, 0, False
    return ManagerBasedRlEnv(cfg)


@pytest.fixture
def env() -> Iterator[ManagerBasedRlEnv]:
    env = make(FLAT)
    env.reset(seed=0)
    yield env
    env.close()


def test_a_frame_is_as_wide_as_the_published_one(env: ManagerBasedRlEnv) -> None:
    """Angles of four wheels would grow without end: in their place are two columns of them, and two of the clock."""
    widths = {name: {term.name: term.dim for term in group.layout} for name, group in _groups(env).items()}
    assert widths["policy"] == {
        "base_ang_vel": 3,
        "projected_gravity": 3,
        "joint_pos": 12,
        "joint_vel": 16,
        "last_action": 16,
        "command": 3,
        "gait": 2,
        "wheel_angle": 2,
    }
    assert widths["critic"] == {"base_lin_vel": 3, **widths["policy"]}
    angles = env.robot.joint_pos.clone()
    angles[:, env.robot.find_joints(WHEELS)] = 1000.0
    env.robot.write_joint_state(angles, torch.zeros_like(angles), None)
    env.scene.engine.refresh()
    assert _groups(env)["policy"].compute(keep=False).abs().max() < 10.0


def _groups(env: ManagerBasedRlEnv) -> dict[str, Any]:
    return env.observation_manager.groups


def test_the_stack_is_rebuilt_from_single_frames_by_the_words_of_the_metadata(env: ManagerBasedRlEnv) -> None:
    """Frame 0 is the oldest, the last is now, and at the start of an episode all frames are the first one."""
    group = _groups(env)["policy"]
    about = export_metadata._groups([group])["policy"]
    count, width = about["history_length"], about["frame_dim"]
    assert (count, width, about["dim"]) == (5, 57, 285)
    stacks: list[torch.Tensor] = []
    seen = env.reset(seed=1)[0]["policy"]
    generator = torch.Generator().manual_seed(0)
    for step in range(40):
        frame = seen[:, -width:]  # what a robot measures now
        fresh = env.episode_length_buf == 0
        stacks = [torch.where(fresh[:, None], frame, old) for old in (stacks or [frame] * count)[1:]] + [frame]
        assert torch.equal(torch.cat(stacks, dim=1), seen), step
        if step == 20:
            env.episode_length_buf[:2] = env.max_episode_length - 1  # two episodes end
        seen = env.step(torch.randn(4, 16, generator=generator))[0]["policy"]


def test_history_is_part_of_the_state_bit_for_bit() -> None:
    env, other = make(FLAT, training=True), make(FLAT, training=True)
    generator = torch.Generator().manual_seed(0)
    actions = 0.5 * torch.randn(30, 4, 16, generator=generator)
    env.reset(seed=3)
    for action in actions[:10]:
        env.step(action)
    state = env.state_dict()
    expected = [env.step(action)[0] for action in actions[10:]]
    other.reset(seed=4)
    other.load_state_dict(state)
    for action, wanted in zip(actions[10:], expected, strict=True):
        got = other.step(action)[0]
        assert all(torch.equal(got[name], wanted[name]) for name in wanted)
    env.close()
    other.close()


def test_wheels_brake_where_they_do_not_roll_and_are_locked_in_stage_1() -> None:
    for task, scale, damping, effort in ((FLAT, 2.0, 5.0, 50.0), (STAGE_1, 0.0, 20.0, 50.0)):
        env = make(task)
        about = export_metadata.describe_actions(env.action_manager.terms.values())
        legs, wheels = about
        assert (legs["target"], legs["start"], legs["dim"]) == ("position", 0, 12)
        assert (wheels["target"], wheels["start"], wheels["dim"]) == ("velocity", 12, 4)
        assert legs["scale"] == [0.25] * 12
        assert wheels["scale"] == [scale] * 4
        robot = export_metadata._entity(env.robot)
        drives = dict(zip(robot["joint_names"], zip(robot["damping"], robot["effort_limit"], strict=True), strict=True))
        assert {drives[name] for name in wheels["joint_names"]} == {(damping, effort)}
        assert json.dumps(about)
        env.close()


def test_straight_ahead_wheels_roll_and_the_clock_rests(env: ManagerBasedRlEnv) -> None:
    """1 m/s on a radius of 0.086 m is 11.63 rad/s; a turn of 1 rad/s takes 2.35 rad/s from the left and gives it to the
    right."""
    commands = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    env.commands.term("twist").fix(commands)
    for _ in range(40):
        env.step(torch.zeros(4, 16))
    assert get_clock(env, "gait").moving.tolist() == [False, False, True, True]
    rolling = env.action_manager.terms["wheel_vel"]
    assert isinstance(rolling, RollingAction)
    left, right = rolling.speed[:, 0], rolling.speed[:, 1]
    assert left.tolist() == pytest.approx([11.628, -11.628, 0.0, -2.349], abs=1e-3)
    assert right.tolist() == pytest.approx([11.628, -11.628, 0.0, 2.349], abs=1e-3)


def test_before_it_has_learned_anything_it_rolls_ahead_and_steps_to_the_side_and_around(env: ManagerBasedRlEnv) -> None:
    """Zero action. On wheels that grip, their speed times their radius is the speed of the body, and feet stay down."""
    asked = torch.tensor([[0.5, 0.0, 0.0], [-0.5, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, -0.8]])
    env.commands.term("twist").fix(asked)
    made, wheels, highest = [], [], torch.zeros(4)
    for step in range(200):
        env.step(torch.zeros(4, 16))
        if step >= 75:
            made.append(torch.cat((env.robot.root_lin_vel_b[:, :2], env.robot.root_ang_vel_b[:, 2:]), dim=1))
            wheels.append(env.robot.joint_vel[:, env.robot.find_joints(WHEELS)].mean(dim=1))
            highest = torch.maximum(highest, get_sensor(env, "feet", PointsSensor).height.amax(dim=1) - WHEEL_RADIUS)
    mean = torch.stack(made).mean(dim=0)
    share = (mean * asked).sum(dim=1) / asked.square().sum(dim=1)
    assert share[:2].tolist() == pytest.approx([1.0, 1.0], abs=0.1)
    assert share[2:].min() > 0.6
    assert (WHEEL_RADIUS * torch.stack(wheels).mean(dim=0))[:2].tolist() == pytest.approx(
        mean[:2, 0].tolist(), abs=0.05
    )
    assert highest[:2].max() < 0.02
    assert highest[2:].min() > 0.03


def test_models_noise_and_delays_are_for_training_only() -> None:
    for training in (True, False):
        env = make(FLAT, training=training)
        engine, model = env.scene.engine, env.scene.engine.model
        base, wheel = model.body("robot/base").id, model.geom("robot/FL_wheel").id
        drawn = {
            "friction": engine.get_model_field("geom_friction")[:, wheel, 0],
            "mass": engine.get_model_field("body_mass")[:, base],
            "centre": engine.get_model_field("body_ipos")[:, base, 1],
            "gain": env.robot.actuators["wheels"].gains()[1][:, 0],
            "encoder": env.robot.encoder_bias[:, 0],
        }
        assert {name: len(set(values.tolist())) == 4 for name, values in drawn.items()} == dict.fromkeys(
            drawn, training
        )
        wheels = [model.geom(f"robot/{leg}_wheel").id for leg in ("FL", "FR", "RL", "RR")]
        assert (engine.get_model_field("geom_friction")[:, wheels, 0].std(dim=1) == 0).all()  # one draw for all four
        noise = [action.noise_std for action in env.cfg.actions.values()]
        assert noise == ([0.05, 0.5] if training else [0.0, 0.0])  # 0.0125 rad and 1 rad/s
        assert {action.delay for action in env.cfg.actions.values()} == {(0, 2) if training else (0, 0)}
        env.close()


def test_both_stages_have_the_same_inputs_and_outputs() -> None:
    """So that the weights of the first are a start for the second."""
    schemas = []
    for task in (STAGE_1, FLAT):
        env = make(task)
        layout = {name: [(term.name, term.dim) for term in group.layout] for name, group in _groups(env).items()}
        schemas.append((layout, {name: term.dim for name, term in env.action_manager.terms.items()}))
        env.close()
    assert schemas[0] == schemas[1]
    first, second = (as_kind(TASKS.get(task).agent, RslRlOnPolicyRunnerCfg) for task in (STAGE_1, FLAT))
    assert first.actor == second.actor


def test_rewards_are_the_published_ones_in_the_end() -> None:
    common = {
        "track_lin_vel": 2.0,
        "track_ang_vel": 1.0,
        "lin_vel_z": -2.0,
        "ang_vel_xy": -0.05,
        "flat_orientation": -1.0,
        "base_height": -1.0,
        "joint_torques": -2e-4,
        "joint_acc": -1e-5,
        "action_rate": -0.01,
        "joint_pos_limits": -1.0,
        "leg_contact": -1.0,
    }
    own = {
        STAGE_1: {"air_time": 0.25, "foot_slip": -0.1},
        FLAT: {"air_time": 0.5, "vy_error_l1": -0.5, "wz_error_l1": -0.5},
    }
    for task, rows in own.items():
        assert {name: row.weight for name, row in rl_cfg(task, play=True).rewards.items()} == common | rows


def test_wheels_in_the_air_follow_their_targets_and_do_not_chatter() -> None:
    """Noise makes targets jump by some rad/s: with a limit of 15 N·m squared accelerations were 300 times as large."""
    env = make(FLAT, training=True)
    env.reset(seed=0)
    wheels, generator = env.robot.find_joints(WHEELS), torch.Generator().manual_seed(0)
    last, squares = env.robot.joint_vel[:, wheels].clone(), []
    for _ in range(60):
        env.step(0.5 * torch.randn(4, 16, generator=generator))
        squares.append(((env.robot.joint_vel[:, wheels] - last) / env.step_dt).square().sum(dim=1).mean())
        last = env.robot.joint_vel[:, wheels].clone()
    assert torch.stack(squares).mean() < 2e5
    env.close()
