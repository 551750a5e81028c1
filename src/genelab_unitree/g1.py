"""G1 walks as commanded, on flat and on rough ground."""

from __future__ import annotations

import copy
from typing import Any

from genelab import mdp
from genelab.config import TaskCfg
from genelab.envs import ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import (
    CurriculumTermCfg,
    EventTermCfg,
    MetricTermCfg,
    ObservationTermCfg,
    RewardTermCfg,
    SceneEntityCfg,
    ScheduleCfg,
    TerminationTermCfg,
)
from genelab.mdp import GaitClockCfg, ScriptedJointPositionActionCfg, VelocityCommandCfg, VelocityStage
from genelab.rl.config import (
    RslRlDistributionCfg,
    RslRlModelCfg,
    RslRlOnPolicyRunnerCfg,
    RslRlPpoAlgorithmCfg,
    RslRlSymmetryCfg,
)
from genelab.scene import ContactSensorCfg, PointsSensorCfg
from genelab_unitree.robots.g1 import ACTION_SCALE, COARSE_SOLE, FOOT, g1_cfg
from genelab_unitree.rough import Roughness, make_rough, rough_play, rough_ppo
from genelab_unitree.velocity import COMMAND, add_clock, coarse_physics, follow, push, velocity_env

ROUGHNESS = Roughness(stairs=(0.05, 0.23), boxes=(0.05, 0.20), rubble=(0.02, 0.10), slope=(0.0, 0.4))
TORSO = SceneEntityCfg(body_names=("torso_link",))
_FEET = (".*_ankle_roll_link",)
_MOVING: dict[str, Any] = {"threshold": 0.05, **COMMAND}

WALK = GaitClockCfg(frequency=1.5, run_out=0.5, offsets={"left_.*": 0.0, "right_.*": 0.5})
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


def flat_env() -> ManagerBasedRlEnvCfg:
    """On a plane, at walking speed first; the commands grow to a run."""
    command = VelocityCommandCfg(
        resampling_time_range=(3.0, 8.0),
        lin_vel_x=(-1.0, 1.0),
        lin_vel_y=(-1.0, 1.0),
        ang_vel_z=(-0.5, 0.5),
        standing_share=0.1,
        forward_share=0.2,
    )
    cfg = velocity_env(g1_cfg(), command, num_envs=512)
    cfg.scene.sensors = {
        "feet_contact": ContactSensorCfg(entity="robot", bodies=_FEET, other="world"),
        "feet": PointsSensorCfg(entity="robot", bodies=_FEET, pos=FOOT),
        "self_contact": ContactSensorCfg(
            entity="robot", bodies=("pelvis",), other="robot/pelvis", subtree=True, threshold=10.0
        ),
    }
    add_clock(cfg, copy.deepcopy(WALK))
    cfg.actions = {
        "joint_pos": ScriptedJointPositionActionCfg(
            scale=dict(ACTION_SCALE), offset=dict(STANCE), steps=copy.deepcopy(STEPS), strides=copy.deepcopy(STRIDES)
        )
    }
    feet_contact, feet = {"sensor": "feet_contact"}, {"sensor": "feet"}
    cfg.observations["critic"].terms |= {
        "foot_height": ObservationTermCfg(func=mdp.foot_height, params=dict(feet)),
        "foot_air_time": ObservationTermCfg(func=mdp.foot_air_time, params=dict(feet_contact)),
        "foot_contact": ObservationTermCfg(func=mdp.foot_contact, params=dict(feet_contact)),
        "foot_contact_forces": ObservationTermCfg(func=mdp.foot_contact_forces, params=dict(feet_contact)),
    }
    cfg.rewards = _rewards()
    cfg.events["reset_base"].params["pose_range"]["z"] = (0.01, 0.05)  # type: ignore[union-attr]
    cfg.events |= {
        "push": push(
            (1.0, 3.0),
            x=(-0.5, 0.5),
            y=(-0.5, 0.5),
            z=(-0.4, 0.4),
            roll=(-0.52, 0.52),
            pitch=(-0.52, 0.52),
            yaw=(-0.78, 0.78),
        ),
        "foot_friction": EventTermCfg(
            func=mdp.randomize_friction,
            mode="startup",
            params={"friction_range": (0.3, 1.2), "geoms": (".*_foot_.*",)},
        ),
        "torso_com": EventTermCfg(
            func=mdp.randomize_com,
            mode="startup",
            params={"x": (-0.025, 0.025), "y": (-0.025, 0.025), "z": (-0.03, 0.03), "asset": TORSO},
        ),
        "encoder_bias": EventTermCfg(
            func=mdp.randomize_encoder_bias, mode="startup", params={"bias_range": (-0.015, 0.015)}
        ),
    }
    cfg.curriculum["command_ranges"] = CurriculumTermCfg(
        func=mdp.command_ranges,
        params={
            "stages": (
                VelocityStage(step=120_000, lin_vel_x=(-1.5, 2.0), ang_vel_z=(-0.7, 0.7)),
                VelocityStage(step=240_000, lin_vel_x=(-2.0, 3.0)),
            ),
            **COMMAND,
        },
    )
    cfg.metrics["landing_force"] = MetricTermCfg(func=mdp.peak_force, params={"contact": "feet_contact"})
    return cfg


