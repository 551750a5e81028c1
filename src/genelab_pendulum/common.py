"""What the pendulum tasks have in common.

Source of the numbers of the carts, here and in the tasks: the published configuration of GeneLab's reference runs, with
4096 environments (docs/sources.md). The learner's settings are ours, for two CPU cores.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from genelab import mdp
from genelab.envs import ManagerBasedRlEnvCfg
from genelab.managers import EventTermCfg, ObservationGroupCfg, event, obs, part, symmetric, termination, truncation
from genelab.rl.config import (
    RslRlDistributionCfg,
    RslRlModelCfg,
    RslRlOnPolicyRunnerCfg,
    RslRlPpoAlgorithmCfg,
    RslRlSymmetryCfg,
)
from genelab.scene import ArticulationCfg, FrameSensorCfg, PlaneCfg, SceneCfg
from genelab.sim import SimulationCfg

CART = part(joints=("cart",))


def pendulum_env(robot: ArticulationCfg, *, tip: str, spacing: float, episode_length_s: float) -> ManagerBasedRlEnvCfg:
    """A cart at 100 Hz that starts near upright, acts on the cart's position and sees its joints and its last pole."""
    return ManagerBasedRlEnvCfg(
        simulation=SimulationCfg(dt=0.005),
        decimation=2,
        episode_length_s=episode_length_s,
        scene=SceneCfg(
            num_envs=256,  # published: 4096
            env_spacing=spacing,
            entities={"robot": robot},
            terrain=PlaneCfg(),
            sensors={"tip": FrameSensorCfg(entity="robot", body=tip)},
        ),
        actions={"cart": mdp.JointPositionActionCfg(joint_names=("cart",), scale=1.0)},
        observations=_observations(),
        events={
            "reset_joints": event(
                mdp.reset_joints_by_offset, "reset", position_range=(-0.05, 0.05), velocity_range=(-0.05, 0.05)
            )
        },
        terminations={
            "time_out": truncation(mdp.time_out),
            "cart_out_of_bounds": termination(mdp.joint_pos_beyond, bound=2.4, asset=CART),
        },
    )


def _observations() -> dict[str, ObservationGroupCfg]:
    """The same terms for actor and critic; noise for the actor only."""
    policy = ObservationGroupCfg(
        terms={
            "joint_pos": obs(mdp.joint_pos_rel).then(noise=symmetric(0.005)),
            "joint_vel": obs(mdp.joint_vel_rel).then(noise=symmetric(0.05), scale=0.1),
            "pole_ang_vel": obs(mdp.frame_ang_vel, sensor="tip").then(noise=symmetric(0.1), scale=0.2),
            "last_action": obs(mdp.last_action),
        }
    )
    critic = copy.deepcopy(policy)
    critic.enable_noise = False
    return {"policy": policy, "critic": critic}


def push(velocity: float, interval_s: tuple[float, float]) -> EventTermCfg:
    """Now and then the cart suddenly has another velocity."""
    return event(mdp.set_joint_velocity, interval_s, velocity_range=(-velocity, velocity), asset=CART)


def mirror(env: Any, obs: Any, actions: Tensor | None) -> tuple[Any, Tensor | None]:
    """A batch with its mirror images below it: seen from the other side, whatever a cart does has the other sign."""
    obs, actions = (None if batch is None else torch.cat([batch, -batch]) for batch in (obs, actions))
    return obs, actions


def ppo(symmetry: RslRlSymmetryCfg | None = None) -> RslRlPpoAlgorithmCfg:
    """How the carts' networks learn."""
    return RslRlPpoAlgorithmCfg(
        num_learning_epochs=5,
        num_mini_batches=4,
        learning_rate=1e-3,
        schedule="adaptive",
        desired_kl=0.01,
        gamma=0.99,
        lam=0.95,
        clip_param=0.2,
        entropy_coef=0.005,
        value_loss_coef=1.0,
        use_clipped_value_loss=True,
        max_grad_norm=1.0,
        symmetry_cfg=symmetry,
    )


def published_ppo(
    experiment_name: str, max_iterations: int, hidden_dims: tuple[int, ...], save_interval: int
) -> RslRlOnPolicyRunnerCfg:
    """Return the published learner's settings.

    Args:
        experiment_name: Folder of the runs.
        max_iterations: Published number of iterations.
        hidden_dims: Published widths of the hidden layers.
        save_interval: Iterations between checkpoints.
    """
    return RslRlOnPolicyRunnerCfg(
        experiment_name=experiment_name,
        seed=42,
        max_iterations=max_iterations,
        num_steps_per_env=24,
        save_interval=save_interval,
        clip_actions=100.0,
        actor=RslRlModelCfg(hidden_dims=hidden_dims, distribution=RslRlDistributionCfg(init_std=1.0)),
        critic=RslRlModelCfg(hidden_dims=hidden_dims),
        algorithm=ppo(),
    )
