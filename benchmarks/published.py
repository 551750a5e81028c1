"""Returns of the shipped walkers on the published reward functions, summed by a loop outside the evaluator.

    python -m benchmarks.published [TASK ...] [--robots 64] [--seed 0] [--level 0] [--published-step]

The functions are written here a second time, from their published formulas (docs/sources.md) and the state of the
simulation alone, so that a mistake in `genelab.mdp` shows as a difference. Each robot makes one episode of 20 s.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.managers import RewardTermCfg
from genelab.mdp.sensors import get_sensor
from genelab.rl.locate import find_checkpoint
from genelab.rl.policies import load_policy
from genelab.scene import ContactSensor, PointsSensor
from genelab.scene.names import match_names
from genelab.scene.terrains import TerrainGeneratorCfg

REFERENCE = Path(__file__).parents[1] / "reference"
TABLE = REFERENCE / "published-tasks.json"
FORCE_THRESHOLD = 1.0
"""Net force on a body above which it touches, N."""


def published_rewards(task: str) -> dict[str, RewardTermCfg]:
    """Return the published reward terms of a task, with the formulas of this file and the weights of the table."""
    rows = json.loads(TABLE.read_text())["tasks"][task]["rewards"]
    return {
        name: RewardTermCfg(func=FUNCTIONS[row["function"]], weight=row["weight"], params={"row": row["params"]})
        for name, row in rows.items()
    }


# State of the simulation


def _command(env: ManagerBasedRlEnv) -> Tensor:
    return env.commands["twist"]


def _gate(env: ManagerBasedRlEnv, threshold: float, axes: list[int] | None = None) -> Tensor:
    """Return 1 where the sum of planar speed and yaw rate that is asked for exceeds a threshold."""
    command = _command(env).clone()
    for axis in range(3):
        if axes is not None and axis not in axes:
            command[:, axis] = 0.0
    return ((command[:, 0] ** 2 + command[:, 1] ** 2).sqrt() + command[:, 2].abs() > threshold).to(env.dtype)


def _bodies(env: ManagerBasedRlEnv, pattern: str) -> list[int]:
    return list(match_names((pattern,), env.robot.body_names, "body"))


def _touching(env: ManagerBasedRlEnv, sensor: str, threshold: float = FORCE_THRESHOLD) -> Tensor:
    force = get_sensor(env, sensor, ContactSensor).force_w
    return (force**2).sum(dim=-1).sqrt() > threshold


def _in_world(quat: Tensor, vector: Tensor) -> Tensor:
    """Rotate vectors of the body's frame into the world."""
    w, xyz = quat[..., :1], quat[..., 1:]
    cross = torch.linalg.cross(xyz, vector.expand_as(xyz)) * 2.0
    return vector + w * cross + torch.linalg.cross(xyz, cross)


# Published functions


