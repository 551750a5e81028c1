"""Pick a cube up and bring it to a place, on the ground or in the air.

Source of places, rewards, noise and ends: the published configuration of GeneLab's reference runs, with 64 environments
and two million steps (docs/sources.md). What differs is in docs/manipulation.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from genelab import math as gm
from genelab import mdp
from genelab.config import TaskCfg
from genelab.envs import ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import (
    XYZ,
    CommandTerm,
    CommandTermCfg,
    Meaning,
    ObservationGroupCfg,
    event,
    metric,
    obs,
    observation,
    part,
    reward,
    symmetric,
    termination,
    truncation,
)
from genelab.rl.config import Sb3AgentCfg, Sb3HerCfg, Sb3OffPolicyCfg
from genelab.scene import (
    POLAR,
    SAME,
    FrameSensor,
    FrameSensorCfg,
    InitialStateCfg,
    PlaneCfg,
    RigidObjectCfg,
    SceneCfg,
    mjcf_text,
)
from genelab.sim import SimulationCfg
from genelab_franka.robots.panda import ARM, FINGERS, GRASP, HAND, panda_cfg

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv

CUBE_HALF = 0.02
"""Half the cube's edge, m: the height of its centre on the ground."""
PLACES = ((0.35, 0.65), (-0.15, 0.15))
"""Where cubes and goals may be, x and y, m."""
SUCCESS_RADIUS = 0.05
"""How near to its goal the cube's centre has to be, m."""

_CUBE = f"""
<mujoco>
  <worldbody>
    <body name="cube">
      <freejoint/>
      <geom name="cube" type="box" size="{CUBE_HALF} {CUBE_HALF} {CUBE_HALF}" mass="0.064" friction="1.0 0.005 0.0001"
            rgba="0.85 0.25 0.2 1"/>
    </body>
  </worldbody>
</mujoco>
"""

# What is asked for


@dataclass(kw_only=True)
class GoalCommandCfg(CommandTermCfg):
    """A place for the cube, drawn at each reset."""

    x: tuple[float, float] = PLACES[0]
    """Range, m."""
    y: tuple[float, float] = PLACES[1]
    """Range, m."""
    z: tuple[float, float] = (CUBE_HALF, 0.2)
    """Range in the air, m."""
    air_share: float = 0.7
    """Share of goals in the air; the others are on the ground."""

    def build(self, name: str, env: ManagerBasedRlEnv) -> CommandTerm:
        return GoalCommand(name, self, env)


class GoalCommand(CommandTerm):
    """Holds the goals, `(N, 3)`."""

    cfg: GoalCommandCfg
    drawn_from = ("x", "y", "z")
    goal_radius = SUCCESS_RADIUS

    def __init__(self, name: str, cfg: GoalCommandCfg, env: ManagerBasedRlEnv) -> None:
        super().__init__(name, cfg, env)
        self.command = torch.zeros(env.num_envs, 3, device=env.device, dtype=env.dtype)

    def meaning(self) -> Meaning:
        return Meaning(unit="m", frame="world", columns=XYZ, mirror=POLAR)

    def resample(self, env_ids: Tensor) -> None:
        rng, dtype = self.env.rng, self.env.dtype
        bounds = torch.tensor(list(self.ranges.values()), device=self.env.device, dtype=dtype)
        goals = gm.uniform(bounds[:, 0], bounds[:, 1], (len(env_ids), 3), rng, dtype)
        grounded = gm.uniform(0.0, 1.0, (len(env_ids),), rng, dtype) >= self.cfg.air_share
        goals[:, 2] = torch.where(grounded, CUBE_HALF, goals[:, 2])
        self.command[env_ids] = goals


# What is seen


GRASP_POINT = {"kind": "pos", "body": f"robot/{HAND}", "pos": GRASP}
CUBE_CENTRE = {"kind": "pos", "body": "cube/cube"}
"""Where they are read off the model."""


@observation(unit="m", frame="world", columns=XYZ, source=GRASP_POINT, mirror=POLAR)
def ee_pos(env: ManagerBasedRlEnv) -> Tensor:
    """The middle between the finger pads."""
    return _grasp(env).pos_w


