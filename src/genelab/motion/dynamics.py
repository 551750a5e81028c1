"""The torques and ground forces that a motion takes: inverse dynamics of a robot on a plane."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import mujoco
import numpy as np

from genelab.motion.clip import Clip
from genelab.motion.kinematics import Kinematics
from genelab.scene import EntityCfg, PlaneCfg, Scene, SceneCfg
from genelab.sim import SimulationCfg

TOUCHES = 0.01
"""A body that is no higher than this above the ground stands on it, m."""
ARM = 0.2
"""A moment counts like the force that makes it at this distance, m."""
_STEPS = 400
"""Of the search for ground forces."""


@dataclass(frozen=True)
class Contact:
    """A point where a body touches the ground, or another body of the robot."""

    body: int
    dist: float
    """Below zero: how deep, m."""
    speed: float = 0.0
    """How fast the point slides over the ground, m/s."""
    friction: float = 1.0
    jacobian: np.ndarray | None = None
    """Of the touching point, `(3, nv)`; None for a contact of the robot with itself."""


class Dynamics:
    """A robot on a plane."""

    def __init__(self, robot: EntityCfg) -> None:
        cfg = SceneCfg(entities={"robot": copy.deepcopy(robot)}, terrain=PlaneCfg())
        scene = Scene(cfg, SimulationCfg(engine="mujoco"))
        self.model = scene.spec.copy().compile()
        scene.engine.close()
        self.ground = self.model.geom("terrain").id
        # Contacts are found before they touch, so that feet slightly above the ground count as standing.
        self.model.geom_margin[np.arange(self.model.ngeom) != self.ground] = TOUCHES
        self.kinematics = Kinematics(self.model, "robot/")

    def contacts(self, clip: Clip) -> list[list[Contact]]:
        """What touches, frame by frame."""
        states = zip(self.kinematics.qpos(clip), self.kinematics.qvel(clip), strict=True)
        return [list(self._touching(qpos, qvel)) for qpos, qvel in states]

    def _touching(self, qpos: np.ndarray, qvel: np.ndarray) -> Iterator[Contact]:
        model, data = self.model, self.kinematics.data
        data.qpos[:], data.qvel[:] = qpos, qvel
        mujoco.mj_fwdPosition(model, data)
        jacobian = np.empty((3, model.nv))
        for contact in data.contact:
            if self.ground in contact.geom:
                geom = contact.geom[contact.geom != self.ground][0]
                body = int(model.geom_bodyid[geom])
                mujoco.mj_jac(model, data, jacobian, None, contact.pos, body)
                speed = float(np.linalg.norm((jacobian @ qvel)[:2]))
                yield Contact(body, contact.dist, speed, contact.friction[0], jacobian.copy())
            else:
                yield Contact(int(model.geom_bodyid[contact.geom[0]]), contact.dist)

    def efforts(self, clip: Clip, contacts: list[list[Contact]]) -> np.ndarray:
        """Forces and torques that the motion takes besides those of the ground, `(T, nv)`.

        The ground gives, within friction, what comes nearest to what the root needs; what is left at the root nothing
        can give.
        """
        robot, model, data = self.kinematics, self.model, self.kinematics.data
        qpos, qvel = robot.qpos(clip), robot.qvel(clip)
        needed = np.empty((len(clip), model.nv))
        qacc = np.gradient(qvel, axis=0) * clip.fps
        flags = model.opt.disableflags
        model.opt.disableflags = flags | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
        for i in range(len(clip)):
            data.qpos[:], data.qvel[:], data.qacc[:] = qpos[i], qvel[i], qacc[i]
            mujoco.mj_inverse(model, data)
            needed[i] = data.qfrc_inverse
        model.opt.disableflags = flags
        most = max(len(_pushes(frame)) for frame in contacts)
        if not most:
            return needed
        generators = np.zeros((len(clip), most, model.nv))
        for i, frame in enumerate(contacts):
            found = _pushes(frame)
            if len(found):
                generators[i, : len(found)] = found
        return needed - _ground_forces(generators, needed, slice(robot.root_v, robot.root_v + 6))

    def torques(self, clip: Clip) -> np.ndarray:
        """Forces or torques of the joints, as far as their actuators can give them, `(T, J)`."""
        wanted = self.efforts(clip, self.contacts(clip))[:, self.kinematics.joint_v]
        return wanted.clip(-self.peak_torques, self.peak_torques)

    @property
    def weight(self) -> float:
        """Of the robot, N."""
        return float(mujoco.mj_getTotalmass(self.model) * np.linalg.norm(self.model.opt.gravity))

    @property
    def peak_torques(self) -> np.ndarray:
        """What the actuators can give, `(J,)`; infinite where no limit is told."""
        model, robot = self.model, self.kinematics
        peaks = np.full(len(robot.joints), np.inf)
        for i in range(model.nu):
            joint = int(model.actuator_trnid[i, 0])
            if model.actuator_forcelimited[i] and joint in robot.joints:
                peaks[robot.joints.index(joint)] = np.abs(model.actuator_forcerange[i]).max()
        return peaks


def _pushes(frame: list[Contact]) -> np.ndarray:
    """What unit pushes of the ground do to the joints, `(4 · points, nv)`: up, and as far aside as friction allows."""
    rows = [
        contact.jacobian[2] + sign * contact.friction * contact.jacobian[axis]
        for contact in frame
        if contact.jacobian is not None
        for axis in (0, 1)
        for sign in (-1.0, 1.0)
    ]
    return np.array(rows)


def _ground_forces(generators: np.ndarray, needed: np.ndarray, root: slice) -> np.ndarray:
    """What the ground does to all joints, `(T, nv)`, where it gives the root what it needs as nearly as it can.

    Non-negative least squares in all frames at once, by accelerated projected gradients.
    """
    weights = np.array([1.0] * 3 + [1.0 / ARM] * 3)
    matrix = np.ascontiguousarray(generators[:, :, root]) * weights  # (T, K, 6)
    transposed = np.ascontiguousarray(matrix.transpose(0, 2, 1))
    wanted = (needed[:, root] * weights)[:, None]
    step = 1.0 / np.maximum(np.linalg.eigvalsh(transposed @ matrix)[:, -1], 1e-9)[:, None, None]
    amounts = np.zeros((len(matrix), 1, matrix.shape[1]))
    ahead, pace = amounts, 1.0
    for _ in range(_STEPS):
        following = np.maximum(ahead - step * ((ahead @ matrix - wanted) @ transposed), 0.0)
        next_pace = (1.0 + np.sqrt(1.0 + 4.0 * pace**2)) / 2.0
        ahead = following + (pace - 1.0) / next_pace * (following - amounts)
        amounts, pace = following, next_pace
    return (amounts @ generators)[:, 0]
