"""A shipped policy walks in plain MuJoCo as it does here, by a loop that knows its metadata and the robot's model
alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from genelab.mdp import VelocityCommand
from genelab.rl.locate import pretrained_policy
from genelab.rl.rollout import rollout
from genelab.rl.world import policy_on_task
from genelab_unitree.robots.g1 import g1_spec
from genelab_unitree.robots.go1 import go1_spec

ROBOTS = {
    "Genelab-Velocity-Flat-Unitree-Go1-v0": (go1_spec, 0.42),
    "Genelab-Velocity-Flat-Unitree-G1-v0": (g1_spec, 0.76),
}
"""The model, and how high it starts, m."""


class Robot:
    """A model on a floor with the servos of the metadata: angles in, readings out."""

    def __init__(self, make: Callable[[], mujoco.MjSpec], height: float, about: dict[str, Any]) -> None:
        spec, (self.action,) = make(), about["actions"]
        joints = about["entities"][self.action["entity"]]
        spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1])
        for i, name in enumerate(joints["joint_names"]):
            servo = spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            servo.set_to_position(kp=joints["stiffness"][i], kv=joints["damping"][i])
            limit = joints["effort_limit"][i]
            servo.forcelimited, servo.forcerange = True, [-limit, limit]
        spec.option.timestep = about["physics_dt"]
        spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        self.model = spec.compile()
        self.data = mujoco.MjData(self.model)
        self.rest = np.array(joints["default_joint_pos"])
        hinges = [self.model.joint(name) for name in joints["joint_names"]]
        self.pos = np.array([hinge.qposadr[0] for hinge in hinges])
        self.vel = np.array([hinge.dofadr[0] for hinge in hinges])
        self.data.qpos[2], self.data.qpos[self.pos] = height, self.rest
        self.substeps = about["decimation"]

    def turned_to_body(self, vector: np.ndarray) -> np.ndarray:
        rotation = np.zeros(9)
        mujoco.mju_quat2Mat(rotation, self.data.qpos[3:7])
        return rotation.reshape(3, 3).T @ vector

    def step(self, targets: np.ndarray) -> None:
        for name, target in zip(self.action["joint_names"], targets, strict=True):
            self.data.actuator(name).ctrl = target
        for _ in range(self.substeps):
            mujoco.mj_step(self.model, self.data)


def script(action: dict[str, Any], clock: dict[str, Any], phase: float, command: np.ndarray) -> np.ndarray:
    """What is under the action, by the formula of the metadata."""
    added, swing = np.abs(command) @ np.array(action["spread"]), clock["swing_share"]
    for foot, step in action["steps"].items():
        (offset,) = (value for name, value in clock["offsets"].items() if re.fullmatch(name, foot))
        x = (phase + offset) % 1.0
        lift = np.sin(np.pi * x / swing) ** 2 if x < swing else 0.0
        sweep = -np.cos(np.pi * x / swing) if x < swing else 1.0 - 2.0 * (x - swing) / (1.0 - swing)
        added += lift * np.array(step) + sweep * (command @ np.array(action["strides"][foot]))
    return action["share"] * added


def velocity_here(task: str, policy: Path, command: tuple[float, float, float]) -> np.ndarray:
    """Forward, left and turning, as the environment has it: the mean of eight robots after the first two seconds."""
    made = []
    with policy_on_task(task, policy, num_envs=8) as (env, setup):
        twist = env.commands.term("twist")
        assert isinstance(twist, VelocityCommand)
        twist.fix(torch.tensor([command], dtype=env.dtype).repeat(8, 1))
        for step, _ in enumerate(rollout(env, setup, steps=300, seed=0)):
            if step >= 100:
                turning = env.robot.root_ang_vel_b[:, 2:]
                made.append(torch.cat((env.robot.root_lin_vel_b[:, :2], turning), dim=1).mean(dim=0))
    return torch.stack(made).mean(dim=0).numpy()


@pytest.mark.parametrize("task", ROBOTS)
@pytest.mark.parametrize("command", [(0.8, 0.0, 0.0), (0.0, 0.5, 0.0), (0.0, 0.0, 0.5)], ids=["ahead", "left", "turn"])
def test_it_walks_as_here_by_its_metadata_alone(task: str, command: tuple[float, float, float]) -> None:
    path = pretrained_policy(task)
    assert path is not None
    about = json.loads(path.with_name(f"{path.name}.metadata.json").read_text())
    policy, robot = torch.jit.load(path).eval(), Robot(*ROBOTS[task], about)
    (action,), clock, wanted = about["actions"], about["commands"]["gait"], np.array(command)
    (group,) = about["obs_groups"].values()
    last, phase, made = np.zeros(action["dim"]), 0.0, []
    for step in range(300):
        angle = 2 * np.pi * phase
        readings = {
            "base_ang_vel": robot.data.qvel[3:6],  # a free joint has it in the body's frame
            "projected_gravity": robot.turned_to_body(np.array([0.0, 0.0, -1.0])),
            "joint_pos": robot.data.qpos[robot.pos] - robot.rest,
            "joint_vel": robot.data.qvel[robot.vel],
            "last_action": last,
            "command": wanted,
            "gait": np.array([np.sin(angle), np.cos(angle)]),
        }
        seen = np.concatenate([readings[term["name"]] for term in group["terms"]])
        with torch.inference_mode():
            last = policy(torch.tensor(seen, dtype=torch.float32)[None])[0].double().numpy()
        targets = np.array(action["offset"]) + np.array(action["scale"]) * last
        robot.step(targets + script(action, clock, phase, wanted))
        phase = (phase + clock["frequency"] * about["step_dt"]) % 1.0
        if step >= 100:
            made.append([*robot.turned_to_body(robot.data.qvel[:3])[:2], robot.data.qvel[5]])
    here = velocity_here(task, path, command)
    assert here @ wanted > 0.75 * wanted @ wanted
    assert np.mean(made, axis=0) == pytest.approx(here, abs=0.08)
