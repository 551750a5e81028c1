"""The G1's own motions: key poses, solved by inverse kinematics with planted feet and the weight over them.

    python -m genelab_unitree.motions [--out DIR] [NAME ...]

makes the files in `clips` anew of `clips/motions.toml`, bit for bit. It needs `mink`: pip install 'genelab[motions]'.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from genelab.config import atomic_write_bytes
from genelab.errors import UsageError, did_you_mean
from genelab.motion import npz_bytes
from genelab_unitree.robots.g1 import FOOT, g1_cfg, g1_spec

FPS = 50.0
SHIPPED = ("bow", "dance", "march", "side_lunge", "squat", "wave")
"""The motions that come with the robot; the others are parts of them."""
CLIPS = Path(__file__).with_name("clips")
STANCE = 0.12
"""How far each foot stands from the middle, m."""
_GRAVITY = 9.81
_DIGITS = 5
"""Decimals of angles and places in the files: finer than any encoder, coarser than two machines' rounding."""
_LIFTED = 0.02
"""A foot that is higher than this is in the air, m."""
_ROUNDS = 12
"""Steps of the inverse kinematics for each frame, from the frame before."""

Four = tuple[float, float, float, float]
_ARM: Four = (-11.0, 11.0, 0.0, 55.0)


@dataclass(frozen=True)
class Key:
    """A pose in the terms of `motions.toml`, and how long it takes to get there."""

    seconds: float = 0.0
    height: float = 0.74
    weight: float = 0.0
    torso: tuple[float, float, float] = (0.0, 0.0, 0.0)
    hips: float = 0.0
    left_arm: Four = _ARM
    right_arm: Four = _ARM
    left_foot: Four = (0.0, 0.0, 0.0, 0.0)
    right_foot: Four = (0.0, 0.0, 0.0, 0.0)

    @property
    def numbers(self) -> np.ndarray:
        """All of it but the time."""
        numbers = (self.height, self.weight, *self.torso, self.hips)
        return np.array([*numbers, *self.left_arm, *self.right_arm, *self.left_foot, *self.right_foot])

    @classmethod
    def of(cls, numbers: np.ndarray) -> Key:
        """The other way round."""
        height, weight, lean, side, turn, hips, *limbs = numbers.tolist()
        limb = [(a, b, c, d) for a, b, c, d in zip(*[iter(limbs)] * 4, strict=True)]
        return cls(0.0, height, weight, (lean, side, turn), hips, *limb)

    def changed(self, row: Mapping[str, Any]) -> Key:
        """The next key, which a row describes."""
        start = Key() if row.get("stand") else self
        given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
        given.pop("stand", None)
        arms = given.pop("arms", None)
        if arms is not None:
            given = {"left_arm": arms, "right_arm": arms, **given}
        for key in given:
            if key not in Key.__dataclass_fields__:
                raise UsageError(
                    f"motions.toml: a key pose has no {key!r}.{did_you_mean(key, Key.__dataclass_fields__)}"
                )
        return replace(start, **given)


_OTHER = {"left_arm": "right_arm", "right_arm": "left_arm", "left_foot": "right_foot", "right_foot": "left_foot"}
"""What is called so on the other side."""


