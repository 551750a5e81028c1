"""Walking as commanded: what the robots have in common."""

from __future__ import annotations

import copy
import math

from genelab import mdp
from genelab.envs import ManagerBasedRlEnvCfg
from genelab.managers import (
    EventTermCfg,
    MetricTermCfg,
    ObservationGroupCfg,
    ObservationTermCfg,
    TerminationTermCfg,
    symmetric,
)
from genelab.mdp import GaitClockCfg, VelocityCommandCfg
from genelab.scene import ArticulationCfg, PlaneCfg, SceneCfg
from genelab.sim import SimulationCfg

COMMAND = {"command": "twist"}


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
            "reset_base": EventTermCfg(
                func=mdp.reset_root_uniform,
                mode="reset",
                params={"pose_range": {"x": (-0.5, 0.5), "y": (-0.5, 0.5), "yaw": (-math.pi, math.pi)}},
            ),
        },
        terminations={
            "time_out": TerminationTermCfg(func=mdp.time_out, time_out=True),
            "fell": TerminationTermCfg(func=mdp.bad_orientation, params={"limit": math.radians(70.0)}),
        },
        metrics={
            "error_vel_xy": MetricTermCfg(func=mdp.error_vel_xy, params=dict(COMMAND)),
            "error_vel_yaw": MetricTermCfg(func=mdp.error_vel_yaw, params=dict(COMMAND)),
        },
    )


def _observations() -> dict[str, ObservationGroupCfg]:
    """What a robot measures goes to the actor, noisy; the critic sees the same without noise, and the velocity."""
    policy = ObservationGroupCfg(
        terms={
            "base_ang_vel": ObservationTermCfg(func=mdp.base_ang_vel, noise=symmetric(0.2)),
            "projected_gravity": ObservationTermCfg(func=mdp.projected_gravity, noise=symmetric(0.05)),
            "joint_pos": ObservationTermCfg(func=mdp.joint_pos_measured, noise=symmetric(0.01)),
            "joint_vel": ObservationTermCfg(func=mdp.joint_vel_rel, noise=symmetric(1.5)),
            "last_action": ObservationTermCfg(func=mdp.last_action),
            "command": ObservationTermCfg(func=mdp.generated_command, params=dict(COMMAND)),
        }
    )
    critic = copy.deepcopy(policy)
    critic.enable_noise = False
    critic.terms["joint_pos"] = ObservationTermCfg(func=mdp.joint_pos_rel)
    critic.terms = {"base_lin_vel": ObservationTermCfg(func=mdp.base_lin_vel), **critic.terms}
    return {"policy": policy, "critic": critic}


def push(interval_s: tuple[float, float], **velocity: tuple[float, float]) -> EventTermCfg:
    """Now and then somebody pushes the robot: a velocity is added to its own, by axis."""
    params = {"velocity_range": velocity}
    return EventTermCfg(func=mdp.push_by_velocity, mode="interval", interval_range_s=interval_s, params=params)


def add_clock(cfg: ManagerBasedRlEnvCfg, clock: GaitClockCfg) -> None:
    """Show a gait clock to actor and critic."""
    cfg.commands["gait"] = clock
    for group in cfg.observations.values():
        group.terms["gait"] = ObservationTermCfg(func=mdp.generated_command, params={"command": "gait"})


def coarse_physics(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """The same control rate in two physics steps instead of four: for learning, never for judging."""
    cfg = copy.deepcopy(cfg)
    cfg.simulation.dt, cfg.decimation = 0.01, 2
    return cfg


def follow(cfg: ManagerBasedRlEnvCfg, schedule: str, *rewards: str) -> None:
    """Let a schedule rule these rewards."""
    for name in rewards:
        reward = cfg.rewards[name]
        assert reward is not None
        reward.schedule = schedule
