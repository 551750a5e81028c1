"""Go2-W goes as commanded on flat ground: it rolls ahead, and steps to the side.

Source of command, rewards, pushes and randomised models: the published configuration of GeneLab's reference runs
(docs/sources.md), with 4096 environments, 6000 iterations of stage 1 and 10 000 of stage 2. The clock, what helps a
beginner and the learner's settings are ours, for two cores.

Stage 1 locks the wheels, and the legs learn to step. Stage 2 starts from its weights, with wheels that roll.
"""

from __future__ import annotations

import copy
import math

from genelab import mdp
from genelab.config import TaskCfg
from genelab.envs import ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import ScheduleCfg, event, gate, obs, part, reward, symmetric
from genelab.mdp import (
    GaitClockCfg,
    JointPositionActionCfg,
    JointVelocityActionCfg,
    RollingActionCfg,
    ScriptedJointPositionActionCfg,
    VelocityCommandCfg,
)
from genelab.rl.config import (
    RslRlDistributionCfg,
    RslRlModelCfg,
    RslRlOnPolicyRunnerCfg,
    RslRlPpoAlgorithmCfg,
    RslRlSymmetryCfg,
)
from genelab.scene import ContactSensorCfg, PointsSensorCfg
from genelab_unitree.robots.go2w import (
    ACTION_SCALE,
    LEGS,
    PUBLISHED_WHEEL_EFFORT,
    PUBLISHED_WHEEL_SCALE,
    WHEEL_EFFORT,
    WHEEL_RADIUS,
    WHEEL_SCALE,
    WHEEL_TRACK,
    WHEELS,
    go2w_cfg,
)
from genelab_unitree.velocity import (
    add_clock,
    coarse_physics,
    follow,
    pay_errors,
    published_ppo,
    push,
    two_core_settings,
    velocity_env,
)

BASE = part(bodies=("base",))
FRAMES = 5
"""Frames of 57 numbers that the actor sees at once."""
SIDEWAYS = (1, 2)
"""Columns of the command that wheels cannot follow: to the side, and turning."""

TROT = GaitClockCfg(frequency=1.8, swing_share=0.38, run_out=0.5, offsets={"(FL|RR)_foot": 0.0, "(FR|RL)_foot": 0.5})
"""Diagonal legs together."""
_ENDS, _SIDES = (("F", 1.0), ("R", -1.0)), (("L", 1.0), ("R", -1.0))
STANCE_HEIGHT = 0.37
"""Of the trunk, m. Wheels are 12 cm ahead of the front hips and behind the rear ones: closer together the robot tips on
its soft servos when it speeds up."""
POSE = {"F": (0.0, -0.475, 0.213), "R": (0.0, 0.324, 0.213)}
"""Hip, thigh and calf of a left leg in front and behind so, from the default pose, rad."""
LOAD = {"F": (-0.20, 0.182, 0.296), "R": (-0.20, -0.151, 0.115)}
"""What a quarter of the weight takes from the servos there, rad."""
LIFT = {"F": (0.0, 0.081, -0.322), "R": (0.0, 0.265, -0.322)}
"""What lifts the foot by 6 cm, rad."""


def _leg(leg: str, angles: tuple[float, float, float]) -> dict[str, float]:
    """Joint angles of a leg, given those of a left one."""
    hip, thigh, calf = angles
    mirror = 1.0 if leg[1] == "L" else -1.0
    return {f"{leg}_hip_joint": mirror * hip, f"{leg}_thigh_joint": thigh, f"{leg}_calf_joint": calf}


def _sum(*shares: tuple[float, tuple[float, float, float]]) -> tuple[float, float, float]:
    hip, thigh, calf = (sum(share * angles[i] for share, angles in shares) for i in range(3))
    return hip, thigh, calf