@observation(unit="m", frame="world", columns=XYZ, source=CUBE_CENTRE, mirror=POLAR)
def cube_pos(env: ManagerBasedRlEnv) -> Tensor:
    """Centre of the cube."""
    return env.scene["cube"].root_pos_w


@observation(
    unit="m",
    frame="world",
    columns=XYZ,
    source={"kind": "difference", "from": GRASP_POINT, "to": CUBE_CENTRE},
    mirror=POLAR,
)
def ee_to_cube(env: ManagerBasedRlEnv) -> Tensor:
    """From the middle between the pads to the cube's centre."""
    return cube_pos(env) - ee_pos(env)


@observation(unit="m/s", frame="world", columns=XYZ, source={"kind": "lin_vel_w", "body": "cube/cube"}, mirror=POLAR)
def cube_lin_vel(env: ManagerBasedRlEnv) -> Tensor:
    """Velocity of the cube."""
    return env.scene["cube"].root_lin_vel_w


@observation(unit="1", columns=("left",), source={"kind": "time_left"}, mirror=SAME)
def time_remaining(env: ManagerBasedRlEnv) -> Tensor:
    """Share of the episode that is left."""
    return (1.0 - env.episode_length_buf / env.max_episode_length)[:, None]


def _grasp(env: ManagerBasedRlEnv) -> FrameSensor:
    sensor = env.scene.sensor("grasp")
    assert isinstance(sensor, FrameSensor)
    return sensor


# What is paid for


def is_success(achieved: Tensor, desired: Tensor) -> Tensor:
    """Whether a cube there is where it should be; the one definition for reward, metrics and evaluation."""
    return (achieved - desired).square().sum(dim=-1) < SUCCESS_RADIUS**2


def goal_reward(achieved: Tensor, success: Tensor) -> Tensor:
    """−1 away from the goal, 0 at it, and up to 0.2 for a cube that is 10 cm above the ground, whatever the goal."""
    lift = ((achieved[..., 2] - CUBE_HALF) / 0.10).clamp(0.0, 1.0)
    return success.to(achieved.dtype) - 1.0 + 0.2 * lift


def compute_reward(achieved: np.ndarray, desired: np.ndarray, infos: Any) -> np.ndarray:
    """The same for hindsight replay, which asks what another goal would have paid."""
    places = torch.as_tensor(achieved)
    return goal_reward(places, is_success(places, torch.as_tensor(desired))).numpy()


def at_goal(env: ManagerBasedRlEnv) -> Tensor:
    """The reward; publishes who is at the goal."""
    achieved = cube_pos(env)
    env.extras["is_success"] = reached = is_success(achieved, env.commands["goal"])
    return goal_reward(achieved, reached)


def success(env: ManagerBasedRlEnv) -> Tensor:
    """1 where the cube is at the goal."""
    return is_success(cube_pos(env), env.commands["goal"]).to(env.dtype)


def goal_distance(env: ManagerBasedRlEnv) -> Tensor:
    """From the cube to its goal, m."""
    return (cube_pos(env) - env.commands["goal"]).norm(dim=1)


def cube_fell(env: ManagerBasedRlEnv, bound: float) -> Tensor:
    """The cube is below the ground."""
    return cube_pos(env)[:, 2] < bound


# The task