def _mirrored(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row of the mirror image."""
    image = {_OTHER.get(key, key): value for key, value in row.items()}
    image |= {key: -row[key] for key in ("weight", "hips") if key in row}
    if "torso" in row:
        lean, left, turn = row["torso"]
        image["torso"] = [lean, -left, -turn]
    return image


def rows_of(name: str, source: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Mapping[str, Any]]:
    """The rows of a motion, with those of the motions that it does."""
    if name not in source:
        raise UsageError(f"motions.toml: no motion is called {name!r}.{did_you_mean(name, source)}")
    for row in source[name]:
        if "do" in row:
            for part in rows_of(row["do"], source):
                yield _mirrored(part) if row.get("mirrored") else part
        else:
            yield row


def keys_of(name: str, source: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Key]:
    """The key poses of a motion; it begins standing."""
    keys = [Key()]
    for row in rows_of(name, source):
        keys.append(keys[-1].changed(row))
    return keys


def frames_of(keys: Sequence[Key]) -> list[Key]:
    """What is asked for at every frame: from key to key with minimum jerk."""
    ends = np.cumsum([key.seconds for key in keys])
    frames = []
    for time in np.arange(round(ends[-1] * FPS) + 1) / FPS:
        i = min(int(np.searchsorted(ends, time, side="right")), len(keys) - 1)
        x = 1.0 - min(max((ends[i] - time) / max(keys[i].seconds, 1e-9), 0.0), 1.0)
        share = x**3 * (10.0 - 15.0 * x + 6.0 * x * x)
        frames.append(Key.of(keys[i - 1].numbers + share * (keys[i].numbers - keys[i - 1].numbers)))
    return frames


@dataclass
class Solver:
    """A G1 whose joints are found from where its feet, its weight, its torso and its arms are to be."""

    model: mujoco.MjModel = field(default_factory=lambda: g1_spec().compile())

    def __post_init__(self) -> None:
        import mink

        self.mink = mink
        model = self.model
        self.start = model.qpos0.copy()
        for pattern, value in g1_cfg().init_state.joint_pos.items():
            for i in range(1, model.njnt):
                name = model.joint(i).name
                if name.endswith(pattern.removeprefix(".*")):
                    self.start[model.jnt_qposadr[i]] = value
        self.ankle = -min(
            float(model.geom_pos[i, 2] - model.geom_size[i, 0])
            for i in range(model.ngeom)
            if "_foot_" in model.geom(i).name
        )
        """How high the ankle is above its sole, m."""
        legs = np.array([0.0] * 6 + [self._stiffness(model.joint(i).name) for i in range(1, model.njnt)])
        frame = mink.FrameTask
        self.feet = {
            side: frame(f"{side}_ankle_roll_link", "body", position_cost=20.0, orientation_cost=5.0, lm_damping=0.1)
            for side in ("left", "right")
        }
        self.pelvis = frame("pelvis", "body", position_cost=[0.0, 0.0, 5.0], orientation_cost=0.5)
        self.torso = frame("torso_link", "body", position_cost=0.0, orientation_cost=2.0)
        self.centre = mink.ComTask(cost=[10.0, 10.0, 0.0])
        self.posture = mink.PostureTask(model, cost=legs)
        self.tasks = [*self.feet.values(), self.pelvis, self.torso, self.centre, self.posture]
        self.limits = [mink.ConfigurationLimit(model, gain=0.9, min_distance_from_limits=0.03)]

    @staticmethod
    def _stiffness(joint: str) -> float:
        """How much a joint keeps to what was asked of it: arms are given, legs follow from the feet."""
        return 10.0 if any(part in joint for part in ("shoulder", "elbow", "wrist")) else 1e-3

    def solve(self, frames: Sequence[Key]) -> tuple[np.ndarray, float]:
        """Positions of all joints and of the root, `(T, 36)`, and how far from its place a foot is at worst, m."""
        configuration = self.mink.Configuration(self.model)
        configuration.update(self.start)
        places = {side: np.array([self._foot(key, side) for key in frames]) for side in self.feet}
        centre = self._pendulum(frames, places)
        poses, worst = [], 0.0
        for i, key in enumerate(frames):
            self._aim(key, {side: place[i] for side, place in places.items()}, centre[i])
            for _ in range(_ROUNDS * (20 if i == 0 else 1)):
                self._raise_pelvis(configuration, key)
                velocity = self.mink.solve_ik(
                    configuration, self.tasks, 1.0, solver="daqp", damping=1e-6, limits=self.limits
                )
                configuration.integrate_inplace(velocity, 1.0)
            for foot in self.feet.values():
                worst = max(worst, float(np.linalg.norm(foot.compute_error(configuration)[:3])))
            poses.append(configuration.q.copy())
        return np.array(poses), worst

    def _foot(self, key: Key, side: str) -> Four:
        """Where an ankle is to be, and its heading, rad."""
        out = 1.0 if side == "left" else -1.0
        forward, aside, up, turned = key.left_foot if side == "left" else key.right_foot
        return forward, out * (STANCE + aside), up + self.ankle, out * np.deg2rad(turned)

    def _pendulum(self, frames: Sequence[Key], places: Mapping[str, np.ndarray]) -> np.ndarray:
        """Where the centre of mass is to be, `(T, 2)`, m, so that the ground pushes where the weight is.

        A pendulum of constant height over the point where the ground pushes: x − h/g · x″ = that point. It is at rest
        at both ends.
        """
        share = np.array([[(1.0 + key.weight) / 2] for key in frames])
        soles = {
            side: p[:, :2] + FOOT[0] * np.stack((np.cos(p[:, 3]), np.sin(p[:, 3])), 1) for side, p in places.items()
        }
        push = share * soles["left"] + (1.0 - share) * soles["right"]
        data = mujoco.MjData(self.model)
        data.qpos[:] = self.start
        mujoco.mj_kinematics(self.model, data)
        mujoco.mj_comPos(self.model, data)
        height = data.subtree_com[1, 2] - data.xpos[self.model.body("left_ankle_roll_link").id, 2] + self.ankle
        stiff = height / _GRAVITY * FPS**2
        count = len(frames)
        matrix = np.diag(np.full(count, 1.0 + 2.0 * stiff))
        matrix -= stiff * (np.eye(count, k=1) + np.eye(count, k=-1))
        matrix[0, 0] = matrix[-1, -1] = 1.0 + stiff
        return np.linalg.solve(matrix, push)

    def _raise_pelvis(self, configuration: Any, key: Key) -> None:
        """Its height and direction are given, not where it is over the ground: that follows from the weight."""
        hips = self.mink.SO3.from_rpy_radians(
            0.0, np.deg2rad(key.torso[0]) / 2, np.deg2rad(key.hips)
        )  # bent like the waist
        place = configuration.get_transform_frame_to_world("pelvis", "body").translation()
        over = np.array([place[0], place[1], key.height])
        self.pelvis.set_target(self.mink.SE3.from_rotation_and_translation(hips, over))

    def _aim(self, key: Key, feet: Mapping[str, np.ndarray], centre: np.ndarray) -> None:
        mink = self.mink
        for side, (x, y, z, yaw) in feet.items():
            turn = mink.SO3.from_z_radians(yaw)
            self.feet[side].set_target(mink.SE3.from_rotation_and_translation(turn, np.array([x, y, z])))
            # In the air an ankle may roll: it has no range for legs that are spread.
            roll = 5.0 / (1.0 + ((z - self.ankle) / _LIFTED) ** 2)
            self.feet[side].set_orientation_cost(np.array([roll, 5.0, 5.0]))
        lean, left, turn_left = np.deg2rad(key.torso)
        # Roll to the left is negative about x.
        upright = mink.SO3.from_rpy_radians(-left, lean, turn_left)
        self.torso.set_target(mink.SE3.from_rotation(upright))
        self.centre.set_target(np.array([*centre, 0.0]))
        posture = self.start.copy()
        for side, arm in (("left", key.left_arm), ("right", key.right_arm)):
            raised, out, twist, bent = np.deg2rad(arm)
            sign = 1.0 if side == "left" else -1.0
            angles = {"shoulder_pitch": -raised, "shoulder_roll": sign * out, "shoulder_yaw": sign * twist}
            for joint, angle in {**angles, "elbow": np.pi / 2 - bent}.items():
                posture[self.model.joint(f"{side}_{joint}_joint").qposadr[0]] = angle
        self.posture.set_target(posture)


def make(name: str, source: Mapping[str, Sequence[Mapping[str, Any]]], solver: Solver) -> tuple[bytes, str]:
    """The file of a motion, and a line about it."""
    poses, worst = solver.solve(frames_of(keys_of(name, source)))
    poses = np.round(poses, _DIGITS) + 0.0  # no negative zeros
    arrays = {"root_pos": poses[:, :3], "root_quat": poses[:, 3:7], "joint_pos": poses[:, 7:]}
    names = np.array([solver.model.joint(i).name for i in range(1, solver.model.njnt)])
    data = npz_bytes(
        fps=np.array([FPS]), **{key: value.astype(np.float32) for key, value in arrays.items()}, joint_names=names
    )
    return data, f"{name}: {(len(poses) - 1) / FPS:.2f} s, feet within {1000 * worst:.2f} mm, {len(data) / 1000:.0f} kB"


def main(args: Sequence[str] | None = None) -> None:
    """Make the motions."""
    parser = argparse.ArgumentParser(description="Make the G1's own motions of their key poses.")
    parser.add_argument("names", metavar="NAME", nargs="*", default=SHIPPED)
    parser.add_argument("--out", type=Path, default=CLIPS, help="directory [that of the package]")
    given = parser.parse_args(args)
    source = tomllib.loads((CLIPS / "motions.toml").read_text(encoding="utf-8"))
    solver = Solver()
    for name in given.names:
        data, line = make(name, source, solver)
        atomic_write_bytes(given.out / f"{name}.npz", data)
        print(line)


if __name__ == "__main__":
    main()
