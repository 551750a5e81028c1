"""Walking as commanded: what the robots have in common.

Source of the numbers: the published configuration of GeneLab's reference runs, `Genelab-Velocity-Flat-Unitree-*`
(docs/sources.md); docs/walking.md lists what differs.
"""

from __future__ import annotations

import copy
import math

from genelab import mdp
from genelab.envs import ManagerBasedRlEnvCfg
from genelab.managers import (
    EventTermCfg,
    ObservationGroupCfg,
    ScheduleCfg,
    event,
    gate,
    metric,
    obs,
    reward,
    symmetric,
    termination,
    truncation,
)
from genelab.mdp import GaitClockCfg, VelocityCommandCfg
from genelab.rl.config import (
    RslRlDistributionCfg,
    RslRlModelCfg,
    RslRlOnPolicyRunnerCfg,
    RslRlPpoAlgorithmCfg,
)
from genelab.scene import ArticulationCfg, PlaneCfg, SceneCfg
from genelab.sim import SimulationCfg


def velocity_env(robot: ArticulationCfg, command: VelocityCommandCfg) -> ManagerBasedRlEnvCfg:
    """Return the published part that all walkers share: a robot on a plane at 50 Hz in episodes of twenty seconds.

    Args:
        robot: The robot.
        command: Ranges of the velocity command.

    Returns:
        The config without sensors, actions and rewards, with the published physics step and number of environments.
    """
    return ManagerBasedRlEnvCfg(
        simulation=SimulationCfg(dt=0.002, fresh_kinematics=False),
        decimation=10,
        episode_length_s=20.0,
        scene=SceneCfg(num_envs=4096, env_spacing=2.5, entities={"robot": robot}, terrain=PlaneCfg()),
        observations=_observations(),
        commands={"twist": command},
        events={
            "reset_base": event(
                mdp.reset_root_uniform,
                "reset",
                pose_range={"x": (-0.5, 0.5), "y": (-0.5, 0.5), "yaw": (-math.pi, math.pi)},
            ),
        },
        terminations={
            "time_out": truncation(mdp.time_out),
            "fell": termination(mdp.bad_orientation, limit=math.radians(70.0)),
        },
        metrics={
            "error_vel_xy": metric(mdp.error_vel_xy, "mean", command="twist"),
            "error_vel_yaw": metric(mdp.error_vel_yaw, "mean", command="twist"),
        },
    )


def _observations() -> dict[str, ObservationGroupCfg]:
    """What a robot measures goes to the actor, noisy; the critic has privileged observations besides: the same without
    noise, and the velocity."""
    policy = ObservationGroupCfg(
        terms={
            "base_ang_vel": obs(mdp.base_ang_vel).then(noise=symmetric(0.2)),
            "projected_gravity": obs(mdp.projected_gravity).then(noise=symmetric(0.05)),
            "joint_pos": obs(mdp.joint_pos_measured).then(noise=symmetric(0.01)),
            "joint_vel": obs(mdp.joint_vel_rel).then(noise=symmetric(1.5)),
            "last_action": obs(mdp.last_action),
            "command": obs(mdp.generated_command, command="twist"),
        }
    )
    critic = copy.deepcopy(policy)
    critic.enable_noise = False
    critic.terms["joint_pos"] = obs(mdp.joint_pos_rel)
    critic.terms = {"base_lin_vel": obs(mdp.base_lin_vel), **critic.terms}
    return {"policy": policy, "critic": critic}


def push(interval_s: tuple[float, float], **velocity: tuple[float, float]) -> EventTermCfg:
    """Now and then somebody pushes the robot: a velocity is added to its own, by axis."""
    return event(mdp.push_by_velocity, interval_s, velocity_range=velocity)


def add_clock(cfg: ManagerBasedRlEnvCfg, clock: GaitClockCfg) -> None:
    """Show a gait clock to actor and critic."""
    cfg.commands["gait"] = clock
    for group in cfg.observations.values():
        group.terms["gait"] = obs(mdp.generated_command, command="gait")


def two_core_settings(cfg: ManagerBasedRlEnvCfg) -> None:
    """Set the physics step and number of environments of our own tasks.

    The same control rate in four steps of 0.005 s is as stable as the published ten of 0.002 s, and more than twice as
    fast.
    """
    cfg.simulation.dt, cfg.decimation = 0.005, 4
    cfg.scene.num_envs = 512


def coarse_physics(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """The same control rate in two physics steps instead of four: for learning, never for judging."""
    cfg = copy.deepcopy(cfg)
    cfg.simulation.dt, cfg.decimation = 0.01, 2
    return cfg


def follow(cfg: ManagerBasedRlEnvCfg, schedule: str, *rewards: str) -> None:
    """Let a schedule rule these rewards."""
    for name in rewards:
        cfg.rewards[name].schedule = schedule


FOLLOWS = gate(mdp.track_lin_vel_exp, 0.7, 0.55, command="twist", std=math.sqrt(0.25))
"""What makes moving harder waits for robots that follow the command."""


def pay_errors(
    cfg: ManagerBasedRlEnvCfg, lin_vel: float, ang_vel: float, until: ScheduleCfg, *, alive: float = 0.0
) -> None:
    """Errors of the velocity cost these weights until a schedule takes them back.

    Their slope does not vanish far from the command, as that of the published kernels does. On hard ground they eat up
    what the other rewards pay, and a fall costs nothing any more: being `alive` makes up for it.
    """
    cfg.schedules["errors"] = until
    cfg.rewards |= {
        "lin_vel_error": reward(mdp.error_vel_xy, lin_vel, command="twist"),
        "ang_vel_error": reward(mdp.error_vel_yaw, ang_vel, command="twist"),
    }
    if alive:
        cfg.rewards["alive"] = reward(mdp.is_alive, alive)
        follow(cfg, "errors", "alive")
    follow(cfg, "errors", "lin_vel_error", "ang_vel_error")


def published_ppo(
    experiment_name: str, max_iterations: int, entropy_coef: float, *, rough: bool = False
) -> RslRlOnPolicyRunnerCfg:
    """Return the published learner's settings.

    Args:
        experiment_name: Folder of the runs.
        max_iterations: Published number of iterations.
        entropy_coef: Published weight of the entropy bonus.
        rough: Settings of rough ground: a standard deviation for each state with a floor, and a larger step.
    """
    std = (
        RslRlDistributionCfg(class_name="HeteroscedasticGaussianDistribution", std_type="log", std_range=(0.3, 2.0))
        if rough
        else RslRlDistributionCfg()
    )
    layers = (512, 256, 128)
    return RslRlOnPolicyRunnerCfg(
        experiment_name=experiment_name,
        seed=42,
        max_iterations=max_iterations,
        num_steps_per_env=24,
        save_interval=50,
        clip_actions=100.0,
        actor=RslRlModelCfg(hidden_dims=layers, activation="elu", obs_normalization=True, distribution=std),
        critic=RslRlModelCfg(hidden_dims=layers, activation="elu", obs_normalization=True),
        algorithm=RslRlPpoAlgorithmCfg(
            num_learning_epochs=5,
            num_mini_batches=4,
            learning_rate=1e-3,
            schedule="adaptive",
            desired_kl=0.02 if rough else 0.01,
            gamma=0.99,
            lam=0.95,
            clip_param=0.2,
            entropy_coef=entropy_coef,
            value_loss_coef=1.0,
            use_clipped_value_loss=True,
            max_grad_norm=1.0,
        ),
    )
