"""A robot that somebody else made, in one file: the half-cheetah that comes with Gymnasium, as it is.

`genelab train Half-Cheetah-Run-v0 --import examples/third_party_robot.py`
"""

from __future__ import annotations

from pathlib import Path

import gymnasium
import torch
from torch import Tensor

from genelab import TASKS, TaskCfg, mdp
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import ObservationGroupCfg, event, metric, obs, part, reward, truncation
from genelab.rl.config import RslRlDistributionCfg, RslRlModelCfg, RslRlOnPolicyRunnerCfg, RslRlPpoAlgorithmCfg
from genelab.scene import ArticulationCfg, SceneCfg, XmlActuatorCfg, mjcf_file
from genelab.sim import SimulationCfg

MODEL = Path(gymnasium.__file__).parent / "envs/mujoco/assets/half_cheetah.xml"
LEGS = ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
TORQUES = {"bthigh": 120.0, "bshin": 90.0, "bfoot": 60.0, "fthigh": 120.0, "fshin": 60.0, "ffoot": 30.0}
"""Gears of the file's motors, whose controls go from -1 to 1, N·m."""


def forward_speed(env: ManagerBasedRlEnv) -> Tensor:
    """Speed along the world's x, `(N,)`, m/s."""
    return env.robot.root_lin_vel_w[:, 0]


def torque_share(env: ManagerBasedRlEnv) -> Tensor:
    """Sum of the squared controls, `(N,)`."""
    return torch.square(env.action_manager.action).sum(dim=1)


def env() -> ManagerBasedRlEnvCfg:
    """Run, with the weights of Gymnasium's HalfCheetah."""
    robot = ArticulationCfg(
        spec=mjcf_file, spec_args={"path": str(MODEL)}, actuators={"motors": XmlActuatorCfg(joint_names=LEGS)}
    )
    terms = {
        "height_pitch_legs": obs(mdp.joint_pos_rel, asset=part(joints=("rootz", "rooty", *LEGS))),
        "velocities": obs(mdp.joint_vel_rel).then(scale=0.1),
    }
    return ManagerBasedRlEnvCfg(
        simulation=SimulationCfg(dt=0.01),
        decimation=5,
        episode_length_s=50.0,
        scene=SceneCfg(num_envs=64, entities={"robot": robot}),  # the file has a floor
        actions={"legs": mdp.JointEffortActionCfg(joint_names=LEGS, scale=TORQUES, clip=(-1.0, 1.0))},
        observations={"policy": ObservationGroupCfg(terms=terms)},
        rewards={"forward": reward(forward_speed, 1.0), "torque": reward(torque_share, -0.1)},
        scale_rewards_by_dt=False,
        terminations={"time_out": truncation(mdp.time_out)},
        events={
            "start": event(mdp.reset_joints_by_offset, "reset", position_range=(-0.1, 0.1), velocity_range=(-0.1, 0.1))
        },
        metrics={"speed": metric(forward_speed, "mean")},
    )


def agent() -> RslRlOnPolicyRunnerCfg:
    """PPO."""
    return RslRlOnPolicyRunnerCfg(
        experiment_name="half_cheetah",
        max_iterations=300,
        num_steps_per_env=64,
        actor=RslRlModelCfg(
            hidden_dims=(128, 128),
            activation="elu",
            obs_normalization=True,
            distribution=RslRlDistributionCfg(class_name="GaussianDistribution", init_std=0.5, std_type="scalar"),
        ),
        critic=RslRlModelCfg(hidden_dims=(128, 128), activation="elu", obs_normalization=True),
        algorithm=RslRlPpoAlgorithmCfg(learning_rate=1e-3, schedule="adaptive", desired_kl=0.01, entropy_coef=0.002),
    )


def task() -> TaskCfg:
    """Half-Cheetah-Run-v0."""
    cfg = env()
    return TaskCfg(env=cfg, play_env=play_cfg(cfg), agent=agent())


TASKS.register("Half-Cheetah-Run-v0", "third_party_robot:task", description="Run.", robot="half-cheetah")
