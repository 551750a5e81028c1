"""Go1 walks as commanded, on flat and on rough ground."""

from __future__ import annotations

import copy

from genelab import mdp
from genelab.config import TaskCfg
from genelab.envs import ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import GateCfg, RewardTermCfg, ScheduleCfg
from genelab.mdp import GaitClockCfg, ScriptedJointPositionActionCfg, VelocityCommandCfg
from genelab.rl.config import (
    RslRlDistributionCfg,
    RslRlModelCfg,
    RslRlOnPolicyRunnerCfg,
    RslRlPpoAlgorithmCfg,
    RslRlSymmetryCfg,
)
from genelab.scene import ContactSensorCfg, PointsSensorCfg
from genelab_unitree.robots.go1 import ACTION_SCALE, FOOT, go1_cfg
from genelab_unitree.rough import Roughness, make_rough, rough_play, rough_ppo
from genelab_unitree.velocity import COMMAND, add_clock, coarse_physics, follow, push, velocity_env

ROUGHNESS = Roughness(stairs=(0.03, 0.13), boxes=(0.03, 0.11), rubble=(0.02, 0.07), slope=(0.0, 0.3))

_GAIT = {"contact": "feet_contact", **COMMAND}

TROT = GaitClockCfg(frequency=2.0, run_out=0.5, offsets={"(FL|RR)_calf": 0.0, "(FR|RL)_calf": 0.5})
"""Diagonal legs together."""
STEPS = {f"{leg}_calf": {f"{leg}_thigh_joint": 0.2, f"{leg}_calf_joint": -0.4} for leg in ("FL", "FR", "RL", "RR")}
"""What lifts a foot by some 5 cm, rad."""
STRIDES: dict[str, dict[str, tuple[float, ...]]] = {
    f"{end}{side}_calf": {
        f"{end}{side}_thigh_joint": (-0.42, 0.0, 0.053 * left),
        f"{end}{side}_hip_joint": (0.0, 0.42, 0.079 * front),
    }
    for end, front in (("F", 1.0), ("R", -1.0))
    for side, left in (("L", 1.0), ("R", -1.0))
}
"""A quarter of a period ahead of the hip, which is 0.19 m in front or behind and 0.13 m beside the middle, on legs of
0.3 m, rad per m/s and rad/s."""
STANCE = {".*_hip_joint": 0.0, ".*_thigh_joint": -0.13, ".*_calf_joint": 0.45}
"""What soft servos need to carry the trunk at 0.32 m instead of 0.20, rad."""


def flat_env() -> ManagerBasedRlEnvCfg:
    """On a plane; forward, sideways and turning, each up to 1 m/s or 1 rad/s."""
    command = VelocityCommandCfg(
        resampling_time_range=(3.0, 8.0),
        lin_vel_x=(-1.0, 1.0),
        lin_vel_y=(-1.0, 1.0),
        ang_vel_z=(-1.0, 1.0),
        standing_share=0.1,
        forward_share=0.1,
    )
    cfg = velocity_env(go1_cfg(), command, num_envs=512)
    cfg.scene.sensors = {
        "feet_contact": ContactSensorCfg(entity="robot", bodies=(".*_calf",), other="world"),
        "feet": PointsSensorCfg(entity="robot", bodies=(".*_calf",), pos=FOOT),
        "thigh_contact": ContactSensorCfg(entity="robot", bodies=(".*_thigh",), other="world"),
    }
    add_clock(cfg, copy.deepcopy(TROT))
    cfg.actions = {
        "joint_pos": ScriptedJointPositionActionCfg(
            scale=ACTION_SCALE, offset=dict(STANCE), steps=copy.deepcopy(STEPS), strides=copy.deepcopy(STRIDES)
        )
    }
    cfg.rewards = {
        "track_lin_vel": RewardTermCfg(func=mdp.track_lin_vel_exp, weight=2.0, params={"std": 0.5, **COMMAND}),
        "track_ang_vel": RewardTermCfg(func=mdp.track_ang_vel_exp, weight=1.0, params={"std": 0.5, **COMMAND}),
        "air_time": RewardTermCfg(
            func=mdp.air_time,
            weight=0.25,
            params={"window": (0.1, 0.5), "threshold": 0.1, **_GAIT},
        ),
        "lin_vel_z": RewardTermCfg(func=mdp.lin_vel_z_l2, weight=-2.0),
        "ang_vel_xy": RewardTermCfg(func=mdp.ang_vel_xy_l2, weight=-0.05),
        "flat_orientation": RewardTermCfg(func=mdp.flat_orientation_l2, weight=-1.0),
        "base_height": RewardTermCfg(func=mdp.base_height_l2, weight=-1.0, params={"target": 0.34}),
        "joint_torques": RewardTermCfg(func=mdp.joint_torques_l2, weight=-2e-4),
        "joint_acc": RewardTermCfg(func=mdp.JointAccL2, weight=-1e-5),
        "action_rate": RewardTermCfg(func=mdp.action_rate_l2, weight=-0.01),
        "joint_pos_limits": RewardTermCfg(func=mdp.joint_pos_limits, weight=-1.0),
        "thigh_contact": RewardTermCfg(func=mdp.undesired_contacts, weight=-1.0, params={"sensor": "thigh_contact"}),
        "foot_slip": RewardTermCfg(
            func=mdp.foot_slip, weight=-0.1, params={"feet": "feet", "threshold": 0.05, **_GAIT}
        ),
    }
    cfg.events["push"] = push((1.0, 3.0), x=(-0.5, 0.5), y=(-0.5, 0.5), yaw=(-0.5, 0.5))
    return cfg


