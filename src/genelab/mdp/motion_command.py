"""A motion to follow: what every body of a robot is asked to do, frame by frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from genelab import math as gm
from genelab.errors import ConfigError, UsageError
from genelab.managers import CommandTerm, CommandTermCfg, Meaning
from genelab.managers.marks import REFERENCE, Ghost, Mark
from genelab.mdp.motion_probe import STARTS_OFF, MotionProbe
from genelab.motion import Kinematics, Motion, find_motion
from genelab.scene import Image
from genelab.scene.mirror import beside, of_joints
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv

_CLOSES = (0.05, 0.1, 0.2)
"""A motion closes if its last frame is no farther than this from its first: root, m; root, rad; any joint, rad."""
_BIN_S = 1.0
"""Failures are counted by parts of a motion of this length, s."""
_FORGET = 0.001
"""Share of the counted failures that is forgotten with every control step."""
_UNIFORM = 0.1
"""Share of the starts that ignore where robots fail."""
_BEFORE = (1.0, 0.8, 0.64)
"""How much a failure counts for a start in its own part of the motion, in the one before it, and so on."""


MotionError = Literal["mpkpe", "mpkpe_root", "joint_vel", "end_effector_pos", "end_effector_ori"]
"""Mean distance of the bodies from where the motion has them, m; the same with both roots in one place; root mean
square of the errors of joint velocities, rad/s; mean distance of hands and feet, m, and mean angle, rad."""


@dataclass(kw_only=True)
class MotionCommandCfg(CommandTermCfg):
    """A motion from a file, at the environment's control rate."""

    file: str
    """A file .npz, or the name of a motion that comes with the robot; several with commas between them."""
    package: str = ""
    """The package that motions without an ending come with, in its directory `clips`."""
    entity: str = "robot"
    """Name of the robot."""
    anchor: str
    """The body that is to be where the motion has it; the others are followed around it."""
    bodies: tuple[str, ...]
    """Regular expressions of the bodies that are followed."""
    end_effectors: tuple[str, ...]
    """Regular expressions of those among them that are hands and feet."""
    sampling: Literal["uniform", "adaptive", "start"] = "uniform"
    """Where episodes begin: at any frame, more often a little before where robots fail, or with the first frame."""
    at_end: Literal["stop", "loop"] = "stop"
    """After the last frame: stay there, or begin anew; where a motion does not close, the robot is put on its start."""
    ghost: tuple[float, float, float] = (-0.7, -0.5, 0.0)
    """Where pictures show the motion, relative to where it is, m."""

    def build(self, name: str, env: ManagerBasedRlEnv) -> MotionCommand:
        return MotionCommand(name, self, env)


