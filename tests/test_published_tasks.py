"""Tasks against the table of their published settings, and their rewards against the published formulas."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, is_dataclass
from typing import Any

import pytest
import torch

from benchmarks.published import FUNCTIONS, TABLE, published_rewards
from genelab import mdp
from genelab.config import TASKS
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import EventTermCfg, RewardTermCfg, TerminationTermCfg
from genelab.managers.noise import UniformNoiseCfg
from genelab.rl.config import RslRlOnPolicyRunnerCfg, Sb3AgentCfg
from genelab.scene.terrains import TerrainGeneratorCfg
from genelab_franka.pick_place import at_goal, cube_fell
from genelab_pendulum.double_pendulum import joint_difference_l2
from tests.narrow import as_kind

TABLES: dict[str, Any] = json.loads(TABLE.read_text())["tasks"]
WALKERS = [task for task in TABLES if "Velocity" in task]
OURS = {
    "action_rate_l2": mdp.action_rate_l2,
    "angular_momentum_penalty": mdp.angular_momentum_l2,
    "angular_velocity_tracking_error_l1": mdp.error_vel_yaw,
    "applied_torque_l2": mdp.joint_torques_l2,
    "at_goal": at_goal,
    "bad_anchor_ori": mdp.motion_anchor_tilted,
    "bad_anchor_pos_z_only": mdp.motion_anchor_too_far,
    "bad_motion_body_pos_z_only": mdp.motion_end_effector_too_far,
    "bad_orientation": mdp.bad_orientation,
    "base_height_l2": mdp.base_height_l2,
    "body_angular_velocity_penalty": mdp.body_ang_vel_xy_l2,
    "body_com_offset": mdp.randomize_com,
    "body_mass_offset": mdp.randomize_mass,
    "contact_force_limit": mdp.any_contact,
    "cube_fell": cube_fell,
    "encoder_bias": mdp.randomize_encoder_bias,
    "feet_air_time": mdp.air_time,
    "feet_clearance": mdp.foot_clearance,
    "feet_slip": mdp.foot_slip,
    "feet_swing_height": mdp.FootSwingHeight,
    "flat_orientation_l2": mdp.flat_orientation_l2,
    "geom_friction": mdp.randomize_friction,
    "is_alive": mdp.is_alive,
    "joint_acc_l2": mdp.JointAccL2,
    "joint_cos": mdp.joint_cos,
    "joint_difference_l2": joint_difference_l2,
    "joint_pos_beyond": mdp.joint_pos_beyond,
    "joint_pos_l2": mdp.joint_pos_l2,
    "joint_pos_limits": mdp.joint_pos_limits,
    "joint_vel_l2": mdp.joint_vel_l2,
    "lin_vel_z_l2": mdp.lin_vel_z_l2,
    "motion_command_reset": mdp.reset_to_motion,
    "motion_global_anchor_orientation_error_exp": mdp.motion_anchor_ori_exp,
    "motion_global_anchor_position_error_exp": mdp.motion_anchor_pos_exp,
    "motion_global_body_angular_velocity_error_exp": mdp.motion_body_ang_vel_exp,
    "motion_global_body_linear_velocity_error_exp": mdp.motion_body_lin_vel_exp,
    "motion_relative_body_orientation_error_exp": mdp.motion_body_ori_exp,
    "motion_relative_body_position_error_exp": mdp.motion_body_pos_exp,
    "push_by_setting_velocity": mdp.push_by_velocity,
    "randomize_joint_stiffness_damping": mdp.randomize_gains,
    "reset_joints_by_offset": mdp.reset_joints_by_offset,
    "reset_root_state_uniform": mdp.reset_root_uniform,
    "self_collision_cost": mdp.RecentContacts,
    "set_joint_velocity": mdp.set_joint_velocity,
    "soft_landing": mdp.soft_landing,
    "time_out": mdp.time_out,
    "track_angular_velocity_z_exp": mdp.track_ang_vel_exp,
    "track_linear_velocity_xy_exp": mdp.track_lin_vel_exp,
    "upright_exp": mdp.upright_exp,
    "variable_posture": mdp.VariablePosture,
    "velocity_tracking_error_l1": mdp.error_vel_y,
}
"""Published functions and ours."""
ENDS_OF_OURS = {"out_of_terrain", "motion_ended"}
"""Truncations that the published tasks do not have: at the edge of a finite ground and at the end of a motion."""


def _close(ours: Any, published: Any) -> None:
    """Compare numbers to six digits, wherever they are in dicts and lists."""
    ours = asdict(ours) if is_dataclass(ours) and not isinstance(ours, type) else ours
    if isinstance(published, dict):
        assert ours.keys() == published.keys()
        for key, value in published.items():
            _close(ours[key], value)
    elif isinstance(published, list):
        assert len(ours) == len(published)
        for one, value in zip(ours, published, strict=True):
            _close(one, value)
    else:
        assert ours == (pytest.approx(published, rel=1e-5, abs=1e-9) if isinstance(published, float) else published)


def _row(term: RewardTermCfg | TerminationTermCfg | EventTermCfg, published: dict[str, Any]) -> None:
    """Compare the function and parameters of a term; the part of the robot by its name."""
    assert term.func is OURS[published["function"]]
    params, expected = dict(term.params), dict(published["params"])
    asset = params.pop("asset", None)
    if "body" in expected:
        assert tuple(asset.body_names) == (expected.pop("body"),)
    expected.pop("force", None)  # the sensor's
    for name in ("geoms", "schedule"):
        params.pop(name, None)
    _close(params, expected)


@pytest.fixture(params=list(TABLES))
def table(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return request.param, TABLES[request.param]


def test_each_reward_is_the_published_one(table: tuple[str, dict[str, Any]]) -> None:
    name, published = table
    for task, play in ((TASKS.get(name), True), (TASKS.get(name + "@published"), False)):
        cfg = as_kind(task.playing if play else task.env, ManagerBasedRlEnvCfg)
        assert cfg.rewards.keys() == published["rewards"].keys()
        for key, row in published["rewards"].items():
            term = cfg.rewards[key]
            assert term is not None
            assert term.weight == pytest.approx(row["weight"])
            _row(term, row)


def test_training_adds_rewards_and_changes_none(table: tuple[str, dict[str, Any]]) -> None:
    """Weights may follow a schedule, which ends at the published weight."""
    name, published = table
    cfg = as_kind(TASKS.get(name).env, ManagerBasedRlEnvCfg)
    for key, row in published["rewards"].items():
        term = cfg.rewards[key]
        assert term is not None
        assert term.weight == pytest.approx(row["weight"])
        _row(term, row)
        if term.schedule is not None:
            assert cfg.schedules[term.schedule].end == 1.0


def test_commands_ends_events_and_physics_are_the_published_ones(table: tuple[str, dict[str, Any]]) -> None:
    name, published = table
    cfg = as_kind(TASKS.get(name + "@published").env, ManagerBasedRlEnvCfg)
    physics = published["physics"]
    assert (cfg.simulation.dt, cfg.decimation) == (physics["dt"], physics["decimation"])
    assert (cfg.episode_length_s, cfg.scene.num_envs) == (physics["episode_length_s"], physics["num_envs"])
    if "command" in published:
        twist = as_kind(cfg.commands["twist"], mdp.VelocityCommandCfg)
        _close({key: getattr(twist, key) for key in published["command"]}, published["command"])
        assert twist.axis_share == 0.0
    assert set(cfg.terminations) - ENDS_OF_OURS == published["terminations"].keys()
    for key, row in published["terminations"].items():
        term = cfg.terminations[key]
        assert term is not None
        assert term.time_out is row["time_out"]
        _row(term, row)
    assert cfg.events.keys() == published["events"].keys()
    for key, row in published["events"].items():
        event = cfg.events[key]
        assert event.mode == row["mode"]
        _close(event.interval_range_s, row.get("interval_range_s"))
        _row(event, row)
    stages = [
        {key: value for key, value in asdict(stage).items() if value is not None}
        for stage in (cfg.curriculum["command_ranges"].params["stages"] if "command_stages" in published else ())
    ]
    _close(stages, published.get("command_stages", []))


def test_our_own_task_has_the_published_ends_and_commands(table: tuple[str, dict[str, Any]]) -> None:
    """The config that policies are judged in: only clock, script, physics step and wheels differ."""
    name, published = table
    judged = as_kind(TASKS.get(name).playing, ManagerBasedRlEnvCfg)
    assert set(judged.terminations) - ENDS_OF_OURS == published["terminations"].keys()
    for key, row in published["terminations"].items():
        term = judged.terminations[key]
        assert term is not None
        _row(term, row)
    if "command" in published:
        twist = as_kind(judged.commands["twist"], mdp.VelocityCommandCfg)
        _close({key: getattr(twist, key) for key in published["command"]}, published["command"])


def test_noise_widths_and_ground_are_the_published_ones(table: tuple[str, dict[str, Any]]) -> None:
    name, published = table
    cfg = as_kind(TASKS.get(name + "@published").env, ManagerBasedRlEnvCfg)
    group = cfg.observations["observation" if "observation" in cfg.observations else "policy"]
    assert group.enable_noise
    noise = {}
    for key, term in group.terms.items():
        if term.noise is not None:
            width = as_kind(term.noise, UniformNoiseCfg)
            assert width.low == -width.high
            noise[key] = width.high
    extra = {"ee_to_cube": 0.002} if "Franka" in name else {}  # in the place of the goal, which is not to be seen
    assert noise == published["noise"] | extra
    assert group.history_length == published.get("history_length", group.history_length)
    for action in cfg.actions.values():
        assert action.noise_std == published.get("action_noise_std", 0.0)
        assert list(action.delay) == published.get("action_delay", [0, 0])
    if "ground" in published:
        ground, terrain = published["ground"], as_kind(cfg.scene.terrain, TerrainGeneratorCfg)
        assert [terrain.rows, len(as_kind(terrain.columns, tuple))] == ground["cells"]
        assert terrain.cell_size == ground["cell_size"]
        assert cfg.curriculum["terrain_levels"].params["promote_distance"] == ground["promote_distance"]
    cfg.scene.num_envs = 2
    env = ManagerBasedRlEnv(play_cfg(cfg, num_envs=2))
    env.cfg.simulation.vis = False
    observations, _ = env.reset(seed=0)
    widths = {key: value.shape[1] for key, value in observations.items()} | {"action": env.action_dim}
    env.close()
    assert widths == published["widths"]


def test_the_learner_is_the_published_one(table: tuple[str, dict[str, Any]]) -> None:
    name, published = table
    agent, rows = TASKS.get(name + "@published").agent, published["agent"]
    if isinstance(agent, Sb3AgentCfg):
        for key, value in rows.items():
            _close(getattr(agent, key) if hasattr(agent, key) else getattr(agent.off_policy, key), value)
        return
    runner = as_kind(agent, RslRlOnPolicyRunnerCfg)
    assert runner.algorithm.symmetry_cfg is None or "Go2W" in name
    for key, value in rows.items():
        for part in (runner, runner.algorithm, runner.actor, runner.actor.distribution):
            if hasattr(part, key):
                _close(getattr(part, key), value)
                break
        else:
            raise AssertionError(f"the learner has no {key}")


@pytest.mark.parametrize("task", WALKERS)
def test_rewards_equal_the_published_formulas_step_by_step(task: str) -> None:
    """Robots that step, slip, fall and start anew; some are to stand, some to go."""
    cfg = as_kind(TASKS.get(task).playing, ManagerBasedRlEnvCfg)
    cfg.scene.num_envs, cfg.simulation.vis, cfg.episode_length_s, cfg.seed = 6, False, 1.0, 0
    ours = list(cfg.rewards)
    cfg.rewards |= {f"published/{name}": term for name, term in published_rewards(task).items()}
    env = ManagerBasedRlEnv(cfg)
    env.reset(seed=0)
    commands = torch.tensor(
        [[0.0, 0.0, 0.0], [0.03, 0.0, 0.03], [1.0, 0.0, 0.0], [0.3, 0.3, 0.2], [0.0, 0.0, 0.9], [0.9, 0.0, 0.6]]
    )
    env.commands.term("twist").fix(commands.to(env.dtype))
    chance = torch.Generator().manual_seed(1)
    names, largest = list(env.reward_manager.terms), dict.fromkeys(ours, 0.0)
    for _ in range(120):
        env.step(1.5 * torch.randn(6, env.action_dim, generator=chance))
        paid = dict(zip(names, env.reward_manager.step_reward.unbind(dim=0), strict=True))
        for name in ours:
            torch.testing.assert_close(paid[name], paid[f"published/{name}"], rtol=2e-4, atol=2e-6, msg=name)
            largest[name] = max(largest[name], paid[name].abs().max().item())
    env.close()
    silent = {name for name, value in largest.items() if value == 0.0}
    assert silent <= {"joint_pos_limits", "thigh_contact", "leg_contact", "self_collisions", "soft_landing"}


def test_every_published_formula_is_used_or_ours() -> None:
    named = {row["function"] for table in TABLES.values() for row in table["rewards"].values()}
    assert FUNCTIONS.keys() <= named <= OURS.keys()


def test_gates_differ_from_the_norm_where_robots_are_to_go_slowly() -> None:
    """(0.03, 0, 0.03) asks to move at a threshold of 0.05: the sum counts, not the norm."""
    from genelab.mdp.gait import asks_to_move

    command = torch.tensor([[0.03, 0.0, 0.03], [0.03, 0.0, 0.0], [0.0, 0.04, 0.0], [0.9, 0.0, 0.0]])
    assert asks_to_move(command, 0.05).tolist() == [True, False, False, True]
    assert asks_to_move(command, 0.03, (1, 2)).tolist() == [False, False, True, False]
    assert math.hypot(0.03, 0.03) < 0.05