STANCE = {
    joint: angle
    for end, _ in _ENDS
    for side, _ in _SIDES
    for joint, angle in _leg(end + side, _sum((1.0, POSE[end]), (1.0, LOAD[end]))).items()
}
"""What the servos must aim at to carry the trunk, rad."""
STEPS = {
    f"{end}{side}_foot": {
        **_leg(end + side, _sum((1.3, LIFT[end]), (-1.15, LOAD[end]))),
        **_leg(end + other, _sum((0.1, LOAD[end]))),
    }
    for end, _ in _ENDS
    for side, other in ("LR", "RL")
}
"""A foot gives up its load and lifts, and the leg beside it takes a little of it, rad."""
_AHEAD = 1.65 * (1.0 - TROT.swing_share) / (2.0 * TROT.frequency) / STANCE_HEIGHT
"""Angle of a leg whose foot is ahead of the hip by half the way of a stance, and what heavy legs on soft servos lose of
it, rad per m/s."""
LEAD = 0.16
"""How late they follow: hips with 0.14 kg·m² on 25 N·m/rad swing at 2.1 Hz by themselves, share of a period."""
STRIDES: dict[str, dict[str, tuple[float, ...]]] = {
    f"{end}{side}_foot": {f"{end}{side}_hip_joint": (0.0, _AHEAD, front * 0.31 * _AHEAD)}
    for end, front in _ENDS
    for side, _ in _SIDES
}
"""To the side, by the hips; turning moves a foot to the side, too, in front and behind. Rad per m/s and rad/s."""
WALKING_STRIDES: dict[str, dict[str, tuple[float, ...]]] = {
    f"{end}{side}_foot": {
        **STRIDES[f"{end}{side}_foot"],
        f"{end}{side}_thigh_joint": (-_AHEAD, 0.0, left * WHEEL_TRACK * _AHEAD),
    }
    for end, _ in _ENDS
    for side, left in _SIDES
}
"""The same for wheels that do not roll: the thighs do what is left to do."""
ROLLS = {f".{side}_foot_joint": (1 / WHEEL_RADIUS, 0.0, -left * WHEEL_TRACK / WHEEL_RADIUS) for side, left in _SIDES}
"""How fast wheels turn that follow the command, rad/s per m/s and rad/s."""


def _published_base(*, lock_wheels: bool) -> ManagerBasedRlEnvCfg:
    """Return what both published stages share: forward, sideways and turning, each up to 1 m/s or 1 rad/s."""
    command = VelocityCommandCfg(
        resampling_time_range=(3.0, 8.0),
        lin_vel_x=(-1.0, 1.0),
        lin_vel_y=(-1.0, 1.0),
        ang_vel_z=(-1.0, 1.0),
        standing_share=0.1,
        forward_share=0.1,
        min_forward=0.3,
    )
    effort = WHEEL_EFFORT if lock_wheels else PUBLISHED_WHEEL_EFFORT
    cfg = velocity_env(go2w_cfg(lock_wheels=lock_wheels, wheel_effort=effort), command)
    cfg.scene.sensors = {
        "feet_contact": ContactSensorCfg(entity="robot", bodies=(".*_foot",), other="world"),
        "feet": PointsSensorCfg(entity="robot", bodies=(".*_foot",)),
        "leg_contact": ContactSensorCfg(entity="robot", bodies=(".*_thigh", ".*_calf"), other="world", times=False),
    }
    for group in cfg.observations.values():
        group.history_length = FRAMES
    cfg.actions = {
        "joint_pos": JointPositionActionCfg(joint_names=LEGS, scale=ACTION_SCALE, noise_std=0.05, delay=(0, 2)),
        "wheel_vel": JointVelocityActionCfg(
            joint_names=WHEELS, scale=0.0 if lock_wheels else PUBLISHED_WHEEL_SCALE, noise_std=0.05, delay=(0, 2)
        ),
    }
    cfg.rewards = {
        "track_lin_vel": reward(mdp.track_lin_vel_exp, 2.0, command="twist", std=math.sqrt(0.25)),
        "track_ang_vel": reward(mdp.track_ang_vel_exp, 1.0, command="twist", std=math.sqrt(0.25)),
        "lin_vel_z": reward(mdp.lin_vel_z_l2, -2.0),
        "ang_vel_xy": reward(mdp.body_ang_vel_xy_l2, -0.05, asset=BASE),
        "flat_orientation": reward(mdp.flat_orientation_l2, -1.0),
        "base_height": reward(mdp.base_height_l2, -1.0, target=0.40),
        "joint_torques": reward(mdp.joint_torques_l2, -2e-4),
        "joint_acc": reward(mdp.JointAccL2, -1e-5),
        "action_rate": reward(mdp.action_rate_l2, -0.01),
        "joint_pos_limits": reward(mdp.joint_pos_limits, -1.0),
        "leg_contact": reward(mdp.any_contact, -1.0, sensor="leg_contact"),
    }
    cfg.events |= {
        "push": push((1.0, 3.0), x=(-0.5, 0.5), y=(-0.5, 0.5), yaw=(-0.5, 0.5)),
        "wheel_friction": event(mdp.randomize_friction, "startup", friction_range=(0.3, 1.5), geoms=(".*_wheel",)),
        "base_mass": event(mdp.randomize_mass, "startup", mass_range=(-1.0, 2.0), asset=BASE),
        "base_com": event(mdp.randomize_com, "startup", x=(-0.05, 0.05), y=(-0.05, 0.05), z=(-0.05, 0.05), asset=BASE),
        "gains": event(mdp.randomize_gains, "startup", stiffness_range=(0.8, 1.2), damping_range=(0.8, 1.2)),
        "encoder_bias": event(mdp.randomize_encoder_bias, "startup", bias_range=(-0.015, 0.015)),
    }
    return cfg


