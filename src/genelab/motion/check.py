"""Whether a robot could do a motion: speeds, limits, slipping feet, and the torques and ground forces it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from genelab.motion.clip import Clip
from genelab.motion.dynamics import ARM, Contact, Dynamics
from genelab.scene import EntityCfg


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
        self.dynamics = Dynamics(robot)
        self.kinematics = self.dynamics.kinematics

    def findings(self, clip: Clip) -> list[Finding]:
        """All that can be said, in the order to be read in."""
        robot, model = self.kinematics, self.dynamics.model
        qvel = robot.qvel(clip)
        contacts = self.dynamics.contacts(clip)
        root_speed = np.linalg.norm(qvel[:, robot.root_v : robot.root_v + 3], axis=1)
        turn_speed = np.linalg.norm(qvel[:, robot.root_v + 3 : robot.root_v + 6], axis=1)
        names = robot.joint_names
        limited = model.jnt_limited[robot.joints].astype(bool)
        low, high = model.jnt_range[robot.joints].T
        beyond = np.where(limited, np.maximum(clip.joint_pos - high, low - clip.joint_pos), 0.0).clip(min=0.0)
        return [
            _worst("root speed", root_speed, "m/s"),
            _worst("root turning", turn_speed, "rad/s"),
            _worst("joint speed", np.abs(qvel[:, robot.joint_v]), "rad/s", names),
            _worst("beyond a joint limit", beyond, "rad", names, bound=1e-3),
            *self._feet(clip, contacts),
            *self._forces(clip, contacts),
        ]

    def _feet(self, clip: Clip, contacts: list[list[Contact]]) -> Iterator[Finding]:
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

    def _forces(self, clip: Clip, contacts: list[list[Contact]]) -> Iterator[Finding]:
        robot, weight = self.kinematics, self.dynamics.weight
        efforts = self.dynamics.efforts(clip, contacts)
        torques = np.abs(efforts[:, robot.joint_v])
        force = np.linalg.norm(efforts[:, robot.root_v : robot.root_v + 3], axis=1)
        moment = np.linalg.norm(efforts[:, robot.root_v + 3 : robot.root_v + 6], axis=1)
        share = torques / self.dynamics.peak_torques
        frame, joint = np.unravel_index(share.argmax(), share.shape)
        yield _worst("force that no ground gives", force, "N", bound=0.2 * weight)
        yield _worst("moment that no ground gives", moment, "N·m", bound=0.2 * weight * ARM)
        yield _worst("torque", torques, "N·m", robot.joint_names)
        yield Finding(
            what="of a joint's peak torque",
            value=float(share.max()),
            unit="1",
            frame=int(frame),
            where=f"{robot.joint_names[joint]}, {torques[frame, joint]:.1f} N·m",
            bound=1.0,
        )


def _worst(
    what: str, values: np.ndarray, unit: str, names: tuple[str, ...] = (), *, bound: float | None = None
) -> Finding:
    """The largest of `(T,)` or `(T, names)`."""
    place = np.unravel_index(int(values.argmax()), values.shape)
    value = float(values[place])
    where = names[int(place[1])] if names and value > 0 else ""
    return Finding(what=what, value=value, unit=unit, frame=int(place[0]), where=where, bound=bound)