class MotionCommand(CommandTerm):
    """Joint positions and velocities of the frame that is to be reached with the next control step, `(N, 2 · J)`.

    Frames of all motions are counted through. What derives from the robot and the frame is computed on first use.
    """

    cfg: MotionCommandCfg
    not_state = ("motions", "_table", "_cache", "_version", "clips", "first", "last", "closes", "_states", "bins")

    def __init__(self, name: str, cfg: MotionCommandCfg, env: ManagerBasedRlEnv) -> None:
        super().__init__(name, cfg, env)
        self.robot = env.scene.articulation(cfg.entity)
        self.motions = _read(name, cfg, env)
        """The motions by name."""
        where = f"env.commands.{name}"
        self.body_ids = self._index(self.robot.find_bodies(cfg.bodies))
        self.body_names = [self.robot.body_names[i] for i in self.body_ids.tolist()]
        (anchor,) = self.robot.find_bodies(cfg.anchor)[:1]
        if self.robot.body_names[anchor] not in self.body_names:
            raise ConfigError(f"{where}.anchor: {cfg.anchor!r} is not among `{where}.bodies`")
        self.anchor = self.body_names.index(self.robot.body_names[anchor])
        hands = {self.robot.body_names[i] for i in self.robot.find_bodies(cfg.end_effectors)}
        if not hands <= set(self.body_names):
            raise ConfigError(f"{where}.end_effectors: {min(hands - set(self.body_names))!r} is not among the bodies")
        self.end_effectors = self._index([i for i, body in enumerate(self.body_names) if body in hands])
        self._set_tables(list(self.motions.values()))
        device = env.device
        self.frame = torch.zeros(env.num_envs, dtype=torch.int64, device=device)
        """The frame that is asked for, `(N,)`."""
        self.start = torch.zeros_like(self.frame)
        """The frame that the next episode begins on, `(N,)`."""
        self.failures = torch.zeros(int(self.bins.max()) + 1, device=device, dtype=env.dtype)
        """How often robots failed lately, by part of the motions."""
        self._cache: dict[str, Tensor] = {}
        self._version = -1
        self._ask()

    def _index(self, ids: list[int]) -> Tensor:
        return torch.tensor(ids, dtype=torch.int64, device=self.env.device)

    def _set_tables(self, motions: list[Motion]) -> None:
        env, robot = self.env, self.robot
        dtype, device = env.dtype, env.device
        chosen = self.body_ids.tolist()

        def table(*parts: Callable[[Motion], np.ndarray]) -> Tensor:
            rows = [
                np.concatenate([one(motion).reshape(len(motion), -1) for one in parts], axis=1) for motion in motions
            ]
            return torch.as_tensor(np.concatenate(rows), device=device, dtype=dtype)

        bodies = ("body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w")
        of_body = [lambda motion, name=name: getattr(motion, name)[:, chosen] for name in bodies]
        self._table = table(lambda motion: motion.joint_pos, lambda motion: motion.joint_vel, *of_body)
        of_root = [lambda motion, name=name: getattr(motion, name)[:, 0] for name in bodies]
        self._states = table(*of_root)
        lengths = self._index([len(motion) for motion in motions])
        ends = lengths.cumsum(0)
        self.clips = ends - lengths
        """The first frame of each motion."""
        self.last = (ends - 1).repeat_interleave(lengths)
        """The last frame of each frame's motion, `(T,)`."""
        self.first = (ends - lengths).repeat_interleave(lengths)
        """The first one, `(T,)`."""
        closes = torch.tensor([_closes(motion) for motion in motions], device=device)
        self.closes = closes.repeat_interleave(lengths)
        """Whether it closes, `(T,)`."""
        per_bin = max(round(_BIN_S / env.step_dt), 1)
        within = torch.arange(len(self.last), device=device) - self.first
        sizes = (lengths + per_bin - 1) // per_bin
        self.bins = within // per_bin + (sizes.cumsum(0) - sizes).repeat_interleave(lengths)
        """The part of the motions that each frame is in, `(T,)`."""
        self.num_joints = len(robot.joint_names)

    # -- time

    def resample(self, env_ids: Tensor) -> None:
        """Episodes begin where the robot was put; it is asked for the frame after that."""
        self.frame[env_ids] = torch.minimum(self.start[env_ids] + 1, self.last[self.start[env_ids]])
        self._ask()

    def draw_start(self, env_ids: EnvIds) -> Tensor:
        """Where the next episodes of these environments begin, `(len(env_ids),)`."""
        rows = slice(None) if env_ids is None else env_ids
        count = self.env.num_envs if env_ids is None else len(env_ids)
        if self.cfg.sampling == "start":
            which = torch.arange(self.env.num_envs, device=self.env.device)[rows] % len(self.clips)
            self.start[rows] = self.clips[which]
        elif self.cfg.sampling == "uniform":
            self.start[rows] = self._any_frame(count)
        else:
            self._count_failures(rows)
            self.start[rows] = self._where_robots_fail(count)
        return self.start[rows]

    def _any_frame(self, count: int) -> Tensor:
        """A frame that another one follows."""
        rng = self.env.rng
        drawn = torch.randint(len(self.last), (count,), generator=rng, device=rng.device)
        return torch.minimum(drawn, self.last[drawn] - 1)

    def _count_failures(self, rows: slice | Tensor) -> None:
        manager = getattr(self.env, "termination_manager", None)  # there is none before the first episode
        if manager is not None:
            failed = self.frame[rows][manager.terminated[rows]]
            self.failures += _FORGET * torch.bincount(self.bins[failed], minlength=len(self.failures))

    def _where_robots_fail(self, count: int) -> Tensor:
        weights = torch.zeros_like(self.failures)
        for k, weight in enumerate(_BEFORE[: len(weights)]):
            weights[: len(weights) - k] += weight * self.failures[k:]
        weights = weights + _UNIFORM * weights.sum().clamp(min=1.0) / len(weights)
        rng = self.env.rng
        bins = torch.multinomial(weights, count, replacement=True, generator=rng)
        starts = torch.searchsorted(self.bins, bins)
        sizes = torch.searchsorted(self.bins, bins, right=True) - starts
        drawn = starts + (torch.rand(count, generator=rng, device=rng.device) * sizes).long()
        return torch.minimum(drawn, self.last[drawn] - 1)

    def advance(self, dt: float, fresh: Tensor | None = None) -> None:
        """The next frame, but not where an episode has just begun."""
        moved = self.frame + 1
        if fresh is not None:
            moved[fresh] -= 1
        over = moved > self.last[self.frame]
        self.failures *= 1.0 - _FORGET
        if self.cfg.at_end == "loop":
            moved = torch.where(over, self.first[self.frame], moved)
            jumps = (over & ~self.closes[self.frame]).nonzero().flatten()
            self.frame = moved
            if len(jumps):
                self.put(jumps, self.frame[jumps])
                self.frame[jumps] += 1
        else:
            self.frame = torch.where(over, self.frame, moved)
        self._ask()

    @property
    def ended(self) -> Tensor:
        """Whether the frame that is asked for is the last one, `(N,)`."""
        return self.frame == self.last[self.frame]

    @contextmanager
    def at(self, frame: Tensor) -> Iterator[None]:
        """As if other frames were asked for, `(N,)`."""
        before = self.frame
        try:
            self.frame = frame
            self._ask()
            yield
        finally:
            self.frame = before
            self._ask()

    def _ask(self) -> None:
        self._row = self._table[self.frame]  # (N, …)
        self.command = self._row[:, : 2 * self.num_joints]
        self._cache.clear()

    # -- the robot on the motion

    def put(
        self,
        env_ids: EnvIds,
        frames: Tensor,
        pose: Tensor | None = None,
        velocity: Tensor | None = None,
        joint_pos: Tensor | None = None,
    ) -> None:
        """Put robots on frames of the motion, `(len(env_ids),)`.

        What is given is added: to the root's pose, x y z roll pitch yaw, and to its velocity, `(len(env_ids), 6)` each,
        and to the joints, `(len(env_ids), J)`, which stay within their limits.
        """
        state, joints = self._states[frames], self._table[frames, : 2 * self.num_joints]
        origins = self.env.scene.env_origins
        place = state[:, :3] + (origins if env_ids is None else origins[env_ids])
        turn, speed = state[:, 3:7], state[:, 7:]
        if pose is not None:
            place, turn = place + pose[:, :3], gm.quat_mul(gm.quat_from_euler(*pose[:, 3:].unbind(1)), turn)
        if velocity is not None:
            speed = speed + velocity
        self.robot.write_root_state(torch.cat((place, turn), dim=1), speed, env_ids)
        angles = joints[:, : self.num_joints]
        if joint_pos is not None:
            limits = self.robot.joint_pos_limits
            angles = (angles + joint_pos).clamp(limits[..., 0], limits[..., 1])
        self.robot.write_joint_state(angles, joints[:, self.num_joints :], env_ids)

    # -- what is asked for, and what is done

    def _read(self, name: str, compute: Callable[[], Tensor]) -> Tensor:
        version = self.robot.engine.version
        if version != self._version:
            self._cache.clear()
            self._version = version
        if name not in self._cache:
            self._cache[name] = compute()
        return self._cache[name]

    def _asked(self, offset: int, width: int) -> Tensor:
        bodies, start = len(self.body_names), 2 * self.num_joints
        columns = slice(start + offset * bodies, start + (offset + width) * bodies)
        return self._row[:, columns].unflatten(1, (bodies, width))

    @property
    def joint_pos(self) -> Tensor:
        """Joint positions asked for, `(N, J)`."""
        return self.command[:, : self.num_joints]

    @property
    def joint_vel(self) -> Tensor:
        """Joint velocities asked for, `(N, J)`."""
        return self.command[:, self.num_joints :]

    @property
    def root_state(self) -> Tensor:
        """Position, orientation, velocity and angular velocity of the root asked for, `(N, 13)`, world frame."""
        state = self._states[self.frame]
        return torch.cat((state[:, :3] + self.env.scene.env_origins, state[:, 3:]), dim=1)

    @property
    def asked_pos(self) -> Tensor:
        """Positions of the bodies asked for, `(N, B, 3)`."""
        return self._read("asked_pos", lambda: self._asked(0, 3) + self.env.scene.env_origins[:, None])

    @property
    def asked_quat(self) -> Tensor:
        """Their orientations, `(N, B, 4)`."""
        return self._asked(3, 4)

    @property
    def asked_lin_vel(self) -> Tensor:
        """Their velocities, `(N, B, 3)`."""
        return self._asked(7, 3)

    @property
    def asked_ang_vel(self) -> Tensor:
        """Their angular velocities, `(N, B, 3)`."""
        return self._asked(10, 3)

    def _done(self, name: str) -> Tensor:
        return self._read(name, lambda: getattr(self.robot, name).index_select(1, self.body_ids))

    @property
    def body_pos(self) -> Tensor:
        """Where the bodies are, `(N, B, 3)`."""
        return self._done("body_pos_w")

    @property
    def body_quat(self) -> Tensor:
        """How they are turned, `(N, B, 4)`."""
        return self._done("body_quat_w")

    @property
    def body_lin_vel(self) -> Tensor:
        """How they move, `(N, B, 3)`."""
        return self._done("body_lin_vel_w")

    @property
    def body_ang_vel(self) -> Tensor:
        """How they turn, `(N, B, 3)`."""
        return self._done("body_ang_vel_w")

    @property
    def _turn(self) -> Tensor:
        """Half of the angle about the vertical from the motion's anchor to the robot's, `(N, 1)`, rad."""

        def compute() -> Tensor:
            away = gm.quat_mul(self.body_quat[:, self.anchor], gm.quat_conjugate(self.asked_quat[:, self.anchor]))
            return gm.yaw_of(away)[:, None] / 2

        return self._read("turn", compute)

    @property
    def near_pos(self) -> Tensor:
        """Positions asked for, `(N, B, 3)`, with the motion turned and moved over the ground to the robot's anchor."""

        def compute() -> Tensor:
            away = self.asked_pos - self.asked_pos[:, self.anchor, None]
            x, y, _ = away.unbind(-1)
            cos, sin = torch.cos(2 * self._turn), torch.sin(2 * self._turn)
            here = self.body_pos[:, self.anchor]
            return torch.stack(
                (here[:, :1] + cos * x - sin * y, here[:, 1:2] + sin * x + cos * y, self.asked_pos[..., 2]), dim=-1
            )

        return self._read("near_pos", compute)

    @property
    def near_quat(self) -> Tensor:
        """Orientations asked for, `(N, B, 4)`, with the motion turned to the robot's anchor."""

        def compute() -> Tensor:
            w, x, y, z = self.asked_quat.unbind(-1)
            cos, sin = torch.cos(self._turn), torch.sin(self._turn)
            return torch.stack((cos * w - sin * z, cos * x - sin * y, cos * y + sin * x, cos * z + sin * w), dim=-1)

        return self._read("near_quat", compute)

    @property
    def errors(self) -> dict[str, Tensor]:
        """How far the robot is from the motion, `(N,)` each: by `MotionError`."""
        return dict(zip(get_args(MotionError), self._read("errors", self._errors).unbind(), strict=True))

    def _errors(self) -> Tensor:
        away = self.asked_pos - self.body_pos
        asked = self.asked_pos - self.root_state[:, None, :3]
        done = self.body_pos - self.robot.body_pos_w[:, :1]
        distance, angle = away.norm(dim=-1), gm.quat_angle(self.asked_quat, self.body_quat)
        return torch.stack(
            (
                distance.mean(dim=1),
                (asked - done).norm(dim=-1).mean(dim=1),
                (self.joint_vel - self.robot.joint_vel).square().mean(dim=1).sqrt(),
                distance[:, self.end_effectors].mean(dim=1),
                angle[:, self.end_effectors].mean(dim=1),
            )
        )

    # -- what it tells

    def meaning(self) -> Meaning:
        names = self.robot.joint_names
        image: Callable[[], Image] = partial(of_joints, self.robot)
        return Meaning(
            unit=("rad",) * len(names) + ("rad/s",) * len(names),
            columns=(*(f"{name} position" for name in names), *(f"{name} velocity" for name in names)),
            formula="Joint positions, then joint velocities, of the motion's frame for the end of this control step.",
            mirror=lambda: beside((image(), image())),
        )

    def metadata(self) -> dict[str, Any]:
        """With the names of joints and bodies, and where in the tables each motion is."""
        lengths = [len(motion) for motion in self.motions.values()]
        starts = zip(self.motions, self.clips.tolist(), lengths, strict=True)
        return {
            **super().metadata(),
            "joint_names": self.robot.joint_names,
            "anchor": self.body_names[self.anchor],
            "bodies": self.body_names,
            "end_effectors": [self.body_names[i] for i in self.end_effectors.tolist()],
            "clips": [{"name": name, "first": first, "frames": frames} for name, first, frames in starts],
            "starts_off": STARTS_OFF,
        }

    def tables(self) -> dict[str, np.ndarray]:
        """By frame: joints, the followed bodies, and the root's position, quaternion and velocities, world frame."""
        joints, bodies = self.num_joints, len(self.body_names)
        rows, states = (table.cpu().numpy().astype(np.float32) for table in (self._table, self._states))
        place = rows[:, 2 * joints : 2 * joints + 7 * bodies]
        return {
            "joint_pos": rows[:, :joints],
            "joint_vel": rows[:, joints : 2 * joints],
            "body_pos": place[:, : 3 * bodies].reshape(-1, bodies, 3),
            "body_quat": place[:, 3 * bodies :].reshape(-1, bodies, 4),
            "root_state": states,
        }

    def marks(self, i: int, top: float) -> list[Mark]:
        """The motion as a ghost of the robot."""
        qpos = self.robot.engine.qpos[i].cpu().double().numpy().copy()
        pose = self.root_state[i, :7].cpu().double().numpy()
        pose[:3] += self.cfg.ghost
        self.robot.place_in(qpos, pose, self.joint_pos[i].cpu().double().numpy())
        return [Ghost(qpos, f"{self.robot.name}/", REFERENCE)]

    def probe(self) -> MotionProbe:
        return MotionProbe(self)

    def reset(self, env_ids: EnvIds) -> dict[str, Any]:
        log = super().reset(env_ids)
        if self.cfg.sampling == "adaptive":
            share = self.failures / self.failures.sum().clamp(min=1e-9)
            log |= {"hardest_part": share.argmax().to(share.dtype), "hardest_part_share": share.max()}
        return log