def published_stage_1_env() -> ManagerBasedRlEnvCfg:
    """Return the published first stage: wheels that are feet."""
    cfg = _published_base(lock_wheels=True)
    cfg.rewards |= {
        "air_time": reward(
            mdp.air_time, 0.25, contact="feet_contact", window=(0.1, 0.5), command="twist", threshold=0.1
        ),
        "foot_slip": reward(mdp.foot_slip, -0.1, contact="feet_contact", feet="feet", command="twist", threshold=0.05),
    }
    return cfg


def published_env() -> ManagerBasedRlEnvCfg:
    """Return the published second stage: wheels that roll, and steps paid to the side and turning."""
    cfg = _published_base(lock_wheels=False)
    cfg.rewards |= {
        "air_time": reward(
            mdp.air_time,
            0.5,
            contact="feet_contact",
            window=(0.1, 0.5),
            command="twist",
            threshold=0.1,
            command_axes=SIDEWAYS,
        ),
        "vy_error_l1": reward(mdp.error_vel_y, -0.5, command="twist"),
        "wz_error_l1": reward(mdp.error_vel_yaw, -0.5, command="twist"),
    }
    return cfg


def stage_1_env() -> ManagerBasedRlEnvCfg:
    """Return the first stage with a gait clock and script, at the settings for two cores."""
    return _with_gait(published_stage_1_env(), lock_wheels=True)


def flat_env() -> ManagerBasedRlEnvCfg:
    """Return the second stage with a gait clock and script, at the settings for two cores."""
    return _with_gait(published_env(), lock_wheels=False)


def _with_gait(cfg: ManagerBasedRlEnvCfg, *, lock_wheels: bool) -> ManagerBasedRlEnvCfg:
    two_core_settings(cfg)
    cfg.scene.entities["robot"] = go2w_cfg(lock_wheels=lock_wheels)
    clock = copy.deepcopy(TROT)
    clock.command_axes = None if lock_wheels else SIDEWAYS
    add_clock(cfg, clock)
    _encode_wheels(cfg)
    cfg.actions = {
        "joint_pos": ScriptedJointPositionActionCfg(
            joint_names=LEGS,
            scale=ACTION_SCALE,
            offset=dict(STANCE),
            steps=copy.deepcopy(STEPS),
            strides=copy.deepcopy(WALKING_STRIDES if lock_wheels else STRIDES),
            lead=LEAD,
            average_s=0.5,
            noise_std=0.05,
            delay=(0, 2),
        ),
        "wheel_vel": RollingActionCfg(
            joint_names=WHEELS,
            scale=0.0 if lock_wheels else WHEEL_SCALE,
            rolls={} if lock_wheels else dict(ROLLS),
            acceleration=2.0 / WHEEL_RADIUS,
            noise_std=0.5,  # 1 rad/s, as published
            delay=(0, 2),
        ),
    }
    return cfg


def _encode_wheels(cfg: ManagerBasedRlEnvCfg) -> None:
    """Replace the angles of four wheels, which grow without end, in frames of the published width.

    The frame has the mean sine and cosine of the wheels and those of the clock instead.
    """
    legs, wheels = part(joints=LEGS), part(joints=WHEELS)
    policy, critic = cfg.observations["policy"], cfg.observations["critic"]
    policy.terms["joint_pos"] = obs(mdp.joint_pos_measured, asset=legs).then(noise=symmetric(0.01))
    policy.terms["wheel_angle"] = obs(mdp.wheel_angle, asset=wheels).then(noise=symmetric(0.01))
    critic.terms["joint_pos"] = obs(mdp.joint_pos_rel, asset=legs)
    critic.terms["wheel_angle"] = obs(mdp.wheel_angle, asset=wheels)


GOES = gate(mdp.track_lin_vel_exp, 0.5, 0.4, command="twist", std=math.sqrt(0.25))
"""It has to follow the command before moving gets harder, as a Go1 has; delays and noise of its actions cost it some
of that."""


