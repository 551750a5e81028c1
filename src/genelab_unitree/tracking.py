"""G1 follows a motion.

Source of observations, rewards, ends and events: the published configuration of GeneLab's reference runs
(docs/sources.md), with 4096 environments and 30 000 iterations. The motions, the action on top of the motion, what
helps a beginner and the learner's settings are ours, for two CPU cores.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace

from genelab import mdp
from genelab.config import TaskCfg
from genelab.envs import ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import (
    ObservationGroupCfg,
    RewardTermCfg,
    ScheduleCfg,
    event,
    metric,
    obs,
    reward,
    termination,
    truncation,
)
from genelab.mdp import JointPositionActionCfg, MotionCommandCfg, MotionJointPositionActionCfg
from genelab.rl.config import RslRlDistributionCfg, RslRlOnPolicyRunnerCfg
from genelab.scene import PlaneCfg, SceneCfg
from genelab.sim import SimulationCfg
from genelab_unitree.g1 import coarse, flat_ppo
from genelab_unitree.robots.g1 import ACTION_SCALE, MOTORS, g1_cfg
from genelab_unitree.velocity import follow, published_ppo, push, two_core_settings

BODIES = (
    "pelvis",
    ".*_hip_roll_link",
    ".*_knee_link",
    ".*_ankle_roll_link",
    "torso_link",
    ".*_shoulder_roll_link",
    ".*_elbow_link",
    ".*_wrist_yaw_link",
)
"""What is followed: 14 bodies."""
HANDS_AND_FEET = (".*_ankle_roll_link", ".*_wrist_yaw_link")
LEAD = max(motor.damping / motor.stiffness for motor, _ in MOTORS.values())
"""How late the servos follow, the same for all, s."""


def tracking_env(*, state_estimation: bool = True) -> ManagerBasedRlEnvCfg:
    """Return the published task with actions on top of the motion, at the settings for two cores."""
    cfg = published_env(state_estimation=state_estimation)
    two_core_settings(cfg)
    cfg.actions = {
        "joint_pos": MotionJointPositionActionCfg(scale=dict(ACTION_SCALE), lead=LEAD, feed_forward=1.0),
    }
    return cfg


def published_env(*, state_estimation: bool = True) -> ManagerBasedRlEnvCfg:
    """Return the published task: on a plane at 50 Hz, in episodes of ten seconds that begin anywhere in the motion."""
    return ManagerBasedRlEnvCfg(
        simulation=SimulationCfg(dt=0.002),
        decimation=10,
        episode_length_s=10.0,
        scene=SceneCfg(num_envs=4096, env_spacing=2.5, entities={"robot": g1_cfg()}, terrain=PlaneCfg()),
        commands={
            "motion": MotionCommandCfg(
                file="dance",
                package="genelab_unitree",
                anchor="torso_link",
                bodies=BODIES,
                end_effectors=HANDS_AND_FEET,
            )
        },
        actions={"joint_pos": JointPositionActionCfg(scale=dict(ACTION_SCALE))},
        observations=_observations(state_estimation),
        rewards=_rewards(),
        terminations={
            "time_out": truncation(mdp.time_out),
            "motion_ended": truncation(mdp.motion_ended, command="motion"),
            "anchor_height": termination(mdp.motion_anchor_too_far, command="motion", distance=0.25),
            "anchor_tilt": termination(mdp.motion_anchor_tilted, command="motion", limit=0.8),
            "end_effector_height": termination(mdp.motion_end_effector_too_far, command="motion", distance=0.25),
        },
        events={
            "reset_to_motion": event(
                mdp.reset_to_motion,
                "reset",
                command="motion",
                pose_range={
                    "x": (-0.05, 0.05),
                    "y": (-0.05, 0.05),
                    "z": (-0.01, 0.01),
                    "roll": (-0.1, 0.1),
                    "pitch": (-0.1, 0.1),
                    "yaw": (-0.2, 0.2),
                },
                velocity_range={
                    "x": (-0.5, 0.5),
                    "y": (-0.5, 0.5),
                    "z": (-0.2, 0.2),
                    "roll": (-0.52, 0.52),
                    "pitch": (-0.52, 0.52),
                    "yaw": (-0.78, 0.78),
                },
                joint_range=(-0.1, 0.1),
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
        },
        metrics={
            "mpkpe": metric(mdp.motion_error, "mean", command="motion", kind="mpkpe"),
            "mpkpe_root": metric(mdp.motion_error, "mean", command="motion", kind="mpkpe_root"),
            "joint_vel_error": metric(mdp.motion_error, "mean", command="motion", kind="joint_vel"),
            "end_effector_pos_error": metric(mdp.motion_error, "mean", command="motion", kind="end_effector_pos"),
            "end_effector_ori_error": metric(mdp.motion_error, "mean", command="motion", kind="end_effector_ori"),
        },
    )


def _observations(state_estimation: bool) -> dict[str, ObservationGroupCfg]:
    """The critic sees where its bodies are besides. Without state estimation the actor knows neither where it is nor
    how fast, as a robot that measures with its own sensors alone."""
    terms = {
        "command": obs(mdp.generated_command, command="motion"),
        "motion_anchor_pos": obs(mdp.motion_anchor_pos, command="motion"),
        "motion_anchor_ori": obs(mdp.motion_anchor_ori, command="motion"),
        "base_lin_vel": obs(mdp.base_lin_vel),
        "base_ang_vel": obs(mdp.base_ang_vel),
        "joint_pos": obs(mdp.joint_pos_rel),
        "joint_vel": obs(mdp.joint_vel_rel),
        "last_action": obs(mdp.last_action),
    }
    critic = copy.deepcopy(terms) | {
        "body_pos": obs(mdp.robot_body_pos, command="motion"),
        "body_ori": obs(mdp.robot_body_ori, command="motion"),
    }
    if not state_estimation:
        del terms["motion_anchor_pos"], terms["base_lin_vel"]
    return {"policy": ObservationGroupCfg(terms=terms), "critic": ObservationGroupCfg(terms=critic)}


def _rewards() -> dict[str, RewardTermCfg]:
    return {
        "anchor_pos": reward(mdp.motion_anchor_pos_exp, 0.5, command="motion", std=0.3),
        "anchor_ori": reward(mdp.motion_anchor_ori_exp, 0.5, command="motion", std=0.4),
        "body_pos": reward(mdp.motion_body_pos_exp, 1.0, command="motion", std=0.3),
        "body_ori": reward(mdp.motion_body_ori_exp, 1.0, command="motion", std=0.4),
        "body_lin_vel": reward(mdp.motion_body_lin_vel_exp, 1.0, command="motion", std=1.0),
        "body_ang_vel": reward(mdp.motion_body_ang_vel_exp, 1.0, command="motion", std=math.pi),
        "action_rate": reward(mdp.action_rate_l2, -0.1),
        "joint_pos_limits": reward(mdp.joint_pos_limits, -10.0),
    }


def beginner(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """The task as it is learned: cheaper physics, a hand that lets go, ends that come later at first."""
    cfg = coarse(cfg)
    cfg.simulation.fresh_kinematics = False
    cfg.schedules = {
        "hand": ScheduleCfg(start=1.0, end=0.0, steps=2_400),
        "penalties": ScheduleCfg(start=0.1, steps=4_800, curve="geometric"),
        "pushes": ScheduleCfg(start=0.05, end=0.2, steps=7_200, curve="geometric"),
        "tolerance": ScheduleCfg(start=2.0, end=1.0, steps=2_400),
        "starts": ScheduleCfg(start=0.2, end=1.0, steps=4_800),
    }
    follow(cfg, "penalties", "action_rate", "joint_pos_limits")
    for end in ("anchor_height", "anchor_tilt", "end_effector_height"):
        cfg.terminations[end].params["schedule"] = "tolerance"
    cfg.events["push"].params["schedule"] = "pushes"
    cfg.events["reset_to_motion"].params["schedule"] = "starts"
    _motion(cfg).sampling = "adaptive"
    cfg.events["hand"] = event(mdp.MotionWrench, "step", schedule="hand", command="motion")
    return cfg


def tracking_play(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """From the first frame, exactly, over and over."""
    cfg = play_cfg(cfg)
    cfg.episode_length_s = 1e9
    del cfg.terminations["motion_ended"]
    cfg.events["reset_to_motion"] = event(mdp.reset_to_motion, "reset", command="motion")
    motion = _motion(cfg)
    motion.sampling, motion.at_end = "start", "loop"
    return cfg


def _motion(cfg: ManagerBasedRlEnvCfg) -> MotionCommandCfg:
    motion = cfg.commands["motion"]
    assert isinstance(motion, MotionCommandCfg)
    return motion


def tracking_ppo() -> RslRlOnPolicyRunnerCfg:
    """As the walking G1. Zero action is the motion, so it needs less noise to explore."""
    agent = flat_ppo()
    return replace(
        agent,
        experiment_name="g1_tracking_flat",
        max_iterations=800,
        actor=replace(
            agent.actor,
            distribution=RslRlDistributionCfg(class_name="GaussianDistribution", init_std=0.2, std_type="scalar"),
        ),
        algorithm=replace(agent.algorithm, entropy_coef=0.001),
    )


def _task(state_estimation: bool) -> TaskCfg:
    env = tracking_env(state_estimation=state_estimation)
    return TaskCfg(env=beginner(env), play_env=tracking_play(env), agent=tracking_ppo())


def flat_task() -> TaskCfg:
    """Genelab-Tracking-Flat-Unitree-G1-v0."""
    return _task(state_estimation=True)


def flat_task_without_state_estimation() -> TaskCfg:
    """Genelab-Tracking-Flat-Unitree-G1-No-State-Estimation-v0."""
    return _task(state_estimation=False)


def _published_task(state_estimation: bool) -> TaskCfg:
    env = published_env(state_estimation=state_estimation)
    return TaskCfg(env=env, play_env=tracking_play(env), agent=published_ppo("g1_tracking_flat", 30_000, 0.005))


def published_flat_task() -> TaskCfg:
    """Genelab-Tracking-Flat-Unitree-G1-v0@published, with a motion of our own."""
    return _published_task(state_estimation=True)


def published_flat_task_without_state_estimation() -> TaskCfg:
    """Genelab-Tracking-Flat-Unitree-G1-No-State-Estimation-v0@published, with a motion of our own."""
    return _published_task(state_estimation=False)