def get_motion(env: ManagerBasedRlEnv, name: str) -> MotionCommand:
    """The motion of this name."""
    term = env.commands.term(name)
    if not isinstance(term, MotionCommand):
        raise ConfigError(f"the command {name!r} is a {type(term).__name__}, not a motion")
    return term


def _read(name: str, cfg: MotionCommandCfg, env: ManagerBasedRlEnv) -> dict[str, Motion]:
    """The motions by name, at the control rate, for the robot of the environment."""
    kinematics = Kinematics(env.scene.engine.model, f"{cfg.entity}/")
    motions: dict[str, Motion] = {}
    try:
        for word in cfg.file.split(","):
            path = find_motion(word.strip(), cfg.package)
            called = path.stem if path.stem not in motions else str(path)
            motions[called] = kinematics.motion(kinematics.read(path), 1.0 / env.step_dt)
    except UsageError as error:
        raise ConfigError(f"env.commands.{name}.file: {error}") from error
    return motions


def _closes(motion: Motion) -> bool:
    """Whether its first frame can follow its last."""
    place, turn = motion.body_pos_w[[0, -1], 0], motion.body_quat_w[[0, -1], 0]
    angle = 2 * np.arccos(min(abs(float(turn[0] @ turn[1])), 1.0))
    joints = np.abs(motion.joint_pos[0] - motion.joint_pos[-1]).max()
    return bool(np.linalg.norm(place[0] - place[1]) <= _CLOSES[0] and angle <= _CLOSES[1] and joints <= _CLOSES[2])
