"""Go1 walks as commanded, on flat and on rough ground.

Source of command, rewards, pushes and ground: the published configuration of GeneLab's reference runs
(docs/sources.md), with 4096 environments and 3000 iterations. The clock, what helps a beginner and the learner's
settings are ours, for two cores.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace

from genelab import mdp
from genelab.config import TaskCfg
from genelab.envs import ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import ScheduleCfg, part, reward
from genelab.mdp import GaitClockCfg, JointPositionActionCfg, ScriptedJointPositionActionCfg, VelocityCommandCfg
from genelab.rl.config import (
    RslRlDistributionCfg,
    RslRlModelCfg,
    RslRlOnPolicyRunnerCfg,
    RslRlPpoAlgorithmCfg,
    RslRlSymmetryCfg,
)
from genelab.scene import ContactSensorCfg, PointsSensorCfg
from genelab_unitree.robots.go1 import ACTION_SCALE, FOOT, go1_cfg
from genelab_unitree.rough import Roughness, make_rough, published_rough_play, rough_play
from genelab_unitree.velocity import (
    FOLLOWS,
    add_clock,
    coarse_physics,
    follow,
    pay_errors,
    published_ppo,
    push,
    two_core_settings,
    velocity_env,
)

ROUGHNESS = Roughness(stairs=(0.03, 0.13), boxes=(0.03, 0.11), rubble=(0.02, 0.07), slope=(0.0, 0.3))

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
"""What soft servos need to carry the trunk at 0.27 m instead of 0.22, rad."""


def published_env() -> ManagerBasedRlEnvCfg:
    """Return the published task on a plane: forward, sideways and turning, each up to 1 m/s or 1 rad/s."""
    command = VelocityCommandCfg(
        resampling_time_range=(3.0, 8.0),
        lin_vel_x=(-1.0, 1.0),
        lin_vel_y=(-1.0, 1.0),
        ang_vel_z=(-1.0, 1.0),
        standing_share=0.1,
        forward_share=0.1,
        min_forward=0.3,
    )
    cfg = velocity_env(go1_cfg(), command)
    cfg.scene.sensors = {
        "feet_contact": ContactSensorCfg(entity="robot", bodies=(".*_calf",), other="world"),
        "feet": PointsSensorCfg(entity="robot", bodies=(".*_calf",), pos=FOOT),
        "thigh_contact": ContactSensorCfg(entity="robot", bodies=(".*_thigh",), other="world", times=False),
    }
    cfg.actions = {"joint_pos": JointPositionActionCfg(scale=ACTION_SCALE)}
    cfg.rewards = {
        "track_lin_vel": reward(mdp.track_lin_vel_exp, 2.0, command="twist", std=math.sqrt(0.25)),
        "track_ang_vel": reward(mdp.track_ang_vel_exp, 1.0, command="twist", std=math.sqrt(0.25)),
        "air_time": reward(
            mdp.air_time, 0.25, contact="feet_contact", window=(0.1, 0.5), command="twist", threshold=0.1
        ),
        "lin_vel_z": reward(mdp.lin_vel_z_l2, -2.0),
        "ang_vel_xy": reward(mdp.body_ang_vel_xy_l2, -0.05, asset=part(bodies=("trunk",))),
        "flat_orientation": reward(mdp.flat_orientation_l2, -1.0),
        "base_height": reward(mdp.base_height_l2, -1.0, target=0.34),
        "joint_torques": reward(mdp.joint_torques_l2, -2e-4),
        "joint_acc": reward(mdp.JointAccL2, -1e-5),
        "action_rate": reward(mdp.action_rate_l2, -0.01),
        "joint_pos_limits": reward(mdp.joint_pos_limits, -1.0),
        "thigh_contact": reward(mdp.any_contact, -1.0, sensor="thigh_contact"),
        "foot_slip": reward(mdp.foot_slip, -0.1, contact="feet_contact", feet="feet", command="twist", threshold=0.05),
    }
    cfg.events["push"] = push((1.0, 3.0), x=(-0.5, 0.5), y=(-0.5, 0.5), yaw=(-0.5, 0.5))
    return cfg


def flat_env() -> ManagerBasedRlEnvCfg:
    """Return the published task with a gait clock and script, at the settings for two cores."""
    return _with_gait(published_env())


def _with_gait(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    two_core_settings(cfg)
    add_clock(cfg, copy.deepcopy(TROT))
    cfg.actions = {
        "joint_pos": ScriptedJointPositionActionCfg(
            scale=ACTION_SCALE,
            offset=dict(STANCE),
            steps=copy.deepcopy(STEPS),
            strides=copy.deepcopy(STRIDES),
            average_s=0.5,  # without it one in forty fell when its command turned round
        )
    }
    return cfg


def beginner(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """The task as it is learned: coarser physics, rewards for keeping to the clock, penalties that come in."""
    cfg = coarse_physics(cfg)
    cfg.schedules = {
        "penalties": ScheduleCfg(start=0.1, steps=6_000, curve="geometric", gate=copy.deepcopy(FOLLOWS)),
        "smoothness": ScheduleCfg(start=0.02, steps=12_000, curve="geometric", gate=copy.deepcopy(FOLLOWS)),
        "steps": ScheduleCfg(start=4.0, steps=18_000, curve="geometric"),
        "stance": ScheduleCfg(start=30.0, steps=18_000, curve="geometric"),
    }
    follow(cfg, "penalties", "lin_vel_z", "ang_vel_xy", "flat_orientation", "joint_torques", "action_rate", "foot_slip")
    follow(cfg, "smoothness", "joint_acc")
    follow(cfg, "steps", "air_time")
    follow(cfg, "stance", "base_height")
    cfg.rewards["feet_phase"] = reward(
        mdp.feet_height_phase, 1.0, clock="gait", feet="feet", height=0.07, std=0.063, ground=0.02
    )
    cfg.schedules["clock"] = ScheduleCfg(start=1.0, end=0.0, begin=24_000, steps=18_000)
    follow(cfg, "clock", "feet_phase")
    # To the end, and more and more: the published kernels alone pay a robot best that goes at 90 % of the command.
    pay_errors(cfg, -6.0, -2.0, ScheduleCfg(start=0.25, begin=24_000, steps=12_000, until=47_900))
    return cfg


def flat_ppo() -> RslRlOnPolicyRunnerCfg:
    """PPO within an hour of two CPU cores."""
    return RslRlOnPolicyRunnerCfg(
        experiment_name="go1_velocity_flat",
        seed=42,
        max_iterations=2000,
        num_steps_per_env=24,
        save_interval=100,
        clip_actions=100.0,
        actor=RslRlModelCfg(
            hidden_dims=(128, 128, 128),
            activation="elu",
            obs_normalization=True,
            distribution=RslRlDistributionCfg(class_name="GaussianDistribution", init_std=0.5, std_type="scalar"),
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
            entropy_coef=0.005,
            value_loss_coef=1.0,
            use_clipped_value_loss=True,
            max_grad_norm=1.0,
            symmetry_cfg=RslRlSymmetryCfg(data_augmentation_func=mdp.augment, equivariant=True),
            use_mixed_precision=True,
        ),
    )


def flat_task() -> TaskCfg:
    """Genelab-Velocity-Flat-Unitree-Go1-v0."""
    env = flat_env()
    return TaskCfg(env=beginner(env), play_env=play_cfg(env), agent=flat_ppo())


def published_rough_env() -> ManagerBasedRlEnvCfg:
    """Return the published task on steps from 3 to 13 cm and slopes up to 17°."""
    cfg = published_env()
    make_rough(cfg, ROUGHNESS, scan_body="trunk")
    return cfg


def rough_env() -> ManagerBasedRlEnvCfg:
    """Return the published task on rough ground with a gait clock and script, at the settings for two cores."""
    cfg = flat_env()
    make_rough(cfg, ROUGHNESS, scan_body="trunk")
    return cfg


def rough_beginner(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """The rough task as it is learned by a robot that walks on a plane."""
    cfg = coarse_physics(cfg)
    cfg.schedules = {"smoothness": ScheduleCfg(start=0.2, steps=14_400, curve="geometric")}
    follow(cfg, "smoothness", "joint_acc")
    cfg.curriculum["terrain_levels"].params["demote_failures"] = True  # who goes as asked gets far before it falls
    pay_errors(cfg, -4.0, -4.0, ScheduleCfg(start=0.25, steps=14_400, until=28_700), alive=5.0)
    return cfg


def rough_ppo() -> RslRlOnPolicyRunnerCfg:
    """From the weights of the flat task. No bonus for entropy, which would undo a gait once it is there, and a floor
    under the exploration instead."""
    agent = flat_ppo()
    return replace(
        agent,
        experiment_name="go1_velocity_rough",
        max_iterations=1200,
        actor=replace(
            agent.actor,
            # As on flat ground a parameter and not an output of the network, or the weights would not fit.
            distribution=RslRlDistributionCfg(
                class_name="GaussianDistribution", init_std=0.5, std_type="scalar", std_range=(0.2, 2.0)
            ),
        ),
        algorithm=replace(agent.algorithm, entropy_coef=0.0, desired_kl=0.02),
    )


def rough_task() -> TaskCfg:
    """Genelab-Velocity-Rough-Unitree-Go1-v0."""
    env = rough_env()
    return TaskCfg(env=rough_beginner(env), play_env=rough_play(env), agent=rough_ppo())


def published_flat_task() -> TaskCfg:
    """Genelab-Velocity-Flat-Unitree-Go1-v0@published."""
    env = published_env()
    return TaskCfg(env=env, play_env=play_cfg(env), agent=published_ppo("go1_velocity_flat", 3000, 0.005))


def published_rough_task() -> TaskCfg:
    """Genelab-Velocity-Rough-Unitree-Go1-v0@published."""
    env = published_rough_env()
    agent = published_ppo("go1_velocity_rough", 3000, 0.0, rough=True)
    return TaskCfg(env=env, play_env=published_rough_play(env), agent=agent)
