"""What the files of a project say; words with a dollar are filled in."""

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$name"
version = "0.1.0"
description = "A genelab task for $title."
requires-python = ">=3.11"
dependencies = ["genelab"]

[project.entry-points."genelab.tasks"]
$name = "$name"

[tool.hatch.build.targets.wheel]
packages = ["$name"]

[tool.ruff]
line-length = 120
"""

README = """\
# $title

A task for GeneLab: $title $does.

```
pip install -e .
genelab play $id --agent random        # look at it
genelab train $id --seed 1
genelab play $id --checkpoint latest  # what it has learned
pytest
```

| what was found | |
|---|---|
$findings

`genelab new-task` made these files from the robot in `$name/model`; they are yours to change.

- `$name/robot.py`: what drives the robot and where it starts. Each proposed number stands beside its rule.
- `$name/task.py`: what it is asked to do, what is paid for, and how it learns. The weights are a beginning: change them
  first.
- `tests/test_task.py`: the robot is the one of the file, and the task steps.
"""

IGNORED = """\
logs/
__pycache__/
*.egg-info/
"""

INIT = '''\
"""$title for genelab. Keep this module light: every `genelab` command imports it."""

from genelab import TASKS

TASKS.register(
    "$id",
    "$name.task:task",
    description="$title $does.",
    robot="$title",
    backend="rsl_rl PPO",
)
'''

ROBOT = '''\
"""$title: the robot of `MODEL`, what drives it and where it starts."""

from pathlib import Path

import mujoco
from genelab.scene import ArticulationCfg, ImplicitPdActuatorCfg, InitialStateCfg, XmlActuatorCfg, mjcf_file, urdf_file

MODEL = Path(__file__).parent / "model" / $file

$tables

def model() -> mujoco.MjSpec:
    """The model as it was brought."""
    return $read


def robot_cfg() -> ArticulationCfg:
    """The robot of a task."""$servos
    return ArticulationCfg(
        spec=model,
        actuators={"joints": $actuators},
        init_state=$init_state,
        sides=$sides,  # how names begin or end on the left and on the right
    )
'''

SERVOS = """\
# The file has no actuators, so these are proposed. Effort: the file's limit, else twice what holds the load with the
# limb stretched out. Stiffness: that effort at half a radian (a tenth of a metre), or as much as one physics step can
# follow. Damping: 0.7 of critical for the inertia of the limb in the model's pose.
SERVOS = {
    # joint: effort limit (N·m), stiffness (N·m/rad), damping (N·m·s/rad)
$rows}
"""

HEAD = '''\
"""$title $does."""

'''

VELOCITY = '''\
from genelab import TaskCfg, mdp
from genelab.envs import ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import ObservationGroupCfg, event, metric, obs, part, reward, termination, truncation
from genelab.rl.config import RslRlDistributionCfg, RslRlModelCfg, RslRlOnPolicyRunnerCfg, RslRlPpoAlgorithmCfg
from genelab.scene import ContactSensorCfg, PlaneCfg, SceneCfg
from genelab.sim import SimulationCfg, SolverCfg

from $name.robot import $brought, robot_cfg

$feet

def env() -> ManagerBasedRlEnvCfg:
    """Move as commanded without falling."""
    policy = {
        "base_lin_vel": obs(mdp.base_lin_vel),
        "base_ang_vel": obs(mdp.base_ang_vel).then(scale=0.25),
        "gravity": obs(mdp.projected_gravity),
        "command": obs(mdp.generated_command, command="twist"),
        "joint_pos": obs(mdp.joint_pos_rel$joint_obs),
        "joint_vel": obs(mdp.joint_vel_rel$joint_obs).then(scale=0.05),
        "last_action": obs(mdp.last_action),
    }
    return ManagerBasedRlEnvCfg(
        simulation=$simulation,
        decimation=$decimation,
        episode_length_s=10.0,
        scene=SceneCfg(
            num_envs=128,
            entities={"robot": robot_cfg()},
            terrain=$terrain,$terrain_why$sensors
        ),
        commands={
            # Speeds: half of that at which a pendulum as high as the robot swings, sqrt(g h) / 2.
            "twist": mdp.VelocityCommandCfg(
                resampling_time_range=(4.0, 8.0),
                lin_vel_x=($back_speed, $speed),
                lin_vel_y=$side_range,
                ang_vel_z=$turn_range,
                standing_share=0.05,
            )
        },
        actions={
            $actions
        },
        observations={"policy": ObservationGroupCfg(terms=policy)},
        rewards={
            "track_lin_vel": reward(mdp.track_lin_vel_exp, 2.0, command="twist", std=$half_speed),$turn_reward
            "alive": reward(mdp.is_alive, 0.5),$air_time
            "lin_vel_z": reward(mdp.lin_vel_z_l2, -0.5),
            "action_rate": reward(mdp.action_rate_l2, -0.01),
        },
        terminations={
            "time_out": truncation(mdp.time_out),
            "fell": termination(mdp.bad_orientation, limit=1.0),
            "sank": termination(mdp.root_too_low, height=$low),  # half of where the root starts
        },
        events={
            $resets
        },
        metrics={"error_vel_xy": metric(mdp.error_vel_xy, "mean", command="twist")},
    )
'''

REACH = '''\
from dataclasses import dataclass

import torch
from genelab import TaskCfg, mdp
from genelab import math as gm
from genelab.envs import ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import CommandTerm, CommandTermCfg, ObservationGroupCfg, event, metric, obs, reward, truncation
from genelab.rl.config import RslRlDistributionCfg, RslRlModelCfg, RslRlOnPolicyRunnerCfg, RslRlPpoAlgorithmCfg
from genelab.scene import PlaneCfg, SceneCfg
from genelab.sim import SimulationCfg, SolverCfg

from $name.robot import $brought, robot_cfg

TIP = $tip  # the body with most joints between it and the root
CENTRE = $centre  # where it starts, m


@dataclass(kw_only=True)
class TargetCfg(CommandTermCfg):
    """A place for the tip, drawn in a box about where it starts."""

    span: float
    """Half of the box along each axis, m."""

    def build(self, name, env):
        return Target(name, self, env)


class Target(CommandTerm):
    """Places in the world, `(N, 3)`."""

    goal_radius = 0.02

    def __init__(self, name, cfg, env):
        super().__init__(name, cfg, env)
        self.centre = torch.tensor(CENTRE, device=env.device, dtype=env.dtype)
        self.command = env.scene.env_origins + self.centre

    def resample(self, env_ids):
        offset = gm.uniform(-self.cfg.span, self.cfg.span, (len(env_ids), 3), self.env.rng, self.env.dtype)
        self.command[env_ids] = self.env.scene.env_origins[env_ids] + self.centre + offset


def tip(env):
    """Where the tip is, `(N, 3)`, m."""
    return env.robot.body_pos_w[:, env.robot.find_bodies(TIP)[0]]


def to_target(env):
    """From the tip to the target, `(N, 3)`, m."""
    return env.commands["target"] - tip(env)


def distance(env):
    """How far the tip is from the target, `(N,)`, m."""
    return to_target(env).norm(dim=1)


def near(env, std):
    """1 at the target, 0 far away, `(N,)`."""
    return torch.exp(-(distance(env) / std).square())


def env() -> ManagerBasedRlEnvCfg:
    """Bring the tip to the target."""
    policy = {
        "joint_pos": obs(mdp.joint_pos_rel$joint_obs),
        "joint_vel": obs(mdp.joint_vel_rel$joint_obs).then(scale=0.1),
        "to_target": obs(to_target),
        "last_action": obs(mdp.last_action),
    }
    return ManagerBasedRlEnvCfg(
        simulation=$simulation,
        decimation=$decimation,
        episode_length_s=4.0,
        scene=SceneCfg(
            num_envs=128,
            entities={"robot": robot_cfg()},
            terrain=$terrain,$terrain_why
        ),
        commands={"target": TargetCfg(span=$span, resampling_time_range=(2.0, 4.0))},
        actions={
            $actions
        },
        observations={"policy": ObservationGroupCfg(terms=policy)},
        rewards={
            "distance": reward(distance, -1.0),
            "near": reward(near, 1.0, std=0.1),
            "action_rate": reward(mdp.action_rate_l2, -0.005),
        },
        terminations={"time_out": truncation(mdp.time_out)},
        events={
            $resets
        },
        metrics={"distance": metric(distance, "last")},
    )
'''

BLANK = '''\
from genelab import TaskCfg, mdp
from genelab.envs import ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import ObservationGroupCfg, event, obs, part, reward, truncation
from genelab.rl.config import RslRlDistributionCfg, RslRlModelCfg, RslRlOnPolicyRunnerCfg, RslRlPpoAlgorithmCfg
from genelab.scene import PlaneCfg, SceneCfg
from genelab.sim import SimulationCfg, SolverCfg

from $name.robot import $brought, robot_cfg


def off_pose(env):
    """How far the joints are from where they start, `(N,)`."""
    return env.robot.joint_pos_rel.square().sum(dim=1)


def env() -> ManagerBasedRlEnvCfg:
    """Keep the pose; write your own rewards instead."""
    policy = {
        "joint_pos": obs(mdp.joint_pos_rel$joint_obs),
        "joint_vel": obs(mdp.joint_vel_rel$joint_obs).then(scale=0.1),
        "last_action": obs(mdp.last_action),
    }
    return ManagerBasedRlEnvCfg(
        simulation=$simulation,
        decimation=$decimation,
        episode_length_s=5.0,
        scene=SceneCfg(
            num_envs=128,
            entities={"robot": robot_cfg()},
            terrain=$terrain,$terrain_why
        ),
        actions={
            $actions
        },
        observations={"policy": ObservationGroupCfg(terms=policy)},
        rewards={
            "off_pose": reward(off_pose, -1.0),  # yours instead
            "action_rate": reward(mdp.action_rate_l2, -0.01),
        },
        terminations={"time_out": truncation(mdp.time_out)},
        events={
            $resets
        },
    )
'''

AGENT = '''

def agent() -> RslRlOnPolicyRunnerCfg:
    """PPO, with settings that are no more than a beginning."""
    return RslRlOnPolicyRunnerCfg(
        experiment_name="$name",
        max_iterations=300,
        num_steps_per_env=24,
        save_interval=50,
        actor=RslRlModelCfg(
            hidden_dims=(128, 128),
            activation="elu",
            obs_normalization=True,
            distribution=RslRlDistributionCfg(class_name="GaussianDistribution", init_std=0.5, std_type="scalar"),
        ),
        critic=RslRlModelCfg(hidden_dims=(128, 128), activation="elu", obs_normalization=True),
        algorithm=RslRlPpoAlgorithmCfg(learning_rate=1e-3, schedule="adaptive", desired_kl=0.01, entropy_coef=0.005),
    )


def task() -> TaskCfg:
    """$id."""
    cfg = env()
    return TaskCfg(env=cfg, play_env=play_cfg(cfg), agent=agent())
'''

TEST = '''\
"""The task builds and steps, and the robot is the one of its file."""

import genelab  # noqa: F401  before torch
import pytest
import torch
from genelab.envs import ManagerBasedRlEnv, rl_cfg

import $name  # noqa: F401  registers the task


def test_the_task_steps():
    cfg = rl_cfg("$id")
    cfg.scene.num_envs = 4
    env = ManagerBasedRlEnv(cfg)
    env.reset(seed=0)
    assert env.robot.body_mass.sum().item() == pytest.approx($mass, rel=1e-4)
    assert env.action_dim == $width
    for _ in range(20):
        step = env.step(torch.rand(4, env.action_dim) - 0.5)
        assert all(group.isfinite().all() for group in step.observations.values())
        assert step.reward.isfinite().all()
    env.close()
'''
