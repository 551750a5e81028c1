"""Go1 walks as commanded, on flat and on rough ground."""

from __future__ import annotations

import copy

from genelab import mdp
from genelab.config import TaskCfg
from genelab.envs import ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import RewardTermCfg, ScheduleCfg
from genelab.mdp import JointPositionActionCfg, VelocityCommandCfg
from genelab.rl.config import (
    RslRlDistributionCfg,
    RslRlModelCfg,
    RslRlOnPolicyRunnerCfg,
    RslRlPpoAlgorithmCfg,
    RslRlSymmetryCfg,
)
from genelab.scene import ContactSensorCfg, PointsSensorCfg
from genelab_unitree.mirror import augment
from genelab_unitree.robots.go1 import ACTION_SCALE, FOOT, go1_cfg
from genelab_unitree.rough import Roughness, make_rough, rough_play, rough_ppo
from genelab_unitree.velocity import COMMAND, follow, push, velocity_env

ROUGHNESS = Roughness(stairs=(0.03, 0.13), boxes=(0.03, 0.11), rubble=(0.02, 0.07), slope=(0.0, 0.3))

_GAIT = {"contact": "feet_contact", **COMMAND}


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
    cfg.actions = {"joint_pos": JointPositionActionCfg(scale=ACTION_SCALE)}
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


def beginner(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """The task as it is learned: penalties that would keep a beginner from moving come in over 750 iterations."""
    cfg = copy.deepcopy(cfg)
    cfg.schedules = {
        "penalties": ScheduleCfg(start=0.1, steps=18_000, curve="geometric"),
        "smoothness": ScheduleCfg(start=0.005, steps=100_000, curve="geometric"),
        "steps": ScheduleCfg(start=4.0, steps=18_000, curve="geometric"),
        "stance": ScheduleCfg(start=30.0, steps=18_000, curve="geometric"),
    }
    follow(cfg, "penalties", "lin_vel_z", "ang_vel_xy", "flat_orientation", "joint_torques", "action_rate", "foot_slip")
    follow(cfg, "smoothness", "joint_acc")
    follow(cfg, "steps", "air_time")  # at first steps pay more than standing well does
    follow(cfg, "stance", "base_height")
    return cfg


def flat_ppo() -> RslRlOnPolicyRunnerCfg:
    """PPO within an hour of two CPU cores."""
    return RslRlOnPolicyRunnerCfg(
        experiment_name="go1_velocity_flat",
        max_iterations=1500,
        save_interval=100,
        actor=RslRlModelCfg(hidden_dims=(128, 128, 128), distribution=RslRlDistributionCfg()),
        critic=RslRlModelCfg(hidden_dims=(128, 128, 128)),
        algorithm=RslRlPpoAlgorithmCfg(
            entropy_coef=0.005,
            desired_kl=0.02,
            final_kl=0.005,
            num_learning_epochs=3,
            symmetry_cfg=RslRlSymmetryCfg(data_augmentation_func=augment),
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
    cfg.schedules = {"smoothness": ScheduleCfg(start=0.02, steps=200_000, curve="geometric")}
    follow(cfg, "smoothness", "joint_acc")
    return cfg


def rough_ppo_cfg() -> RslRlOnPolicyRunnerCfg:
    """From the weights of the flat task, whose noise is a parameter and not an output of the network."""
    agent = rough_ppo(flat_ppo())
    agent.experiment_name = "go1_velocity_rough"
    agent.max_iterations = 600
    assert agent.actor.distribution is not None
    agent.actor.distribution.class_name = "GaussianDistribution"
    agent.actor.distribution.std_type = "scalar"
    return agent


def rough_task() -> TaskCfg:
    """Genelab-Velocity-Rough-Unitree-Go1-v0."""
    env = rough_env()
    return TaskCfg(env=env, play_env=rough_play(env), agent=rough_ppo_cfg())