def beginner(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """A stage as it is learned: coarser physics, rewards for keeping to the clock, penalties and pushes to come."""
    cfg = coarse_physics(cfg)
    twist = cfg.commands["twist"]
    assert isinstance(twist, VelocityCommandCfg)
    twist.axis_share = 0.3  # the clock rests where wheels alone can follow, which hardly any mixed command shows
    cfg.schedules = {
        "penalties": ScheduleCfg(start=0.1, steps=6_000, curve="geometric", gate=copy.deepcopy(GOES)),
        "smoothness": ScheduleCfg(start=0.02, steps=12_000, curve="geometric", gate=copy.deepcopy(GOES)),
        "pushes": ScheduleCfg(start=0.1, steps=6_000),
        "steps": ScheduleCfg(start=4.0, steps=9_000, curve="geometric"),
        "stance": ScheduleCfg(start=30.0, steps=9_000, curve="geometric"),
        "clock": ScheduleCfg(start=1.0, end=0.0, begin=15_600, steps=2_400),
    }
    follow(cfg, "penalties", "lin_vel_z", "ang_vel_xy", "flat_orientation", "joint_torques", "action_rate")
    follow(cfg, "smoothness", "joint_acc")
    follow(cfg, "steps", "air_time")
    follow(cfg, "stance", "base_height")
    cfg.events["push"].params["schedule"] = "pushes"
    cfg.rewards["feet_phase"] = reward(
        mdp.feet_height_phase, 1.0, clock="gait", feet="feet", height=0.06, std=0.063, ground=WHEEL_RADIUS
    )
    follow(cfg, "clock", "feet_phase")
    # Without `alive`, pushed and with all penalties, an early end is worth it.
    pay_errors(cfg, -1.5, -1.5, ScheduleCfg(start=0.6, begin=9_600, steps=4_800, until=19_100), alive=3.0)
    return cfg


def ppo(experiment_name: str, max_iterations: int) -> RslRlOnPolicyRunnerCfg:
    """PPO within half an hour of two CPU cores. Both stages have the same networks."""
    return RslRlOnPolicyRunnerCfg(
        experiment_name=experiment_name,
        seed=42,
        max_iterations=max_iterations,
        num_steps_per_env=24,
        save_interval=100,
        clip_actions=100.0,
        actor=RslRlModelCfg(
            hidden_dims=(128, 128, 128),
            activation="elu",
            obs_normalization=True,
            distribution=RslRlDistributionCfg(
                class_name="GaussianDistribution", init_std=0.5, std_type="scalar", final_std=0.12
            ),
        ),
        critic=RslRlModelCfg(hidden_dims=(128, 128, 128), activation="elu", obs_normalization=True),
        algorithm=RslRlPpoAlgorithmCfg(
            num_learning_epochs=3,
            num_mini_batches=4,
            learning_rate=1e-3,
            schedule="adaptive",
            desired_kl=0.02,
            final_kl=0.005,
            gamma=0.99,
            lam=0.95,
            clip_param=0.2,
            entropy_coef=0.0,  # noise that does not fade makes wheels creep, and legs jerk
            value_loss_coef=1.0,
            use_clipped_value_loss=True,
            max_grad_norm=1.0,
            symmetry_cfg=RslRlSymmetryCfg(data_augmentation_func=mdp.augment, equivariant=True),
            use_mixed_precision=True,
        ),
    )


def stage_1_task() -> TaskCfg:
    """Genelab-Velocity-Flat-Unitree-Go2W-CrabStage1-v0."""
    env = stage_1_env()
    return TaskCfg(env=beginner(env), play_env=play_cfg(env), agent=ppo("go2w_velocity_crab_stage1", 400))


def flat_task() -> TaskCfg:
    """Genelab-Velocity-Flat-Unitree-Go2W-v0."""
    env = flat_env()
    return TaskCfg(env=beginner(env), play_env=play_cfg(env), agent=ppo("go2w_velocity_flat", 800))


def published_stage_1_task() -> TaskCfg:
    """Genelab-Velocity-Flat-Unitree-Go2W-CrabStage1-v0@published."""
    env = published_stage_1_env()
    return TaskCfg(env=env, play_env=play_cfg(env), agent=published_ppo("go2w_velocity_crab_stage1", 6000, 0.005))


def published_flat_task() -> TaskCfg:
    """Genelab-Velocity-Flat-Unitree-Go2W-v0@published."""
    env = published_env()
    return TaskCfg(env=env, play_env=play_cfg(env), agent=published_ppo("go2w_velocity_flat", 10_000, 0.005))
