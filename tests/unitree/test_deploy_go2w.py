"""What a Go2-W's policy is exported with is enough to run it in plain MuJoCo."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from genelab.rl import ExportResult, export_task, train_task
from genelab_unitree.robots.go2w import go2w_spec

TASK = "Genelab-Velocity-Flat-Unitree-Go2W-v0"
STAGE_1 = "Genelab-Velocity-Flat-Unitree-Go2W-CrabStage1-v0"

Policy = Callable[[np.ndarray], np.ndarray]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ExportResult]:
    """An iteration of each stage, the second from the weights of the first."""
    home = tmp_path_factory.mktemp("go2w")
    first = train_task(STAGE_1, num_envs=4, max_iterations=1, seed=1, log_dir=home / "stage_1").checkpoint
    second = train_task(TASK, num_envs=4, max_iterations=1, seed=1, log_dir=home / "stage_2", checkpoint=first)
    return {
        name: export_task(TASK, second.checkpoint, out=home / f"policy.{suffix}")
        for name, suffix in (("torchscript", "ts"), ("onnx", "onnx"))
    }


def test_it_is_exported_whole(exported: dict[str, ExportResult]) -> None:
    for result in exported.values():
        about = result.metadata
        (group,) = about["obs_groups"].values()
        assert (about["obs_dim"], about["action_dim"]) == (285, 16)
        assert (group["history_length"], group["frame_dim"]) == (5, 57)
        assert "oldest" in about["obs_layout"]
        legs, wheels = about["actions"]
        assert (legs["target"], wheels["target"]) == ("position", "velocity")
        joints = about["entities"]["robot"]
        kv = dict(zip(joints["joint_names"], joints["damping"], strict=True))
        assert {kv[name] for name in wheels["joint_names"]} == {5.0}
        assert result.parity_error is not None
        assert result.parity_error < 1e-4


class Robot:
    """A Go2-W on a floor with the servos of the metadata, which stacks its frames and makes its script itself."""

    def __init__(self, about: dict[str, Any]) -> None:
        spec, joints = go2w_spec(), about["entities"]["robot"]
        spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1])
        for name, kp, kv, limit in zip(
            joints["joint_names"], joints["stiffness"], joints["damping"], joints["effort_limit"], strict=True
        ):
            servo = spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            if kp:
                servo.set_to_position(kp=kp, kv=kv)
            else:
                servo.set_to_velocity(kv=kv)
            servo.forcelimited, servo.forcerange = True, [-limit, limit]
        spec.option.timestep = about["physics_dt"]
        spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        self.about, self.model = about, spec.compile()
        self.data = mujoco.MjData(self.model)
        self.names, self.rest = joints["joint_names"], np.array(joints["default_joint_pos"])
        hinges = [self.model.joint(name) for name in self.names]
        self.pos = np.array([hinge.qposadr[0] for hinge in hinges])
        self.vel = np.array([hinge.dofadr[0] for hinge in hinges])
        self.data.qpos[2], self.data.qpos[self.pos] = 0.45, self.rest
        self.last, self.frames = np.zeros(about["action_dim"]), np.zeros((0, 0))
        self.phase, self.moves, self.speed = 0.0, False, np.zeros(4)

    def turned_to_body(self, vector: np.ndarray) -> np.ndarray:
        rotation = np.zeros(9)
        mujoco.mju_quat2Mat(rotation, self.data.qpos[3:7])
        return rotation.reshape(3, 3).T @ vector

    def see(self, command: np.ndarray) -> np.ndarray:
        """Push a frame; the first one fills the stack."""
        legs, wheels = (action["joint_names"] for action in self.about["actions"])
        angle = 2 * np.pi * self.phase
        pos = dict(zip(self.names, self.data.qpos[self.pos] - self.rest, strict=True))
        turned = np.array([pos[name] for name in wheels])
        readings = {
            "base_ang_vel": self.data.qvel[3:6],  # a free joint has it in the body's frame
            "projected_gravity": self.turned_to_body(np.array([0.0, 0.0, -1.0])),
            "joint_pos": np.array([pos[name] for name in legs]),
            "joint_vel": self.data.qvel[self.vel],
            "last_action": self.last,
            "command": command,
            "gait": np.array([np.sin(angle), np.cos(angle)]) * self.moves,
            "wheel_angle": np.array([np.sin(turned).mean(), np.cos(turned).mean()]),
        }
        (group,) = self.about["obs_groups"].values()
        frame = np.concatenate([readings[term["name"]] for term in group["terms"]])
        count = group["history_length"]
        self.frames = np.vstack((self.frames[1:], frame)) if len(self.frames) else np.tile(frame, (count, 1))
        return self.frames.flatten()

    def step(self, policy: Policy, command: np.ndarray) -> None:
        about, clock = self.about, self.about["commands"]["gait"]
        legs, wheels = about["actions"]
        self.moves = bool(np.linalg.norm(command[list(clock["command_axes"])]) > clock["threshold"])
        self.last = policy(self.see(command))
        joints, speeds = self.last[: legs["dim"]], self.last[legs["dim"] :]
        most = wheels["acceleration"] * about["step_dt"]
        self.speed += np.clip(command @ np.array(wheels["rolls"]) - self.speed, -most, most)
        targets = {
            **dict(zip(legs["joint_names"], np.array(legs["offset"]) + np.array(legs["scale"]) * joints, strict=True)),
            **dict(zip(wheels["joint_names"], np.array(wheels["scale"]) * speeds + self.speed, strict=True)),
        }
        for name, added in zip(legs["joint_names"], self.script(legs, clock, command), strict=True):
            targets[name] += added
        for name, target in targets.items():
            self.data.actuator(name).ctrl = target
        for _ in range(about["decimation"]):
            mujoco.mj_step(self.model, self.data)
        self.phase = (self.phase + clock["frequency"] * about["step_dt"]) % 1.0 if self.moves else 0.0

    def script(self, legs: dict[str, Any], clock: dict[str, Any], command: np.ndarray) -> np.ndarray:
        """What is under the action, by the formula of the metadata."""
        added, swing = np.zeros(legs["dim"]), clock["swing_share"]
        for foot, step in legs["steps"].items():
            (offset,) = (value for name, value in clock["offsets"].items() if re.fullmatch(name, foot))
            x = (self.phase + offset) % 1.0
            y = (x + legs["lead"]) % 1.0
            lift = np.sin(np.pi * x / swing) ** 2 if x < swing else 0.0
            sweep = -np.cos(np.pi * y / swing) if y < swing else 1.0 - 2.0 * (y - swing) / (1.0 - swing)
            added += lift * np.array(step) + sweep * (command @ np.array(legs["strides"][foot]))
        return legs["share"] * added * self.moves


def drive(robot: Robot, policy: Policy, command: np.ndarray, steps: int = 200) -> np.ndarray:
    """The mean velocity of the second half: forward, left, turning."""
    made = []
    for step in range(steps):
        robot.step(policy, command)
        if step >= steps // 2:
            made.append([*robot.turned_to_body(robot.data.qvel[:3])[:2], robot.data.qvel[5]])
    return np.mean(made, axis=0)


@pytest.mark.parametrize(
    ("command", "least"),
    [((0.5, 0.0, 0.0), 0.9), ((-0.5, 0.0, 0.0), 0.9), ((0.0, 0.5, 0.0), 0.6), ((0.0, 0.0, -0.8), 0.6)],
    ids=["ahead", "back", "left", "turn"],
)
def test_script_and_wheels_are_rebuilt_from_the_metadata(
    exported: dict[str, ExportResult], command: tuple[float, float, float], least: float
) -> None:
    """A policy that does nothing goes as it does in the environment."""
    wanted = np.array(command)
    made = drive(Robot(exported["onnx"].metadata), lambda seen: np.zeros(16), wanted)
    assert made @ wanted / (wanted @ wanted) > least


def test_torchscript_and_onnx_are_the_same_policy_on_a_rebuilt_observation(exported: dict[str, ExportResult]) -> None:
    policy = torch.jit.load(exported["torchscript"].path).eval()
    robot = Robot(exported["torchscript"].metadata)
    seen: list[np.ndarray] = []

    def act(observation: np.ndarray) -> np.ndarray:
        seen.append(observation)
        with torch.inference_mode():
            return policy(torch.tensor(observation, dtype=torch.float32)[None])[0].double().numpy()

    for _ in range(10):
        robot.step(act, np.array([0.3, 0.2, 0.1]))
    assert {observation.shape for observation in seen} == {(285,)}
    other = _onnx(exported["onnx"].path)
    for observation in seen[:]:
        np.testing.assert_allclose(other(observation), act(observation), atol=1e-5)


def _onnx(path: Path) -> Policy:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(path))
    return lambda seen: session.run(None, {"obs": seen[None].astype(np.float32)})[0][0].astype(float)