def track_linear_velocity_xy_exp(env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
    """exp(-(|command_xy - v_xy|² + v_z²) / std²), in the frame of the root."""
    velocity = env.robot.root_lin_vel_b
    error = velocity - torch.cat((_command(env)[:, :2], torch.zeros_like(velocity[:, :1])), dim=1)
    return torch.exp(-(error**2).sum(dim=1) / row["std"] ** 2)


def track_angular_velocity_z_exp(env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
    """exp(-((command_z - w_z)² + |w_xy|²) / std²), in the frame of the root."""
    rate = env.robot.root_ang_vel_b
    error = rate - torch.cat((torch.zeros_like(rate[:, :2]), _command(env)[:, 2:]), dim=1)
    return torch.exp(-(error**2).sum(dim=1) / row["std"] ** 2)


def lin_vel_z_l2(env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
    """v_z², in the frame of the root."""
    return env.robot.root_lin_vel_b[:, 2] ** 2


def body_angular_velocity_penalty(env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
    """Sum of w_x² + w_y² of bodies in the world frame."""
    rate = env.robot.body_ang_vel_w[:, _bodies(env, row["body"])]
    return (rate[..., 0] ** 2 + rate[..., 1] ** 2).sum(dim=1)


def flat_orientation_l2(env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
    """Squared horizontal part of gravity's direction in the frame of the root."""
    w, x, y, z = env.robot.root_quat_w.unbind(-1)
    return (2 * (x * z - w * y)) ** 2 + (2 * (y * z + w * x)) ** 2


def base_height_l2(env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
    """Squared distance of the root from a height above the ground below it."""
    place, terrain = env.robot.root_pos_w, env.scene.terrain
    ground = torch.zeros_like(place[:, 2]) if terrain is None else terrain.height_at(place)
    return (place[:, 2] - ground - row["target"]) ** 2


def applied_torque_l2(env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
    """Sum of squared torques."""
    return (env.robot.joint_effort**2).sum(dim=1)


class JointAcc:
    """Sum of squared changes of the joint velocities over a control step, per second."""

    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        self.before = torch.zeros_like(env.robot.joint_vel)

    def __call__(self, env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
        change, self.before = env.robot.joint_vel - self.before, env.robot.joint_vel.clone()
        first = env.episode_length_buf <= 1
        return torch.where(first, 0.0, ((change / env.step_dt) ** 2).sum(dim=1))


def action_rate_l2(env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
    """Sum of squared changes of the action."""
    return ((env.action_manager.action - env.action_manager.prev_action) ** 2).sum(dim=1)


def joint_pos_limits(env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
    """Sum of excursions beyond the joints' limits."""
    limits, angle = env.robot.joint_pos_limits, env.robot.joint_pos
    return ((limits[..., 0] - angle).clamp(min=0) + (angle - limits[..., 1]).clamp(min=0)).sum(dim=1)


def contact_force_limit(env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
    """1 where any body of a sensor feels more than a force."""
    return _touching(env, row["sensor"]).any(dim=1).to(env.dtype)


def velocity_tracking_error_l1(env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
    """Absolute error of the sideways velocity."""
    return (_command(env)[:, 1] - env.robot.root_lin_vel_b[:, 1]).abs()


def angular_velocity_tracking_error_l1(env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
    """Absolute error of the yaw rate."""
    return (_command(env)[:, 2] - env.robot.root_ang_vel_b[:, 2]).abs()


def upright_exp(env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
    """exp(-|gravity_xy|² / std²), in the frame of a body."""
    (body,) = _bodies(env, row["body"])
    w, x, y, z = env.robot.body_quat_w[:, body].unbind(-1)
    return torch.exp(-((2 * (x * z - w * y)) ** 2 + (2 * (y * z + w * x)) ** 2) / row["std"] ** 2)


def variable_posture(env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
    """exp(-mean((angle - default)² / std²)) with a std for each joint, by how fast the robot is asked to go."""
    command = _command(env)
    speed = (command[:, 0] ** 2 + command[:, 1] ** 2).sqrt() + command[:, 2].abs()
    widths = torch.empty_like(env.robot.joint_pos)
    for name, where in (
        ("standing", speed < row["walking_threshold"]),
        ("walking", (speed >= row["walking_threshold"]) & (speed < row["running_threshold"])),
        ("running", speed >= row["running_threshold"]),
    ):
        table = row[name] if isinstance(row[name], dict) else {".*": row[name]}
        per_joint = torch.zeros(widths.shape[1], dtype=env.dtype)
        for pattern, width in table.items():
            per_joint[list(match_names((pattern,), env.robot.joint_names, "joint"))] = width
        widths[where] = per_joint
    error = env.robot.joint_pos - env.robot.default_joint_pos
    return torch.exp(-((error / widths) ** 2).mean(dim=1))


def angular_momentum_penalty(env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
    """Squared angular momentum about the centre of mass, of bodies as points of mass."""
    place, speed, mass = env.robot.body_com_pos_w, env.robot.body_com_vel_w, env.robot.body_mass
    centre = (place * mass[:, None]).sum(dim=1, keepdim=True) / mass.sum()
    momentum = torch.linalg.cross(place - centre, speed * mass[:, None]).sum(dim=1)
    return (momentum**2).sum(dim=1)


class FeetAirTime:
    """Number of feet that have been in the air for longer than one time and shorter than another."""

    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        self.time = torch.zeros(env.num_envs, len(_feet(env).body_names), dtype=env.dtype)

    def __call__(self, env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
        fresh = (env.episode_length_buf <= 1)[:, None]
        self.time = torch.where(fresh, 0.0, self.time) + env.step_dt
        self.time[_touching(env, "feet_contact")] = 0.0
        low, high = row["window"]
        count = ((self.time > low) & (self.time < high)).sum(dim=1)
        return count * _gate(env, row["threshold"], row.get("command_axes"))


def _feet(env: ManagerBasedRlEnv) -> PointsSensor:
    return get_sensor(env, "feet", PointsSensor)


def _foot_speed(env: ManagerBasedRlEnv) -> Tensor:
    """Return the horizontal speed of each foot point, from the motion of its body."""
    sensor, robot = _feet(env), env.robot
    bodies = [robot.body_names.index(name) for name in sensor.body_names]
    arm = _in_world(robot.body_quat_w[:, bodies], torch.tensor(sensor.cfg.pos, dtype=env.dtype))
    velocity = robot.body_lin_vel_w[:, bodies] + torch.linalg.cross(robot.body_ang_vel_w[:, bodies], arm)
    return (velocity[..., :2] ** 2).sum(dim=-1).sqrt()


def feet_slip(env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
    """Sum of squared horizontal speeds of the feet that touch."""
    cost = (_foot_speed(env) ** 2 * _touching(env, "feet_contact")).sum(dim=1)
    return cost * _gate(env, row["threshold"])


def feet_clearance(env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
    """Sum over the feet of |height - target| · horizontal speed."""
    cost = ((_feet(env).height - row["target"]).abs() * _foot_speed(env)).sum(dim=1)
    return cost * _gate(env, row["threshold"])


class FeetSwingHeight:
    """Sum over the feet that land of the squared relative distance of their highest point from a target."""

    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        shape = (env.num_envs, len(_feet(env).body_names))
        self.peak, self.flew = torch.zeros(shape, dtype=env.dtype), torch.zeros(shape, dtype=torch.bool)

    def __call__(self, env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
        touching, height = _touching(env, "feet_contact"), _feet(env).height
        fresh = (env.episode_length_buf <= 1)[:, None]
        self.flew &= ~fresh
        landed = touching & self.flew
        takes_off = ~touching & ~self.flew
        self.peak = torch.where(takes_off, height, torch.where(touching, self.peak, self.peak.maximum(height)))
        self.flew = ~touching
        error = (self.peak / row["target"] - 1.0).clamp(-1.0, 3.0)
        return (error**2 * landed).sum(dim=1) * _gate(env, row["threshold"])


class SoftLanding:
    """Sum of the forces on the feet that land."""

    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        self.flew = torch.zeros(env.num_envs, len(_feet(env).body_names), dtype=torch.bool)

    def __call__(self, env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
        touching = _touching(env, "feet_contact")
        landed = touching & self.flew & (env.episode_length_buf > 1)[:, None]
        self.flew = ~touching
        force = (get_sensor(env, "feet_contact", ContactSensor).force_w ** 2).sum(dim=-1).sqrt()
        return (force * landed).sum(dim=1) * _gate(env, row["threshold"])


class SelfCollisionCost:
    """Number of the last control steps with a self-contact above a force."""

    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        self.hits: list[Tensor] = []

    def __call__(self, env: ManagerBasedRlEnv, row: dict[str, Any]) -> Tensor:
        fresh = env.episode_length_buf <= 1
        self.hits = [hit & ~fresh for hit in self.hits[1 - row["window"] :]]
        self.hits.append(_touching(env, "self_contact", row["force"]).any(dim=1))
        return torch.stack(self.hits).sum(dim=0).to(env.dtype)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "action_rate_l2": action_rate_l2,
    "angular_momentum_penalty": angular_momentum_penalty,
    "angular_velocity_tracking_error_l1": angular_velocity_tracking_error_l1,
    "applied_torque_l2": applied_torque_l2,
    "base_height_l2": base_height_l2,
    "body_angular_velocity_penalty": body_angular_velocity_penalty,
    "contact_force_limit": contact_force_limit,
    "feet_air_time": FeetAirTime,
    "feet_clearance": feet_clearance,
    "feet_slip": feet_slip,
    "feet_swing_height": FeetSwingHeight,
    "flat_orientation_l2": flat_orientation_l2,
    "joint_acc_l2": JointAcc,
    "joint_pos_limits": joint_pos_limits,
    "lin_vel_z_l2": lin_vel_z_l2,
    "self_collision_cost": SelfCollisionCost,
    "soft_landing": SoftLanding,
    "track_angular_velocity_z_exp": track_angular_velocity_z_exp,
    "track_linear_velocity_xy_exp": track_linear_velocity_xy_exp,
    "upright_exp": upright_exp,
    "variable_posture": variable_posture,
    "velocity_tracking_error_l1": velocity_tracking_error_l1,
}
"""Published functions by their published names."""


# The loop


def judge(
    task: str, robots: int, seed: int, *, noise: bool, level: int | None = None, published_step: bool = False
) -> tuple[Tensor, Tensor]:
    """Play one episode with each robot and sum the published rewards.

    Args:
        task: Id of a task with a shipped policy.
        robots: Number of robots.
        seed: Seed of the starts and commands.
        noise: Leave the observation noise of training on, as the published evaluation does.
        level: Highest level of rough ground to start on; None for all.
        published_step: Step the physics by the published 0.002 s instead of 0.005 s, at the same control rate.

    Returns:
        Return and length of each episode.
    """
    from genelab.config import TASKS

    cfg = rl_cfg(task, play=True)
    cfg.scene.num_envs, cfg.simulation.vis, cfg.auto_reset, cfg.seed = robots, False, False, seed
    cfg.rewards = published_rewards(task)
    if published_step:
        physics = json.loads(TABLE.read_text())["tasks"][task]["physics"]
        cfg.simulation.dt, cfg.decimation = physics["dt"], physics["decimation"]
    cfg.observations["policy"].enable_noise = noise
    if isinstance(cfg.scene.terrain, TerrainGeneratorCfg):
        cfg.scene.terrain.max_init_level = level
    env = ManagerBasedRlEnv(cfg)
    policy = load_policy(env, TASKS.get(task).agent, find_checkpoint(task, "pretrained"), deterministic=True)
    total, length = torch.zeros(robots, dtype=torch.float64), torch.zeros(robots)
    running = torch.ones(robots, dtype=torch.bool)
    observations, _ = env.reset(seed=seed)
    while running.any():
        observations, reward, terminated, truncated, _ = env.step(policy.policy(observations))
        total += reward.double() * running
        length += running
        running &= ~(terminated | truncated)
    env.close()
    return total, length


def main() -> None:
    """Print a table: each walker on the published functions, without and with noise, beside the published number."""
    tasks = json.loads(TABLE.read_text())["tasks"]
    walkers = [
        name
        for name, task in tasks.items()
        if {row["function"] for row in task["rewards"].values()} <= FUNCTIONS.keys()
    ]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task", nargs="*", default=walkers)
    parser.add_argument("--robots", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--level", type=int, help="highest level of rough ground to start on [all]")
    parser.add_argument("--published-step", action="store_true", help="step the physics by the published 0.002 s")
    args = parser.parse_args()
    runs = json.loads((REFERENCE / "published.json").read_text())["tasks"]
    print("| task | without noise | with noise | published |\n|---|---|---|---|")
    for task in args.task:
        cells = []
        for noise in (False, True):
            total, length = judge(
                task, args.robots, args.seed, noise=noise, level=args.level, published_step=args.published_step
            )
            spread = 1.96 * total.std().item() / args.robots**0.5
            cells.append(f"{total.mean():.1f} ± {spread:.1f} ({length.mean():.0f} steps)")
        published = ", ".join(f"{run['return']:.1f}" for run in runs.get(task, {}).get("runs", []))
        print(f"| {task} | {cells[0]} | {cells[1]} | {published or '–'} |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