WALKS = GateCfg(func=mdp.track_lin_vel_exp, params={"std": 0.5, **COMMAND}, above=0.7, below=0.55)
"""What makes walking harder waits for robots that follow the command."""


def beginner(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """The task as it is learned: coarser physics, rewards for keeping to the clock, penalties that come in."""
    cfg = coarse_physics(cfg)
    cfg.schedules = {
        "penalties": ScheduleCfg(start=0.1, steps=6_000, curve="geometric", gate=copy.deepcopy(WALKS)),
        "smoothness": ScheduleCfg(start=0.02, steps=12_000, curve="geometric", gate=copy.deepcopy(WALKS)),
        "help": ScheduleCfg(start=1.0, end=0.0, begin=24_000, steps=18_000),
        "steps": ScheduleCfg(start=4.0, steps=18_000, curve="geometric"),
        "stance": ScheduleCfg(start=30.0, steps=18_000, curve="geometric"),
    }
    follow(cfg, "penalties", "lin_vel_z", "ang_vel_xy", "flat_orientation", "joint_torques", "action_rate", "foot_slip")
    follow(cfg, "smoothness", "joint_acc")
    follow(cfg, "steps", "air_time")
    follow(cfg, "stance", "base_height")
    cfg.rewards |= {
        "feet_phase": RewardTermCfg(
            func=mdp.feet_height_phase,
            weight=1.0,
            schedule="help",
            params={"clock": "gait", "feet": "feet", "height": 0.07, "std": 0.063, "ground": 0.02},
        ),
        "lin_vel_error": RewardTermCfg(func=mdp.error_vel_xy, weight=-0.5, schedule="help", params=dict(COMMAND)),
        "ang_vel_error": RewardTermCfg(func=mdp.error_vel_yaw, weight=-0.5, schedule="help", params=dict(COMMAND)),
    }
    return cfg


def flat_ppo() -> RslRlOnPolicyRunnerCfg:
    """PPO within an hour of two CPU cores."""
    return RslRlOnPolicyRunnerCfg(
        experiment_name="go1_velocity_flat",
        max_iterations=2000,
        save_interval=100,
        actor=RslRlModelCfg(hidden_dims=(128, 128, 128), distribution=RslRlDistributionCfg(init_std=0.5)),
        critic=RslRlModelCfg(hidden_dims=(128, 128, 128)),
        algorithm=RslRlPpoAlgorithmCfg(
            entropy_coef=0.005,
            desired_kl=0.02,
            final_kl=0.005,
            num_learning_epochs=3,
            symmetry_cfg=RslRlSymmetryCfg(data_augmentation_func=mdp.augment, equivariant=True),
            use_mixed_precision=True,
        ),
    )


def flat_task() -> TaskCfg:
    """Genelab-Velocity-Flat-Unitree-Go1-v0."""
    env = flat_env()
    return TaskCfg(env=beginner(env), play_env=play_cfg(env), agent=flat_ppo())


def rough_env() -> ManagerBasedRlEnvCfg:
    """Steps from 3 to 13 cm, slopes up to 17°."""
    cfg = flat_env()
    make_rough(cfg, ROUGHNESS, scan_body="trunk")
    return cfg


def rough_ppo_cfg() -> RslRlOnPolicyRunnerCfg:
    """From the weights of the flat task, whose noise is a parameter and not an output of the network."""
    agent = rough_ppo(flat_ppo())
    agent.experiment_name = "go1_velocity_rough"
    agent.max_iterations = 1200
    assert agent.actor.distribution is not None
    agent.actor.distribution.class_name = "GaussianDistribution"
    agent.actor.distribution.std_type = "scalar"
    return agent


def rough_task() -> TaskCfg:
    """Genelab-Velocity-Rough-Unitree-Go1-v0."""
    env = rough_env()
    return TaskCfg(env=coarse_physics(env), play_env=rough_play(env), agent=rough_ppo_cfg())
