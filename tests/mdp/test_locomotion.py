"""Terms for legged robots, on a hopper whose state is set by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from genelab import mdp
from genelab.envs import ManagerBasedEnv, ManagerBasedEnvCfg, ManagerBasedRlEnv
from genelab.errors import ConfigError
from genelab.managers import (
    CurriculumTermCfg,
    EventTermCfg,
    RewardTermCfg,
    SceneEntityCfg,
    ScheduleCfg,
    TerminationTermCfg,
    adapt,
)
from genelab.mdp import VelocityCommandCfg, VelocityStage
from genelab.mdp.sensors import get_sensor
from genelab.scene import ContactSensor, InitialStateCfg, RigidObjectCfg, SceneCfg, mjcf_text
from genelab.scene.terrains import FlatCfg, GeneratedTerrain, TerrainGeneratorCfg
from genelab.sim import SimulationCfg
from tests.mdp.hopper import GAIT, TRUNK, MakeEnv, observed, pose, reward, twist
from tests.narrow import as_kind

LEFT_90 = (math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5))
ROLL_30 = (math.cos(math.pi / 12), math.sin(math.pi / 12), 0.0, 0.0)


def test_a_velocity_is_judged_in_the_robots_own_frame(make_env: MakeEnv) -> None:
    env = make_env()
    # Facing left, along +y: a world velocity of (−0.2, 0.9) is 0.9 forward and 0.2 to the left.
    pose(env, quat=LEFT_90, velocity=(-0.2, 0.9, 0.3, 0.1, 0.0, 0.1))
    assert observed(env, mdp.base_lin_vel) == pytest.approx([0.9, 0.2, 0.3])
    assert observed(env, mdp.base_ang_vel) == pytest.approx([0.0, -0.1, 0.1], abs=1e-7)
    error = 0.1**2 + 0.3**2  # asked for (1.0, 0.5)
    linear = math.exp(-(error + 0.09) / 0.25)
    assert reward(env, mdp.track_lin_vel_exp, command="twist", std=0.5) == pytest.approx(linear)
    angular = math.exp(-(0.36 + 0.01) / 0.25)
    assert reward(env, mdp.track_ang_vel_exp, command="twist", std=0.5) == pytest.approx(angular)
    assert reward(env, mdp.error_vel_xy, command="twist") == pytest.approx(math.sqrt(error))
    assert reward(env, mdp.error_vel_y, command="twist") == pytest.approx(0.3)
    assert reward(env, mdp.error_vel_yaw, command="twist") == pytest.approx(0.6)
    assert reward(env, mdp.lin_vel_z_l2) == pytest.approx(0.09)
    assert reward(env, mdp.ang_vel_xy_l2) == pytest.approx(0.01)


def test_posture(make_env: MakeEnv) -> None:
    env = make_env()
    pose(env, quat=ROLL_30, z=0.7)
    assert observed(env, mdp.projected_gravity) == pytest.approx([0.0, -0.5, -math.sqrt(0.75)])
    assert reward(env, mdp.flat_orientation_l2) == pytest.approx(0.25)
    assert reward(env, mdp.upright_exp, std=0.5, asset=TRUNK) == pytest.approx(math.exp(-1.0))
    assert reward(env, mdp.base_height_l2, target=0.5) == pytest.approx(0.04)


def test_joints_beyond_their_soft_limits_and_at_work(make_env: MakeEnv) -> None:
    env = make_env()
    env.robot.soft_joint_pos_limits = env.robot.joint_pos_limits * 0.5  # ±0.1 m
    env.robot.write_joint_state(torch.tensor([[0.15, -0.12]]).repeat(4, 1), torch.zeros(4, 2), None)
    env.scene.engine.refresh()
    assert reward(env, mdp.joint_pos_limits) == pytest.approx(0.05 + 0.02)
    assert reward(env, mdp.joint_torques_l2) == pytest.approx((500 * 0.15) ** 2 + (500 * 0.12) ** 2)


def test_acceleration_is_the_change_of_velocity_over_the_control_step_and_a_reset_is_none(make_env: MakeEnv) -> None:
    env = make_env(rewards={"acc": RewardTermCfg(func=mdp.JointAccL2, weight=1 / 0.01)})
    _, first, *_ = env.step(torch.full((4, 2), 0.5))
    before = env.robot.joint_vel.clone()
    _, second, *_ = env.step(torch.full((4, 2), 0.5))
    change = (env.robot.joint_vel - before).square().sum(dim=1) / 0.01**2
    assert first.tolist() == [0.0] * 4
    assert second.tolist() == pytest.approx(change.tolist())
    assert change[0] > 1.0


def test_angular_momentum_of_legs_that_circle_the_centre_of_mass(make_env: MakeEnv) -> None:
    env = make_env()
    pose(env, velocity=(0.0, 0.0, 0.0, 0.0, 0.0, 2.0))
    # Two legs of 1 kg, 0.3 m from the axis, at 2 rad/s: 2 · 1 · 0.3² · 2.
    assert reward(env, mdp.angular_momentum_l2) == pytest.approx(0.36**2)


def test_a_drift_has_no_angular_momentum(make_env: MakeEnv) -> None:
    env = make_env()
    pose(env, velocity=(1.0, 2.0, 3.0, 0.0, 0.0, 0.0))
    assert reward(env, mdp.angular_momentum_l2) == pytest.approx(0.0, abs=1e-20)


def test_feet_in_the_air_on_the_ground_and_landing(make_env: MakeEnv) -> None:
    env = make_env(gravity=10.0, height=0.62)
    env.commands.term("twist").fix(torch.tensor([[1.0, 0.0, 0.0]] * 2 + [[0.0, 0.0, 0.05]] * 2).double())
    peaks = RewardTermCfg(func=mdp.FootSwingHeight, params={**GAIT, "feet": "feet", "target": 0.01}, weight=100.0)
    swing = type(env.reward_manager)({"term": peaks}, env)
    landings = []
    for _ in range(12):
        env.step(torch.zeros(4, 2))
        landings.append(swing.compute().tolist())
    contact = get_sensor(env, "contact", ContactSensor)
    assert contact.touching.all()
    # Falls 2 cm; the first reading is after one step of 0.01 s, so the peak seen is 0.02 − 5·0.01² to a substep.
    landed = [row for row in landings if row[0] > 0]
    assert len(landed) == 1
    assert landed[0][0] == pytest.approx(2 * (0.0195 / 0.01 - 1) ** 2, rel=0.06)
    assert landed[0][2] == 0.0  # asked to stand still
    assert observed(env, mdp.foot_contact, sensor="contact") == [1.0, 1.0]
    force = contact.force_w[1, 0, 2].item()
    logs = observed(env, mdp.foot_contact_forces, sensor="contact")
    assert logs[2] == pytest.approx(math.log1p(force))
    assert observed(env, mdp.foot_height, sensor="feet") == pytest.approx([0.0, 0.0], abs=5e-3)


def test_the_time_of_a_step_counts_while_a_foot_is_in_the_air(make_env: MakeEnv) -> None:
    env = make_env(height=1.0)
    for _ in range(6):
        env.step(torch.zeros(4, 2))
    assert observed(env, mdp.foot_air_time, sensor="contact") == pytest.approx([0.06, 0.06])
    assert reward(env, mdp.air_time, window=(0.05, 0.5), **GAIT) == 2.0
    assert reward(env, mdp.air_time, window=(0.07, 0.5), **GAIT) == 0.0
    assert reward(env, mdp.air_time, window=(0.01, 0.05), **GAIT) == 0.0
    env.commands.term("twist").fix(torch.zeros(4, 3).double())
    assert reward(env, mdp.air_time, window=(0.05, 0.5), **GAIT) == 0.0
    for command, paid in (((1.0, 0.05, 0.04), 0.0), ((0.0, 0.0, -0.2), 2.0)):
        env.commands.term("twist").fix(torch.tensor([command] * 4).double())
        assert reward(env, mdp.air_time, window=(0.05, 0.5), command_axes=(1, 2), **GAIT) == paid


def test_a_foot_slips_on_the_ground_only_and_clears_it_in_the_air(make_env: MakeEnv) -> None:
    env = make_env(height=1.0)
    pose(env, z=1.0, velocity=(0.3, 0.4, 0.0, 0.0, 0.0, 0.0))
    assert reward(env, mdp.foot_slip, feet="feet", **GAIT) == 0.0
    moving = {"command": "twist", "threshold": 0.1}
    # Two feet 0.4 m above the ground at 0.5 m/s.
    assert reward(env, mdp.foot_clearance, feet="feet", target=0.1, **moving) == pytest.approx(2 * 0.3 * 0.5)


def test_posture_may_stray_further_when_running(make_env: MakeEnv) -> None:
    env = make_env()
    env.robot.write_joint_state(torch.tensor([[0.1, 0.0]]).repeat(4, 1), torch.zeros(4, 2), None)
    command = torch.tensor([[0.0, 0.0, 0.0], [0.5, 0.0, 0.2], [1.5, 0.0, 0.2], [0.0, 0.0, 0.0]]).double()
    env.commands.term("twist").fix(command)
    params = {
        "command": "twist",
        "standing": 0.1,
        "walking": {"left": 0.2, "right": 0.1},
        "running": 0.5,
        "walking_threshold": 0.05,
        "running_threshold": 1.5,
    }
    cfg = RewardTermCfg(func=mdp.VariablePosture, params=params, weight=100.0)
    values = type(env.reward_manager)({"term": cfg}, env).compute().tolist()
    expected = [math.exp(-((0.1 / std) ** 2) / 2) for std in (0.1, 0.2, 0.5, 0.1)]
    assert values == pytest.approx(expected)


# -- commands


def test_shares_of_standing_forward_and_heading_commands(make_env: MakeEnv) -> None:
    command = VelocityCommandCfg(
        lin_vel_x=(-1.0, 1.0),
        lin_vel_y=(-0.5, 0.5),
        ang_vel_z=(-2.0, 2.0),
        standing_share=0.2,
        forward_share=0.3,
        min_forward=0.4,
        heading_share=0.5,
    )
    env = make_env(num_envs=4000, commands={"twist": command})
    values, term = env.commands["twist"], twist(env)
    stands = (values == 0).all(dim=1)
    forward = (values[:, 0] > 0) & (values[:, 1:] == 0).all(dim=1)
    assert stands.double().mean().item() == pytest.approx(0.2, abs=0.02)
    assert forward.double().mean().item() == pytest.approx(0.8 * 0.3, abs=0.025)  # of those that do not stand
    assert values[forward, 0].min() == 0.4
    assert (values[forward, 0] == 0.4).double().mean().item() == pytest.approx(0.4, abs=0.04)
    free = ~stands & ~forward
    assert term.holds_heading[free].double().mean().item() == pytest.approx(0.5, abs=0.04)
    assert not term.holds_heading[~free].any()
    assert values[free, 0].min() < -0.98
    assert values[:, 1].abs().max() <= 0.5


def test_a_share_of_commands_along_one_axis(make_env: MakeEnv) -> None:
    """A third of them each way: forward or backward, left or right, turning."""
    command = VelocityCommandCfg(
        lin_vel_x=(-1.0, 1.0),
        lin_vel_y=(-1.0, 1.0),
        ang_vel_z=(-1.0, 1.0),
        standing_share=0.1,
        forward_share=0.1,
        axis_share=0.6,
        heading_share=1.0,
    )
    env = make_env(num_envs=4000, commands={"twist": command})
    asked, holds = env.commands["twist"] != 0, twist(env).holds_heading
    alone = asked.sum(dim=1) == 1
    assert alone.double().mean().item() == pytest.approx(0.9 * 0.7, abs=0.03)
    assert asked[alone].double().mean(dim=0).tolist() == pytest.approx([3 / 7, 2 / 7, 2 / 7], abs=0.03)
    assert env.commands["twist"][alone].min(dim=0).values.tolist() == pytest.approx([-1.0] * 3, abs=0.05)
    assert not holds[alone].any()


def test_a_heading_is_held_by_turning_the_short_way(make_env: MakeEnv) -> None:
    command = VelocityCommandCfg(
        lin_vel_x=(0.5, 0.5),
        lin_vel_y=(0.0, 0.0),
        ang_vel_z=(-1.0, 1.0),
        heading=(3.0, 3.0),
        heading_share=1.0,
        heading_stiffness=0.5,
    )
    env = make_env(commands={"twist": command})
    pose(env, quat=(math.cos(-1.5), 0.0, 0.0, math.sin(-1.5)))  # a yaw of −3
    env.commands.term("twist").update()
    assert env.commands["twist"][0].tolist() == pytest.approx([0.5, 0.0, 0.5 * (6.0 - 2 * math.pi)])
    pose(env, quat=(1.0, 0.0, 0.0, 0.0))
    env.commands.term("twist").update()
    assert env.commands["twist"][0, 2].item() == 1.0  # no faster than the range allows


def test_who_steers_is_not_overruled(make_env: MakeEnv) -> None:
    command = VelocityCommandCfg(
        resampling_time_range=(0.02, 0.02), lin_vel_x=(-1.0, 1.0), lin_vel_y=(-1.0, 1.0), ang_vel_z=(-1.0, 1.0)
    )
    env = make_env(commands={"twist": command})
    env.commands.term("twist").fix(torch.tensor([[0.25, 0.5, 0.125]]).double(), torch.tensor([2]))
    for _ in range(5):
        env.step(torch.zeros(4, 2))
    env.reset()
    assert env.commands["twist"][2].tolist() == [0.25, 0.5, 0.125]
    assert env.commands["twist"][1].tolist() != [0.25, 0.5, 0.125]


# -- events


def test_a_push_adds_to_the_velocity(make_env: MakeEnv) -> None:
    env = make_env()
    pose(env, velocity=(1.0, 0.0, 0.0, 0.0, 0.0, 0.5))
    params = {"velocity_range": {"x": (0.25, 0.25), "yaw": (-1.0, -1.0)}}
    events = {"push": EventTermCfg(func=mdp.push_by_velocity, mode="reset", params=params)}
    type(env.event_manager)(events, env).apply("reset", torch.tensor([1, 3]))
    assert env.robot.root_lin_vel_w[:, 0].tolist() == pytest.approx([1.0, 1.25, 1.0, 1.25])
    assert env.robot.root_ang_vel_w[:, 2].tolist() == pytest.approx([0.5, -0.5, 0.5, -0.5])
    assert env.robot.root_lin_vel_w[:, 1:].abs().max() == 0.0


def test_pushes_may_begin_gently(make_env: MakeEnv) -> None:
    env = make_env(schedules={"gently": ScheduleCfg(start=0.25, steps=2)})
    params = {"velocity_range": {"x": (1.0, 1.0)}, "schedule": "gently"}
    events = type(env.event_manager)(
        {"push": EventTermCfg(func=mdp.push_by_velocity, mode="reset", params=params)}, env
    )
    for share in (0.25, 0.625, 1.0, 1.0):
        pose(env, velocity=(0.0,) * 6)
        events.apply("reset", None)
        assert env.robot.root_lin_vel_w[:, 0].tolist() == pytest.approx([share] * 4)
        env.step(torch.zeros(4, 2))


def test_a_reset_jitters_about_the_origin(make_env: MakeEnv) -> None:
    params = {"pose_range": {"x": (0.1, 0.2), "yaw": (1.0, 1.0)}, "velocity_range": {"z": (0.5, 0.5)}}
    env = make_env(events={"place": EventTermCfg(func=mdp.reset_root_uniform, mode="reset", params=params)})
    x = env.robot.root_pos_w[:, 0]
    assert x.min() >= 0.1
    assert x.max() <= 0.2
    assert len(set(x.tolist())) == 4
    assert env.robot.root_pos_w[:, 2].tolist() == pytest.approx([0.6] * 4)
    assert env.robot.heading_w.tolist() == pytest.approx([1.0] * 4)
    assert env.robot.root_lin_vel_w[:, 2].tolist() == pytest.approx([0.5] * 4)


def test_an_axis_that_is_none_is_refused(make_env: MakeEnv) -> None:
    params = {"pose_range": {"forward": (0.1, 0.2)}}
    with pytest.raises(ConfigError, match="'forward' is not an axis: they are x, y, z, roll, pitch, yaw"):
        make_env(events={"place": EventTermCfg(func=mdp.reset_root_uniform, mode="reset", params=params)})


def startup(func: Callable[..., None], **params: Any) -> dict[str, Any]:
    return {"events": {"change": EventTermCfg(func=func, mode="startup", params=params)}}


def model_values(env: ManagerBasedRlEnv, field: str, *names: str) -> Tensor:
    engine, kind = env.scene.engine, field.partition("_")[0]
    ids = [getattr(engine.model, kind)(f"robot/{name}").id for name in names]
    return engine.get_model_field(field)[:, ids]


def test_friction_of_named_geoms_is_drawn_once_or_each(make_env: MakeEnv) -> None:
    env = make_env(**startup(mdp.randomize_friction, friction_range=(0.3, 0.6), geoms=(".*_foot",)))
    feet = model_values(env, "geom_friction", "left_foot", "right_foot")[..., 0]
    assert torch.equal(feet[:, 0], feet[:, 1])
    assert len(set(feet[:, 0].tolist())) == 4
    assert feet.min() >= 0.3
    assert feet.max() <= 0.6
    assert model_values(env, "geom_friction", "trunk")[:, 0, 0].tolist() == [1.0] * 4
    env = make_env(**startup(mdp.randomize_friction, friction_range=(0.3, 0.6), geoms=(".*_foot",), shared=False))
    feet = model_values(env, "geom_friction", "left_foot", "right_foot")[..., 0]
    assert (feet[:, 0] != feet[:, 1]).all()


def test_the_centre_of_mass_of_a_lone_body_can_be_moved() -> None:
    """A cube in space spins about its centre of mass, 3 cm from its middle: half a turn moves the middle by 6 cm."""
    xml = '<mujoco><worldbody><body name="cube"><freejoint/><geom type="box" size=".1 .1 .1"/></body>'
    spin = InitialStateCfg(lin_vel=(0.0, -0.03 * math.pi, 0.0), ang_vel=(0.0, 0.0, math.pi))
    cube = RigidObjectCfg(spec=mjcf_text, spec_args={"xml": f"{xml}</worldbody></mujoco>"}, init_state=spin)
    move = {"x": (0.03, 0.03), "y": (0.0, 0.0), "z": (0.0, 0.0), "asset": SceneEntityCfg(name="cube")}
    cfg = ManagerBasedEnvCfg(
        scene=SceneCfg(num_envs=2, entities={"cube": cube}),
        simulation=SimulationCfg(engine="mujoco", precision=64, threads=1, dt=0.001, gravity=(0.0, 0.0, 0.0)),
        decimation=1000,
        **startup(mdp.randomize_com, **move),
    )
    env = ManagerBasedEnv(cfg)
    env.reset()
    env.step(torch.zeros(2, 0))
    assert env.scene["cube"].root_pos_w[1].tolist() == pytest.approx([0.06, 0.0, 0.0], abs=2e-4)
    env.close()


def test_mass_takes_the_inertia_with_it_and_does_not_pile_up(make_env: MakeEnv) -> None:
    env = make_env(**startup(mdp.randomize_mass, mass_range=(1.0, 3.0), asset=TRUNK))
    before = env.scene.engine.model.body("robot/trunk").inertia
    mass = model_values(env, "body_mass", "trunk")[:, 0]
    assert mass.min() >= 3.0
    assert mass.max() <= 5.0
    assert len(set(mass.tolist())) == 4
    inertia = model_values(env, "body_inertia", "trunk")[:, 0]
    assert torch.allclose(inertia, torch.tensor(before) * (mass / 2.0)[:, None])
    env.event_manager.apply("startup", None)
    assert model_values(env, "body_mass", "trunk").max() <= 5.0


def test_a_body_must_weigh_something(make_env: MakeEnv) -> None:
    with pytest.raises(ConfigError, match=r"mass_range \(-3.0, -2.5\) is too wide"):
        make_env(**startup(mdp.randomize_mass, mass_range=(-3.0, -2.5), asset=TRUNK))


def test_centre_of_mass_gains_and_encoders(make_env: MakeEnv) -> None:
    env = make_env(**startup(mdp.randomize_com, x=(0.1, 0.2), y=(0.0, 0.0), z=(-0.1, -0.1), asset=TRUNK))
    com = model_values(env, "body_ipos", "trunk")[:, 0]
    assert com[:, 0].min() >= 0.1
    assert com[:, 1:].tolist() == [pytest.approx([0.0, -0.1])] * 4
    env = make_env(**startup(mdp.randomize_gains, stiffness_range=(0.5, 0.9), damping_range=(2.0, 2.0)))
    stiffness, damping = env.robot.actuators["legs"].gains()
    assert stiffness.min() >= 250.0
    assert stiffness.max() <= 450.0
    assert len(set(stiffness.flatten().tolist())) == 8
    assert damping.flatten().tolist() == pytest.approx([40.0] * 8)


def test_an_encoder_that_reads_too_much_makes_the_servo_hold_too_little(make_env: MakeEnv) -> None:
    env = make_env(height=2.0, **startup(mdp.randomize_encoder_bias, bias_range=(0.01, 0.01)))
    assert observed(env, mdp.joint_pos_measured) == pytest.approx([0.01, 0.01])
    assert observed(env, mdp.joint_pos_rel) == pytest.approx([0.0, 0.0])
    env.step(torch.ones(4, 2))
    assert env.robot.joint_pos_target[0].tolist() == pytest.approx([0.1 - 0.01] * 2)


# -- ends and curricula

FLAT = TerrainGeneratorCfg(sub_terrains={"flat": FlatCfg()}, rows=3, columns=2, cell_size=4.0, border_width=1.0)


def test_who_falls_or_leaves_the_terrain_ends(make_env: MakeEnv) -> None:
    terms = {
        "fell": TerminationTermCfg(func=mdp.bad_orientation, params={"limit": math.radians(29.0)}),
        "left": TerminationTermCfg(func=mdp.out_of_terrain, params={"margin": 0.5}, time_out=True),
    }
    env = make_env(terminations=terms, terrain=FLAT)
    place = torch.tensor([[0.0, 0.0, 2.0, *ROLL_30], [0.0, 0.0, 2.0, *LEFT_90], [6.6, 0.0, 2.0, *LEFT_90]]).double()
    env.robot.write_root_pose(place, torch.tensor([0, 1, 2]))
    env.scene.engine.refresh()
    _, _, terminated, truncated, _ = env.step(torch.zeros(4, 2))
    assert terminated.tolist() == [True, False, False, False]
    assert truncated.tolist() == [False, False, True, False]


def test_levels_follow_the_way_that_was_walked(make_env: MakeEnv) -> None:
    levels = CurriculumTermCfg(func=mdp.terrain_levels_vel, params={"command": "twist", "promote_distance": 2.0})
    env = make_env(terrain=FLAT, curriculum={"levels": levels})
    terrain, term = as_kind(env.scene.terrain, GeneratedTerrain), twist(env)
    terrain.move(None, torch.ones(4).bool(), torch.zeros(4).bool(), env.rng)
    env.reset()
    assert terrain.levels.tolist() == [1, 1, 1, 1]
    where = env.robot.root_pos_w.clone()
    where[0, 0] += 2.5  # far enough
    pose_of = torch.cat((where, env.robot.root_quat_w), dim=1)
    env.robot.write_root_pose(pose_of, None)
    term.asked[:] = 10.0
    term.followed[:] = torch.tensor([1.0, 4.9, 5.1, 9.0]).double()
    env.episode_length_buf[:] = 50
    env._reset_envs(torch.arange(4))
    assert terrain.levels.tolist() == [2, 0, 1, 1]
    assert env.robot.root_pos_w[0, :2].tolist() == pytest.approx(terrain.origins[2, 0, :2].tolist())


def test_who_fell_goes_to_easier_ground_however_far_it_came(make_env: MakeEnv) -> None:
    levels = adapt(mdp.terrain_levels_vel, command="twist", promote_distance=2.0, demote_failures=True)
    env = make_env(terrain=FLAT, curriculum={"levels": levels})
    terrain = as_kind(env.scene.terrain, GeneratedTerrain)
    terrain.move(None, torch.ones(4).bool(), torch.zeros(4).bool(), env.rng)
    env.reset()
    where = env.robot.root_pos_w.clone()
    where[:2, 0] += 2.5  # far enough
    env.robot.write_root_pose(torch.cat((where, env.robot.root_quat_w), dim=1), None)
    env.termination_manager.terminated = torch.tensor([True, False, True, False])
    env.episode_length_buf[:] = 50
    env._reset_envs(torch.arange(4))
    assert terrain.levels.tolist() == [0, 2, 0, 1]


def test_the_way_along_the_command_is_measured(make_env: MakeEnv) -> None:
    env = make_env()
    term = twist(env)
    term.fix(torch.tensor([[0.6, 0.8, 0.0]]).double())
    pose(env, z=2.0, velocity=(0.5, 0.0, 0.0, 0.0, 0.0, 0.0))
    for _ in range(10):
        env.step(torch.zeros(4, 2))
    assert term.asked[0].item() == pytest.approx(10 * 0.01 * 1.0)
    assert term.followed[0].item() == pytest.approx(10 * 0.01 * 0.3)


def test_the_last_step_of_an_episode_counts_for_that_episode(make_env: MakeEnv) -> None:
    seen: list[float] = []

    def note(env: ManagerBasedRlEnv, env_ids: Tensor) -> Tensor:
        seen.append(twist(env).asked[0].item())
        return torch.zeros(())

    ends = {"time_out": TerminationTermCfg(func=mdp.time_out, time_out=True)}
    env = make_env(curriculum={"note": CurriculumTermCfg(func=note)}, terminations=ends)
    term = twist(env)
    term.fix(torch.tensor([[0.6, 0.8, 0.0]]).double())
    env.step(torch.zeros(4, 2))
    env.episode_length_buf[:] = env.max_episode_length
    env.step(torch.zeros(4, 2))
    assert seen[-1] == pytest.approx(2 * 0.01)
    assert term.asked.tolist() == [0.0] * 4  # the new one has not made a step yet


def test_commands_grow_with_the_steps_made(make_env: MakeEnv) -> None:
    stages = (VelocityStage(step=2, lin_vel_x=(-2.0, 3.0)), VelocityStage(step=4, ang_vel_z=(-1.0, 1.0)))
    params = {"command": "twist", "stages": stages}
    env = make_env(curriculum={"ranges": CurriculumTermCfg(func=mdp.command_ranges, params=params)})
    term = twist(env)
    seen = []
    for _ in range(5):
        env.step(torch.zeros(4, 2))
        log = env._reset_envs(torch.tensor([0]))
        seen.append((term.ranges["lin_vel_x"], term.ranges["ang_vel_z"], log["Curriculum/ranges/lin_vel_x"]))
    assert seen[0] == ((1.0, 1.0), (-0.5, -0.5), 1.0)
    assert seen[1] == ((-2.0, 3.0), (-0.5, -0.5), 3.0)
    assert seen[3] == ((-2.0, 3.0), (-1.0, 1.0), 3.0)
    assert term.cfg.lin_vel_x == (1.0, 1.0)  # a config is what somebody wrote
    assert as_kind(term.cfg_in_force(), VelocityCommandCfg).lin_vel_x == (-2.0, 3.0)


def growing() -> dict[str, CurriculumTermCfg]:
    """After the first control step, every reset draws another speed."""
    params = {"command": "twist", "stages": (VelocityStage(step=1, lin_vel_x=(5.0, 6.0)),)}
    return {"ranges": CurriculumTermCfg(func=mdp.command_ranges, params=params)}


def test_a_seeded_reset_goes_back_to_the_configured_ranges(make_env: MakeEnv) -> None:
    env = make_env(curriculum=growing())
    env.reset(seed=0)
    first = env.commands["twist"].clone()
    env.step(torch.zeros(4, 2))
    env.reset()
    assert (env.commands["twist"][:, 0] >= 5.0).all()
    env.reset(seed=0)
    assert torch.equal(env.commands["twist"], first)


def test_a_resumed_run_draws_from_the_ranges_it_had(make_env: MakeEnv) -> None:
    first, second = (make_env(curriculum=growing()) for _ in range(2))
    first.reset(seed=0)
    first.step(torch.zeros(4, 2))
    first.reset()
    second.load_state_dict(first.state_dict())
    for env in (first, second):
        env.commands.term("twist").resample(torch.arange(4))
    assert (second.commands["twist"][:, 0] >= 5.0).all()
    assert torch.equal(first.commands["twist"], second.commands["twist"])


def test_terms_with_memory_are_part_of_the_state(make_env: MakeEnv) -> None:
    params = {**GAIT, "feet": "feet", "target": 0.1}
    rewards = {
        "swing": RewardTermCfg(func=mdp.FootSwingHeight, params=params, weight=1.0),
        "acc": RewardTermCfg(func=mdp.JointAccL2, weight=1.0),
    }
    first, second = (make_env(gravity=10.0, height=0.7, rewards=rewards) for _ in range(2))
    for _ in range(6):
        first.step(torch.ones(4, 2))
    second.load_state_dict(first.state_dict())
    for _ in range(10):
        expected, actual = first.step(torch.zeros(4, 2)), second.step(torch.zeros(4, 2))
        assert torch.equal(expected[1], actual[1])
