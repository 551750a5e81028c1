"""Whether a robot could do a motion: speeds, limits, slipping feet, and the torques and ground forces it takes."""

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
_ARM = 0.2
"""A moment counts like the force that makes it at this distance, m."""
_STEPS = 400
"""Of the search for ground forces."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One number of a motion, where it is largest."""

    what: str
    value: float
    unit: str
    frame: int
    """Counted from 0."""
    where: str = ""
    """The joint or body."""
    bound: float | None = None
    """What it should not exceed."""

    @property
    def is_good(self) -> bool:
        """Whether it is within its bound."""
        return self.bound is None or self.value <= self.bound


class MotionCheck:
    """A robot on a plane, to hold motions against."""

    def __init__(self, robot: EntityCfg) -> None:
        cfg = SceneCfg(entities={"robot": copy.deepcopy(robot)}, terrain=PlaneCfg())
        scene = Scene(cfg, SimulationCfg(engine="mujoco"))
        self.model = scene.spec.copy().compile()
        scene.engine.close()
        self.ground = self.model.geom("terrain").id
        # Contacts are found before they touch, so that feet slightly above the ground count as standing.
        self.model.geom_margin[np.arange(self.model.ngeom) != self.ground] = TOUCHES
        self.kinematics = Kinematics(self.model, "robot/")

    def findings(self, clip: Clip) -> list[Finding]:
        """All that can be said, in the order to be read in."""
        robot = self.kinematics
        qpos, qvel = robot.qpos(clip), robot.qvel(clip)
        contacts = [list(self._contacts(q, v)) for q, v in zip(qpos, qvel, strict=True)]
        root_speed = np.linalg.norm(qvel[:, robot.root_v : robot.root_v + 3], axis=1)
        turn_speed = np.linalg.norm(qvel[:, robot.root_v + 3 : robot.root_v + 6], axis=1)
        names = robot.joint_names
        limited = self.model.jnt_limited[robot.joints].astype(bool)
        low, high = self.model.jnt_range[robot.joints].T
        beyond = np.where(limited, np.maximum(clip.joint_pos - high, low - clip.joint_pos), 0.0).clip(min=0.0)
        return [
            _worst("root speed", root_speed, "m/s"),
            _worst("root turning", turn_speed, "rad/s"),
            _worst("joint speed", np.abs(qvel[:, robot.joint_v]), "rad/s", names),
            _worst("beyond a joint limit", beyond, "rad", names, bound=1e-3),
            *self._feet(clip, contacts),
            *self._forces(clip, qpos, qvel, contacts),
        ]

    def _contacts(self, qpos: np.ndarray, qvel: np.ndarray) -> Iterator[_Contact]:
        """What touches, in one frame."""
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
                yield _Contact(body, contact.dist, speed, contact.friction[0], jacobian.copy())
            else:
                yield _Contact(int(model.geom_bodyid[contact.geom[0]]), contact.dist)

    def _feet(self, clip: Clip, contacts: list[list[_Contact]]) -> Iterator[Finding]:
        bodies, names = self.kinematics.bodies, self.kinematics.body_names
        depth, within = np.zeros((2, len(clip), len(bodies)))
        speed = np.full((len(clip), len(bodies)), np.inf)
        for i, frame in enumerate(contacts):
            for contact in frame:
                column = bodies.index(contact.body)
                into = depth if contact.jacobian is not None else within
                into[i, column] = max(into[i, column], -contact.dist)
                if contact.jacobian is not None:  # of several points, the one that holds
                    speed[i, column] = min(speed[i, column], contact.speed)
        slipped = np.zeros_like(speed)
        for i in range(len(clip)):
            stands = np.isfinite(speed[i])
            before = slipped[i - 1] if i else 0.0
            slipped[i] = np.where(stands, before + np.where(stands, speed[i], 0.0) / clip.fps, 0.0)
        yield _worst("slips while it stands", slipped, "m", names, bound=0.02)
        yield _worst("into the ground", depth, "m", names, bound=0.01)
        yield _worst("into itself", within, "m", names, bound=0.01)

    def _forces(
        self, clip: Clip, qpos: np.ndarray, qvel: np.ndarray, contacts: list[list[_Contact]]
    ) -> Iterator[Finding]:
        robot, model, data = self.kinematics, self.model, self.kinematics.data
        needed = np.empty((len(clip), model.nv))
        qacc = np.gradient(qvel, axis=0) * clip.fps
        flags = model.opt.disableflags
        model.opt.disableflags = flags | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
        for i in range(len(clip)):
            data.qpos[:], data.qvel[:], data.qacc[:] = qpos[i], qvel[i], qacc[i]
            mujoco.mj_inverse(model, data)
            needed[i] = data.qfrc_inverse
        model.opt.disableflags = flags
        pushed = np.zeros_like(needed)
        most = max(len(_pushes(frame)) for frame in contacts)
        if most:
            generators = np.zeros((len(clip), most, model.nv))
            for i, frame in enumerate(contacts):
                found = _pushes(frame)
                if len(found):
                    generators[i, : len(found)] = found
            pushed = _ground_forces(generators, needed, slice(robot.root_v, robot.root_v + 6))
        left = needed - pushed
        force = np.linalg.norm(left[:, robot.root_v : robot.root_v + 3], axis=1)
        moment = np.linalg.norm(left[:, robot.root_v + 3 : robot.root_v + 6], axis=1)
        share = np.abs(left[:, robot.joint_v]) / self._efforts()
        frame, joint = np.unravel_index(share.argmax(), share.shape)
        torque = abs(left[frame, robot.joint_v[joint]])
        yield _worst("force that no ground gives", force, "N", bound=0.2 * self._weight())
        yield _worst("moment that no ground gives", moment, "N·m", bound=0.2 * self._weight() * _ARM)
        name = robot.joint_names[joint]
        yield _worst("torque", np.abs(left[:, robot.joint_v]), "N·m", robot.joint_names)
        where = f"{name}, {torque:.1f} N·m"
        yield Finding(
            what="of a joint's peak torque",
            value=float(share.max()),
            unit="1",
            frame=int(frame),
            where=where,
            bound=1.0,
        )

    def _weight(self) -> float:
        return float(mujoco.mj_getTotalmass(self.model) * np.linalg.norm(self.model.opt.gravity))

    def _efforts(self) -> np.ndarray:
        """Peak torques of the joints, `(J,)`; infinite where none is told."""
        model, robot = self.model, self.kinematics
        efforts = np.full(len(robot.joints), np.inf)
        for i in range(model.nu):
            joint = int(model.actuator_trnid[i, 0])
            if model.actuator_forcelimited[i] and joint in robot.joints:
                efforts[robot.joints.index(joint)] = np.abs(model.actuator_forcerange[i]).max()
        return efforts


@dataclass(frozen=True)
class _Contact:
    body: int
    dist: float
    speed: float = 0.0
    friction: float = 1.0
    jacobian: np.ndarray | None = None
    """Of the touching point, `(3, nv)`; None for a contact of the robot with itself."""


def _pushes(frame: list[_Contact]) -> np.ndarray:
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
    weights = np.array([1.0] * 3 + [1.0 / _ARM] * 3)
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


def _worst(
    what: str, values: np.ndarray, unit: str, names: tuple[str, ...] = (), *, bound: float | None = None
) -> Finding:
    """The largest of `(T,)` or `(T, names)`."""
    place = np.unravel_index(int(values.argmax()), values.shape)
    value = float(values[place])
    where = names[int(place[1])] if names and value > 0 else ""
    return Finding(what=what, value=value, unit=unit, frame=int(place[0]), where=where, bound=bound)