def env_cfg() -> ManagerBasedRlEnvCfg:
    """An arm beside a cube at 20 Hz, five seconds an episode."""
    (x_low, x_high), (y_low, y_high) = PLACES
    centre = ((x_low + x_high) / 2, (y_low + y_high) / 2, CUBE_HALF)
    spread = {"x": (x_low - centre[0], x_high - centre[0]), "y": (y_low - centre[1], y_high - centre[1])}
    cube = RigidObjectCfg(spec=mjcf_text, spec_args={"xml": _CUBE}, init_state=InitialStateCfg(pos=centre))
    return ManagerBasedRlEnvCfg(
        # Published: two substeps of 0.01 s. In one, cubes that are swung to and fro are lost.
        simulation=SimulationCfg(dt=0.005, fresh_kinematics=False),
        decimation=10,
        episode_length_s=5.0,
        scale_rewards_by_dt=False,
        scene=SceneCfg(
            num_envs=64,
            env_spacing=2.0,
            entities={"robot": panda_cfg(), "cube": cube},
            terrain=PlaneCfg(),
            sensors={"grasp": FrameSensorCfg(entity="robot", body=HAND, pos=GRASP)},
        ),
        actions={
            "hand": mdp.DifferentialIkActionCfg(joint_names=ARM, body=HAND, point=GRASP),
            "gripper": mdp.GripperActionCfg(joint_names=FINGERS),
        },
        commands={"goal": GoalCommandCfg()},
        observations=_observations(),
        events={
            "place_cube": event(mdp.reset_root_uniform, "reset", pose_range=spread, asset=part("cube")),
        },
        rewards={"at_goal": reward(at_goal, 1.0)},
        terminations={
            "time_out": truncation(mdp.time_out),
            "cube_fell": termination(cube_fell, bound=-0.1),
        },
        metrics={
            "success_at_end": metric(success, "last"),
            "success_ever": metric(success, "max"),
            "final_distance": metric(goal_distance, "last"),
        },
    )


def _observations() -> dict[str, ObservationGroupCfg]:
    """`observation` does not have the goal: a relabelled transition would contradict itself."""
    return {
        "observation": ObservationGroupCfg(
            terms={
                "joint_pos": obs(mdp.joint_pos_rel).then(noise=symmetric(0.005)),
                "joint_vel": obs(mdp.joint_vel_rel).then(noise=symmetric(0.05), scale=0.1),
                "ee_pos": obs(ee_pos).then(noise=symmetric(0.002)),
                "cube_pos": obs(cube_pos).then(noise=symmetric(0.002)),
                "ee_to_cube": obs(ee_to_cube).then(noise=symmetric(0.002)),
                "cube_lin_vel": obs(cube_lin_vel),
                "last_action": obs(mdp.last_action),
                "time_remaining": obs(time_remaining),
            }
        ),
        "achieved_goal": ObservationGroupCfg(terms={"cube_pos": obs(cube_pos)}),
        "desired_goal": ObservationGroupCfg(terms={"goal": obs(mdp.generated_command, command="goal")}),
    }


def sac_cfg() -> Sb3AgentCfg:
    """SAC with hindsight replay, for two cores; docs/manipulation.md has the line for the published settings."""
    return Sb3AgentCfg(
        experiment_name="franka_pick_place",
        algorithm="SAC",
        timesteps=500_000,
        hidden_dims=(256, 256),
        activation="relu",
        learning_rate=1e-3,
        gamma=0.95,
        obs_normalization=True,  # what matters are centimetres, beside joint angles of radians
        off_policy=Sb3OffPolicyCfg(
            buffer_size=1_000_000,
            batch_size=256,
            learning_starts=6464,  # published: 4000, before the first of 64 episodes of 100 steps has ended
            train_freq=1,
            gradient_steps=8,
            tau=0.05,
            ent_coef=0.02,
        ),
        her=Sb3HerCfg(compute_reward=compute_reward, n_sampled_goal=4, goal_selection_strategy="future"),
    )


def task() -> TaskCfg:
    """GeneLab-Franka-Pick-And-Place-v0."""
    env = env_cfg()
    return TaskCfg(env=env, play_env=play_cfg(env), agent=sac_cfg())


def published_task() -> TaskCfg:
    """GeneLab-Franka-Pick-And-Place-v0@published."""
    env = env_cfg()
    agent = sac_cfg()
    agent.timesteps, agent.hidden_dims, agent.obs_normalization = 2_000_000, (512, 512, 512), False
    agent.off_policy.batch_size, agent.off_policy.tau, agent.off_policy.ent_coef = 2048, 0.05, 0.1
    return TaskCfg(env=env, play_env=play_cfg(env), agent=agent)
