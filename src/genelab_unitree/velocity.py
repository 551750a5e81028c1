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
from genelab.scene import ArticulationCfg, PlaneCfg, SceneCfg
from genelab.sim import SimulationCfg


def velocity_env(robot: ArticulationCfg, command: VelocityCommandCfg, *, num_envs: int) -> ManagerBasedRlEnvCfg:
    """A robot on a plane at 50 Hz, in episodes of twenty seconds, that has to move as commanded without falling."""
    return ManagerBasedRlEnvCfg(
        # Published: 0.002 s × 10. The same rate in four steps is as stable here, and more than twice as fast.
        simulation=SimulationCfg(dt=0.005, fresh_kinematics=False),
        decimation=4,
        episode_length_s=20.0,
        scene=SceneCfg(num_envs=num_envs, env_spacing=2.5, entities={"robot": robot}, terrain=PlaneCfg()),
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