def _rewards() -> dict[str, RewardTermCfg | None]:
    contact, feet = {"contact": "feet_contact"}, {"feet": "feet"}
    return {
        "track_lin_vel": RewardTermCfg(
            func=mdp.track_lin_vel_exp, weight=2.0, params={"std": 0.25**0.5, "with_z": True, **COMMAND}
        ),
        "track_ang_vel": RewardTermCfg(
            func=mdp.track_ang_vel_exp, weight=2.0, params={"std": 0.5**0.5, "with_xy": True, **COMMAND}
        ),
        "upright": RewardTermCfg(func=mdp.upright_exp, weight=1.0, params={"std": 0.2**0.5, "asset": TORSO}),
        "pose": RewardTermCfg(
            func=mdp.VariablePosture,
            weight=1.0,
            params={
                "standing": 0.05,
                "walking": WALKING,
                "running": RUNNING,
                "walking_threshold": 0.05,
                "running_threshold": 1.5,
                **COMMAND,
            },
        ),
        "body_ang_vel": RewardTermCfg(func=mdp.body_ang_vel_xy_l2, weight=-0.05, params={"asset": TORSO}),
        "angular_momentum": RewardTermCfg(func=mdp.angular_momentum_l2, weight=-0.02),
        "joint_pos_limits": RewardTermCfg(func=mdp.joint_pos_limits, weight=-1.0),
        "action_rate": RewardTermCfg(func=mdp.action_rate_l2, weight=-0.1),
        "air_time": RewardTermCfg(
            func=mdp.air_time, weight=1.0, params={"window": (0.05, 0.5), "threshold": 0.5, **contact, **COMMAND}
        ),
        "foot_clearance": RewardTermCfg(
            func=mdp.foot_clearance, weight=-2.0, params={"target": 0.1, **feet, **_MOVING}
        ),
        "foot_swing_height": RewardTermCfg(
            func=mdp.FootSwingHeight, weight=-1.0, params={"target": 0.1, **contact, **feet, **_MOVING}
        ),
        "foot_slip": RewardTermCfg(func=mdp.foot_slip, weight=-0.1, params={**contact, **feet, **_MOVING}),
        "soft_landing": RewardTermCfg(func=mdp.soft_landing, weight=-1e-5, params={**contact, **_MOVING}),
        "self_collisions": RewardTermCfg(func=mdp.undesired_contacts, weight=-1.0, params={"sensor": "self_contact"}),
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
        "hand": ScheduleCfg(start=1.0, end=0.0, steps=9_600),
        "penalties": ScheduleCfg(start=0.1, steps=24_000, curve="geometric"),
        "pushes": ScheduleCfg(start=0.05, end=0.2, steps=24_000, curve="geometric"),
        "help": ScheduleCfg(start=1.0, end=0.0, begin=24_000, steps=12_000),
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
    cfg.events["push"].params["schedule"] = "pushes"  # type: ignore[union-attr]
    cfg.events["hand"] = EventTermCfg(
        func=mdp.HelpingWrench,
        mode="step",
        params={"schedule": "hand", "height": 0.74, "upright": (200.0, 8.0), "lead": (30.0, 3.0), **COMMAND},
    )
    cfg.terminations["sank"] = TerminationTermCfg(func=mdp.root_too_low, params={"height": 0.5})
    cfg.rewards |= {
        "feet_phase": RewardTermCfg(
            func=mdp.feet_height_phase,
            weight=4.0,
            schedule="help",
            params={"clock": "gait", "feet": "feet", "height": 0.09, "std": 0.063},
        ),
        "lin_vel_error": RewardTermCfg(func=mdp.error_vel_xy, weight=-2.0, schedule="help", params=dict(COMMAND)),
        "ang_vel_error": RewardTermCfg(func=mdp.error_vel_yaw, weight=-2.0, schedule="help", params=dict(COMMAND)),
    }
    return cfg


def flat_ppo() -> RslRlOnPolicyRunnerCfg:
    """PPO on networks that two CPU cores can train."""
    return RslRlOnPolicyRunnerCfg(
        experiment_name="g1_velocity_flat",
        max_iterations=1500,
        save_interval=100,
        # With a standard deviation of 1 the noise alone turns the pelvis at 2 rad/s, and nothing is left to learn from.
        actor=RslRlModelCfg(hidden_dims=(256, 128, 128), distribution=RslRlDistributionCfg(init_std=0.4)),
        critic=RslRlModelCfg(hidden_dims=(256, 128, 128)),
        algorithm=RslRlPpoAlgorithmCfg(
            entropy_coef=0.002,
            desired_kl=0.04,
            final_kl=0.01,
            num_learning_epochs=3,
            symmetry_cfg=RslRlSymmetryCfg(data_augmentation_func=mdp.augment, equivariant=True),
            use_mixed_precision=True,
        ),
    )


def rough_env() -> ManagerBasedRlEnvCfg:
    """Steps from 5 to 23 cm, slopes up to 22°."""
    cfg = flat_env()
    make_rough(cfg, ROUGHNESS, scan_body="torso_link")
    for name, weight in (("foot_clearance", -0.5), ("foot_swing_height", -0.25)):
        cfg.rewards[name].weight = weight  # type: ignore[union-attr]
    return cfg


def rough_ppo_cfg() -> RslRlOnPolicyRunnerCfg:
    """The same networks, exploring to the end."""
    agent = rough_ppo(flat_ppo())
    agent.experiment_name = "g1_velocity_rough"
    return agent


def flat_task() -> TaskCfg:
    """Genelab-Velocity-Flat-Unitree-G1-v0."""
    env = flat_env()
    return TaskCfg(env=beginner(env), play_env=play_cfg(env), agent=flat_ppo())


def rough_task() -> TaskCfg:
    """Genelab-Velocity-Rough-Unitree-G1-v0."""
    env = rough_env()
    return TaskCfg(env=coarse(env), play_env=rough_play(env), agent=rough_ppo_cfg())
