"""What follows from a motion for every body of a robot: forward kinematics by the compiled model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np

from genelab.config import atomic_write_bytes
from genelab.errors import UsageError
from genelab.motion.clip import Clip, npz_bytes, read_clip
from genelab.motion.resample import resample
from genelab.motion.rotation import angular_velocity, continuous, normalized

_SCALAR = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
_ANOTHER_ROBOT = 0.1
"""Bodies of a file that are farther than this from where its joints put them are in another order, or another's, m."""


@dataclass(frozen=True, kw_only=True)
class Motion:
    """A motion of a robot, frame by frame; names are in the order of the columns."""

    fps: float
    joint_names: tuple[str, ...]
    body_names: tuple[str, ...]
    joint_pos: np.ndarray
    """`(T, J)`, rad."""
    joint_vel: np.ndarray
    """`(T, J)`, rad/s."""
    body_pos_w: np.ndarray
    """`(T, B, 3)`, m; the first body is the root."""
    body_quat_w: np.ndarray
    """`(T, B, 4)`, w x y z."""
    body_lin_vel_w: np.ndarray
    """`(T, B, 3)`, m/s, of the bodies' origins."""
    body_ang_vel_w: np.ndarray
    """`(T, B, 3)`, rad/s."""

    def __len__(self) -> int:
        return len(self.joint_pos)

    @property
    def seconds(self) -> float:
        """From the first frame to the last."""
        return (len(self) - 1) / self.fps

    @property
    def clip(self) -> Clip:
        """What all the rest follows from: the root and the joints."""
        root_pos, root_quat = self.body_pos_w[:, 0], self.body_quat_w[:, 0]
        return Clip(fps=self.fps, root_pos=root_pos, root_quat=root_quat, joint_pos=self.joint_pos)

    def write(self, path: Path) -> None:
        """An NPZ file, with the names beside the numbers."""
        numbers = ("joint_pos", "joint_vel", "body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w")
        arrays = {name: getattr(self, name).astype(np.float32) for name in numbers}
        names = {"joint_names": np.array(self.joint_names), "body_names": np.array(self.body_names)}
        atomic_write_bytes(path, npz_bytes(fps=np.array([self.fps]), **arrays, **names), parents=False)


class Kinematics:
    """A robot in a compiled model, to be put into poses."""

    def __init__(self, model: mujoco.MjModel, prefix: str = "") -> None:
        self.model = model
        self.data = mujoco.MjData(model)
        self.bodies = [i for i in range(1, model.nbody) if model.body(i).name.startswith(prefix)]
        joints = [i for i in range(model.njnt) if model.joint(i).name.startswith(prefix)]
        kinds = {i: mujoco.mjtJoint(int(model.jnt_type[i])) for i in joints}
        scalar = [i for i in joints if kinds[i] in _SCALAR]
        free = [i for i in joints if kinds[i] == mujoco.mjtJoint.mjJNT_FREE]
        if len(free) != 1 or model.jnt_bodyid[free[0]] != self.bodies[0]:
            raise UsageError(
                "a motion is of a robot that can go anywhere: the first body of this one has no free joint"
            )
        self.joints = scalar
        self.joint_names = tuple(model.joint(i).name.removeprefix(prefix) for i in scalar)
        self.body_names = tuple(model.body(i).name.removeprefix(prefix) for i in self.bodies)
        self.root_q, self.root_v = int(model.jnt_qposadr[free[0]]), int(model.jnt_dofadr[free[0]])
        self.joint_q, self.joint_v = model.jnt_qposadr[scalar], model.jnt_dofadr[scalar]

    def read(self, path: str | Path, fps: float | None = None) -> Clip:
        """The motion in a file, if it is one of this robot."""
        clip = read_clip(Path(path), self.joint_names, fps)
        if clip.bodies is not None:
            self._compare(Path(path), clip)
        return clip

    def _compare(self, path: Path, clip: Clip) -> None:
        """Refuse bodies that are not where this robot's joints put them, by a few frames."""
        assert clip.bodies is not None
        places, _ = clip.bodies
        if places.shape[1] != len(self.bodies):
            raise UsageError(f"{path}: there are {places.shape[1]} bodies, this robot has {len(self.bodies)}")
        some = np.linspace(0, len(clip) - 1, min(len(clip), 5)).astype(int)
        away = np.linalg.norm(self.states(clip)[0][some] - places[some], axis=2)
        if away.max() > _ANOTHER_ROBOT:
            frame, body = np.unravel_index(away.argmax(), away.shape)
            raise UsageError(
                f"{path}: frame {some[frame] + 1}, {self.body_names[body]} is {away.max():.2f} m from where the joints "
                "put it: joints or bodies are in another order than this robot's, or of another robot"
            )

    def qpos(self, clip: Clip) -> np.ndarray:
        """Positions of the model, `(T, nq)`."""
        qpos = np.tile(self.model.qpos0, (len(clip), 1))
        qpos[:, self.root_q : self.root_q + 3] = clip.root_pos
        qpos[:, self.root_q + 3 : self.root_q + 7] = normalized(continuous(clip.root_quat))
        qpos[:, self.joint_q] = clip.joint_pos
        return qpos

    def qvel(self, clip: Clip) -> np.ndarray:
        """Velocities of the model by differences of frames, `(T, nv)`; a root turns in its own frame."""
        qvel = np.zeros((len(clip), self.model.nv))
        quat = normalized(clip.root_quat)
        spin = angular_velocity(quat, clip.fps)
        turned = np.zeros(3)
        qvel[:, self.root_v : self.root_v + 3] = np.gradient(clip.root_pos, axis=0) * clip.fps
        for i in range(len(clip)):
            mujoco.mju_rotVecQuat(turned, spin[i], quat[i] * [1.0, -1.0, -1.0, -1.0])
            qvel[i, self.root_v + 3 : self.root_v + 6] = turned
        qvel[:, self.joint_v] = np.gradient(clip.joint_pos, axis=0) * clip.fps
        return qvel

    def states(self, clip: Clip) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Positions, orientations, velocities and angular velocities of the bodies."""
        model, data, bodies = self.model, self.data, self.bodies
        qpos, qvel = self.qpos(clip), self.qvel(clip)
        shape = (len(clip), len(bodies))
        pos, quat = np.empty((*shape, 3)), np.empty((*shape, 4))
        linear, angular = np.empty((*shape, 3)), np.empty((*shape, 3))
        for i in range(len(clip)):
            data.qpos[:], data.qvel[:] = qpos[i], qvel[i]
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            mujoco.mj_comVel(model, data)
            pos[i], quat[i] = data.xpos[bodies], data.xquat[bodies]
            angular[i] = data.cvel[bodies, :3]
            arm = pos[i] - data.subtree_com[model.body_rootid[bodies]]
            linear[i] = data.cvel[bodies, 3:] + np.cross(angular[i], arm)
        return pos, quat, linear, angular

    def motion(self, clip: Clip, fps: float | None = None) -> Motion:
        """All there is to a motion, at its own rate or another."""
        clip = clip if fps is None else resample(clip, fps)
        pos, quat, linear, angular = self.states(clip)
        return Motion(
            fps=clip.fps,
            joint_names=self.joint_names,
            body_names=self.body_names,
            joint_pos=clip.joint_pos,
            joint_vel=np.gradient(clip.joint_pos, axis=0) * clip.fps,
            body_pos_w=pos,
            body_quat_w=quat,
            body_lin_vel_w=linear,
            body_ang_vel_w=angular,
        )
