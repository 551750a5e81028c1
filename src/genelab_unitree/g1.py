"""G1 walks as commanded, on flat and on rough ground.

Source of command, rewards, events, curriculum and ground: the published configuration of GeneLab's reference runs
(docs/sources.md), with 4096 environments and 30 000 iterations (rough: 6000). The clock, what helps a beginner and the
learner's settings are ours, for two CPU cores.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace

from genelab import mdp
from genelab.config import TaskCfg
from genelab.envs import ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import RewardTermCfg, ScheduleCfg, adapt, event, metric, obs, part, reward, termination
from genelab.mdp import (
    GaitClockCfg,
    JointPositionActionCfg,
    ScriptedJointPositionActionCfg,
    VelocityCommandCfg,
    VelocityStage,
)
from genelab.rl.config import (
    RslRlDistributionCfg,
    RslRlModelCfg,
    RslRlOnPolicyRunnerCfg,
    RslRlPpoAlgorithmCfg,
    RslRlSymmetryCfg,
)
from genelab.scene import ContactSensorCfg, PointsSensorCfg
from genelab_unitree.robots.g1 import ACTION_SCALE, COARSE_SOLE, FOOT, g1_cfg
from genelab_unitree.rough import Roughness, make_rough, published_rough_play, rough_play
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

ROUGHNESS = Roughness(stairs=(0.05, 0.23), boxes=(0.05, 0.20), rubble=(0.02, 0.10), slope=(0.0, 0.4))
TORSO = part(bodies=("torso_link",))
_FEET = (".*_ankle_roll_link",)

WALK = GaitClockCfg(frequency=1.5, run_out=1.0, offsets={"left_.*": 0.0, "right_.*": 0.5})
"""One foot after the other."""
STEPS = {
    f"{swing}_ankle_roll_link": {
        f"{swing}_hip_pitch_joint": -0.35,
        f"{swing}_knee_joint": 0.7,
        f"{swing}_ankle_pitch_joint": -0.35,
        f"{stance}_hip_pitch_joint": 0.1,
        f"{stance}_hip_roll_joint": inwards * 0.3,
        f"{stance}_knee_joint": -0.2,
        f"{stance}_ankle_pitch_joint": 0.1,
        f"{stance}_ankle_roll_joint": -inwards * 0.1,
    }
    for swing, stance, inwards in (("left", "right", -1.0), ("right", "left", 1.0))
}
"""What lifts a foot and keeps it level, and what the other leg needs to carry the pelvis alone meanwhile, rad."""
STRIDES: dict[str, dict[str, tuple[float, ...]]] = {
    f"{side}_ankle_roll_link": {
        f"{side}_hip_pitch_joint": (-0.245, 0.0, 0.03 * left),
        f"{side}_ankle_pitch_joint": (0.245, 0.0, -0.03 * left),
        f"{side}_hip_roll_joint": (0.0, 0.245, 0.0),
        f"{side}_ankle_roll_joint": (0.0, -0.245, 0.0),
        f"{side}_hip_yaw_joint": (0.0, 0.0, 0.167),
    }
    for side, left in (("left", 1.0), ("right", -1.0))
}
"""A quarter of a period ahead of the hip, on legs of 0.68 m, with a level sole, rad per m/s and rad/s."""
SPREAD = {
    f"{side}_{joint}": (0.0, outwards * angle, 0.0)
    for side, outwards in (("left", 1.0), ("right", -1.0))
    for joint, angle in (("hip_roll_joint", 0.25), ("ankle_roll_joint", -0.25))
}
"""At 1 m/s sideways the feet would touch: 24 cm apart, they come 33 cm closer. 34 cm more, of which soft servos leave
half, make room, rad per m/s."""
STANCE = {
    ".*_hip_pitch_joint": 0.05,
    ".*_knee_joint": -0.1,
    ".*_ankle_pitch_joint": 0.05,
    "(waist|.*_shoulder|.*_elbow|.*_wrist|.*_hip_(roll|yaw)|.*_ankle_roll).*": 0.0,
}
"""What soft servos need to carry the robot in its default pose, rad."""


def _posture(
    hip_pitch: float,
    hip_roll_yaw: float,
    knee: float,
    ankle_pitch: float,
    ankle_roll: float,
    waist: tuple[float, float, float],
    shoulder: tuple[float, float, float],
    elbow: float,
) -> dict[str, float]:
    """How far each joint may be from its default position, rad."""
    return {
        ".*_hip_pitch_joint": hip_pitch,
        ".*_hip_(roll|yaw)_joint": hip_roll_yaw,
        ".*_knee_joint": knee,
        ".*_ankle_pitch_joint": ankle_pitch,
        ".*_ankle_roll_joint": ankle_roll,
        "waist_yaw_joint": waist[0],
        "waist_roll_joint": waist[1],
        "waist_pitch_joint": waist[2],
        ".*_shoulder_pitch_joint": shoulder[0],
        ".*_shoulder_roll_joint": shoulder[1],
        ".*_shoulder_yaw_joint": shoulder[2],
        ".*_elbow_joint": elbow,
        ".*_wrist_.*_joint": 0.3,
    }


WALKING = _posture(0.3, 0.15, 0.35, 0.25, 0.1, (0.2, 0.08, 0.1), (0.15, 0.15, 0.1), 0.15)
RUNNING = _posture(0.5, 0.2, 0.6, 0.35, 0.15, (0.3, 0.08, 0.2), (0.5, 0.2, 0.15), 0.35)


def published_env() -> ManagerBasedRlEnvCfg:
    """Return the published task on a plane, at walking speed first; the commands grow to a run."""
    command = VelocityCommandCfg(
        resampling_time_range=(3.0, 8.0),
        lin_vel_x=(-1.0, 1.0),
        lin_vel_y=(-1.0, 1.0),
        ang_vel_z=(-0.5, 0.5),
        standing_share=0.1,
        forward_share=0.2,
        min_forward=0.3,
    )
    cfg = velocity_env(g1_cfg(), command)
    cfg.scene.sensors = {
        "feet_contact": ContactSensorCfg(entity="robot", bodies=_FEET, other="world"),
        "feet": PointsSensorCfg(entity="robot", bodies=_FEET, pos=FOOT),
        "self_contact": ContactSensorCfg(
            entity="robot", bodies=("pelvis",), other="robot/pelvis", subtree=True, threshold=10.0, times=False
        ),
    }
    cfg.actions = {"joint_pos": JointPositionActionCfg(scale=dict(ACTION_SCALE))}
    cfg.observations["critic"].terms |= {
        "foot_height": obs(mdp.foot_height, sensor="feet"),
        "foot_air_time": obs(mdp.foot_air_time, sensor="feet_contact"),
        "foot_contact": obs(mdp.foot_contact, sensor="feet_contact"),
        "foot_contact_forces": obs(mdp.foot_contact_forces, sensor="feet_contact"),
    }
    cfg.rewards = _rewards()
    cfg.events |= {
        "reset_base": event(
            mdp.reset_root_uniform,
            "reset",
            pose_range={"x": (-0.5, 0.5), "y": (-0.5, 0.5), "z": (0.01, 0.05), "yaw": (-math.pi, math.pi)},
        ),
        "push": push(
            (1.0, 3.0),
            x=(-0.5, 0.5),
            y=(-0.5, 0.5),
            z=(-0.4, 0.4),
            roll=(-0.52, 0.52),
            pitch=(-0.52, 0.52),
            yaw=(-0.78, 0.78),
        ),
        "foot_friction": event(mdp.randomize_friction, "startup", friction_range=(0.3, 1.2), geoms=(".*_foot_.*",)),
        "torso_com": event(
            mdp.randomize_com, "startup", x=(-0.025, 0.025), y=(-0.025, 0.025), z=(-0.03, 0.03), asset=TORSO
        ),
        "encoder_bias": event(mdp.randomize_encoder_bias, "startup", bias_range=(-0.015, 0.015)),
    }
    cfg.curriculum["command_ranges"] = adapt(
        mdp.command_ranges,
        command="twist",
        stages=(
            VelocityStage(step=120_000, lin_vel_x=(-1.5, 2.0), ang_vel_z=(-0.7, 0.7)),
            VelocityStage(step=240_000, lin_vel_x=(-2.0, 3.0)),
        ),
    )
    cfg.metrics["landing_force"] = metric(mdp.peak_force, "mean", contact="feet_contact")
    return cfg


def flat_env() -> ManagerBasedRlEnvCfg:
    """Return the published task with a gait clock and script, at the settings for two cores."""
    cfg = published_env()
    two_core_settings(cfg)
    add_clock(cfg, copy.deepcopy(WALK))
    cfg.actions = {
        "joint_pos": ScriptedJointPositionActionCfg(
            scale=dict(ACTION_SCALE),
            offset=dict(STANCE),
            steps=copy.deepcopy(STEPS),
            strides=copy.deepcopy(STRIDES),
            spread=dict(SPREAD),
            average_s=0.5,
        )
    }
    return cfg


def _rewards() -> dict[str, RewardTermCfg]:
    return {
        "track_lin_vel": reward(mdp.track_lin_vel_exp, 2.0, command="twist", std=math.sqrt(0.25)),
        "track_ang_vel": reward(mdp.track_ang_vel_exp, 2.0, command="twist", std=math.sqrt(0.5)),
        "upright": reward(mdp.upright_exp, 1.0, std=math.sqrt(0.2), asset=TORSO),
        "pose": reward(
            mdp.VariablePosture,
            1.0,
            command="twist",
            standing=0.05,
            walking=WALKING,
            running=RUNNING,
            walking_threshold=0.05,
            running_threshold=1.5,
        ),
        "body_ang_vel": reward(mdp.body_ang_vel_xy_l2, -0.05, asset=TORSO),
        "angular_momentum": reward(mdp.angular_momentum_l2, -0.02),
        "joint_pos_limits": reward(mdp.joint_pos_limits, -1.0),
        "action_rate": reward(mdp.action_rate_l2, -0.1),
        "air_time": reward(
            mdp.air_time, 1.0, contact="feet_contact", window=(0.05, 0.5), command="twist", threshold=0.5
        ),
        "foot_clearance": reward(mdp.foot_clearance, -2.0, feet="feet", target=0.1, command="twist", threshold=0.05),
        "foot_swing_height": reward(
            mdp.FootSwingHeight,
            -1.0,
            contact="feet_contact",
            feet="feet",
            target=0.1,
            command="twist",
            threshold=0.05,
        ),
        "foot_slip": reward(mdp.foot_slip, -0.1, contact="feet_contact", feet="feet", command="twist", threshold=0.05),
        "soft_landing": reward(mdp.soft_landing, -1e-5, contact="feet_contact", command="twist", threshold=0.05),
        "self_collisions": reward(mdp.RecentContacts, -1.0, sensor="self_contact", window=4),
    }


def coarse(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """What a G1 learns on: coarser physics, soles with two capsules."""
    cfg = coarse_physics(cfg)
    cfg.scene.entities["robot"].spec_args = {"sole": COARSE_SOLE}
    return cfg


def beginner(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """The task as it is learned: cheaper physics, a hand that lets go, rewards for keeping to the clock."""
    cfg = coarse(cfg)
    cfg.schedules = {
        "penalties": ScheduleCfg(start=0.1, steps=24_000, curve="geometric"),
        "pushes": ScheduleCfg(start=0.05, end=0.2, steps=24_000, curve="geometric"),
        "clock": ScheduleCfg(start=1.0, end=0.0, begin=24_000, steps=9_600),
    }
    follow(
        cfg,
        "penalties",
        "body_ang_vel",
        "angular_momentum",
        "action_rate",
        "foot_clearance",
        "foot_swing_height",
        "foot_slip",
    )
    cfg.events["push"].params["schedule"] = "pushes"
    _hold(cfg, until=9_600)
    cfg.terminations["sank"] = termination(mdp.root_too_low, height=0.5)
    cfg.rewards["feet_phase"] = reward(mdp.feet_height_phase, 4.0, clock="gait", feet="feet", height=0.09, std=0.063)
    follow(cfg, "clock", "feet_phase")
    pay_errors(cfg, -8.0, -6.0, ScheduleCfg(start=0.6, begin=24_000, steps=6_000, until=38_300), alive=5.0)
    return cfg


def _hold(cfg: ManagerBasedRlEnvCfg, until: int) -> None:
    """A hand holds the pelvis at first, and less and less of it, until so many steps."""
    cfg.schedules["hand"] = ScheduleCfg(start=1.0, end=0.0, steps=until)
    cfg.events["hand"] = event(
        mdp.HelpingWrench, "step", schedule="hand", height=0.74, command="twist", upright=(200.0, 8.0), lead=(30.0, 3.0)
    )


def flat_ppo() -> RslRlOnPolicyRunnerCfg:
    """PPO on networks that two CPU cores can train."""
    return RslRlOnPolicyRunnerCfg(
        experiment_name="g1_velocity_flat",
        seed=42,
        max_iterations=1600,
        num_steps_per_env=24,
        save_interval=100,
        clip_actions=100.0,
        actor=RslRlModelCfg(
            hidden_dims=(256, 128, 128),
            activation="elu",
            obs_normalization=True,
            # With a standard deviation of 1 the noise alone turns the pelvis at 2 rad/s, and nothing is left to learn.
            distribution=RslRlDistributionCfg(class_name="GaussianDistribution", init_std=0.4, std_type="scalar"),
        ),
        critic=RslRlModelCfg(hidden_dims=(256, 128, 128), activation="elu", obs_normalization=True),
        algorithm=RslRlPpoAlgorithmCfg(
            num_learning_epochs=3,
            num_mini_batches=4,
            learning_rate=1e-3,
            schedule="adaptive",
            desired_kl=0.04,
            final_kl=0.01,
            gamma=0.99,
            lam=0.95,
            clip_param=0.2,
            entropy_coef=0.002,
            value_loss_coef=1.0,
            use_clipped_value_loss=True,
            max_grad_norm=1.0,
            symmetry_cfg=RslRlSymmetryCfg(data_augmentation_func=mdp.augment, equivariant=True),
            use_mixed_precision=True,
        ),
    )


def published_rough_env() -> ManagerBasedRlEnvCfg:
    """Return the published task on steps from 5 to 23 cm and slopes up to 22°."""
    return _make_rough(published_env())


def rough_env() -> ManagerBasedRlEnvCfg:
    """Return the published task on rough ground with a gait clock and script, at the settings for two cores."""
    cfg = _make_rough(flat_env())
    gait = cfg.commands["gait"]
    assert isinstance(gait, GaitClockCfg)
    gait.threshold = -1.0  # a foot on an edge has to step, also where the robot is to stay
    return cfg


def _make_rough(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    make_rough(cfg, ROUGHNESS, scan_body="torso_link")
    for name, weight in (("foot_clearance", -0.5), ("foot_swing_height", -0.25)):
        cfg.rewards[name].weight = weight
    return cfg


def rough_beginner(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """The rough task as it is learned by a robot that walks on a plane."""
    cfg = coarse(cfg)
    cfg.schedules = {"pushes": ScheduleCfg(start=0.05, end=0.2, steps=12_000, curve="geometric")}
    cfg.events["push"].params["schedule"] = "pushes"
    _hold(cfg, until=9_600)
    cfg.curriculum["terrain_levels"].params["demote_failures"] = True  # it can come far, and fall all the same
    pay_errors(cfg, -3.0, -2.0, ScheduleCfg(start=1.0, steps=1, until=23_900))
    return cfg


def rough_ppo() -> RslRlOnPolicyRunnerCfg:
    """From the weights of the flat task. No bonus for entropy, which would undo a gait once it is there, and a floor
    under the exploration instead."""
    agent = flat_ppo()
    return replace(
        agent,
        experiment_name="g1_velocity_rough",
        max_iterations=1000,
        actor=replace(agent.actor, distribution=RslRlDistributionCfg(init_std=0.4, std_range=(0.2, 2.0))),
        algorithm=replace(agent.algorithm, entropy_coef=0.0),
    )


def flat_task() -> TaskCfg:
    """Genelab-Velocity-Flat-Unitree-G1-v0."""
    env = flat_env()
    return TaskCfg(env=beginner(env), play_env=play_cfg(env), agent=flat_ppo())


def rough_task() -> TaskCfg:
    """Genelab-Velocity-Rough-Unitree-G1-v0."""
    env = rough_env()
    return TaskCfg(env=rough_beginner(env), play_env=rough_play(env), agent=rough_ppo())


def published_flat_task() -> TaskCfg:
    """Genelab-Velocity-Flat-Unitree-G1-v0@published."""
    env = published_env()
    return TaskCfg(env=env, play_env=play_cfg(env), agent=published_ppo("g1_velocity_flat", 30_000, 0.01))


def published_rough_task() -> TaskCfg:
    """Genelab-Velocity-Rough-Unitree-G1-v0@published."""
    env = published_rough_env()
    agent = published_ppo("g1_velocity_rough", 6000, 0.0, rough=True)
    return TaskCfg(env=env, play_env=published_rough_play(env), agent=agent)
