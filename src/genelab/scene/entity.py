"""Things in the world: robots and objects.

An entity is described once by MJCF; the scene puts its bodies, joints and geoms into the world's MJCF under the prefix
`<name>/`. Here it reads and writes its part of the engine's state. What derives from the state is computed on first
use and kept until the state changes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from genelab import math as gm
from genelab.errors import ConfigError
from genelab.scene.actuators import ON_JOINT, Actuator, ActuatorCfg, XmlActuatorCfg, actuated_joints
from genelab.scene.incoming import Incoming, parse
from genelab.scene.mirror import Sides
from genelab.scene.names import match_names
from genelab.scene.reading import Reader, reading
from genelab.sim import Engine, EnvIds, ModelError
from genelab.state import keep_attributes, load_attributes

_OF_DRIVEN_JOINTS = ("dof_armature", "dof_frictionloss", "jnt_actfrclimited", "jnt_actfrcrange")
"""What an actuator's config may change of the model."""
_ORIGIN = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
_SCALAR_JOINTS = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)


@dataclass(kw_only=True)
class InitialStateCfg:
    """Where an entity is after a reset, before events change it."""

    keyframe: str | None = None
    """A keyframe of the model's file: its positions of the free root and of the joints, unless they are given here."""
    pos: tuple[float, float, float] | None = None
    """Position of a free root, relative to the environment's origin, m; None: the keyframe's, else where the model has
    it. A fixed root is moved by it from where the model has it."""
    rot: tuple[float, float, float, float] | None = None
    """Orientation of the root, w x y z; None: likewise."""
    lin_vel: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Velocity of a free root, world frame, m/s."""
    ang_vel: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Angular velocity of a free root, world frame, rad/s."""
    joint_pos: dict[str, float] = field(default_factory=dict)
    """Joint positions by regular expression; joints not named are where the keyframe, else the model, has
    them."""
    joint_vel: dict[str, float] = field(default_factory=dict)
    """Joint velocities by regular expression; zero where not named."""


@dataclass(kw_only=True)
class EntityCfg:
    """Something made of bodies."""

    spec: Callable[..., mujoco.MjSpec]
    """Makes the MJCF: a function that returns a `mujoco.MjSpec`."""
    spec_args: dict[str, Any] = field(default_factory=dict)
    """Arguments for `spec`."""
    init_state: InitialStateCfg = field(default_factory=InitialStateCfg)
    """State after a reset."""
    sides: Sides = (("left_", "right_"), ("FL_", "FR_"), ("RL_", "RR_"))
    """How names of joints and bodies begin or end on the left and on the right; a mirror exchanges them."""


@dataclass(kw_only=True)
class RigidObjectCfg(EntityCfg):
    """A single body without joints of its own, free or fixed."""


@dataclass(kw_only=True)
class ArticulationCfg(EntityCfg):
    """Bodies connected by driven joints."""

    actuators: dict[str, ActuatorCfg] = field(default_factory=dict)
    """What drives the joints. Actuators in the model's file on the same joints are replaced, unless `XmlActuatorCfg`
    takes them over."""
    soft_joint_pos_limit_factor: float = 1.0
    """Share of the joint range, about its middle, that the soft limits span."""


def _name_all(parts: Sequence[Any], what: str) -> None:
    """Name what the model leaves unnamed, a free joint more often than not: in the world its parts go by name."""
    taken = {part.name for part in parts}
    unused = (name for i in itertools.count(1) if (name := f"{what}{i}") not in taken)
    for part in parts:
        if not part.name:
            part.name = next(unused)


class Entity(Reader):
    """An entity of the scene, in all environments."""

    def __init__(self, name: str, cfg: EntityCfg) -> None:
        self.name = name
        self.cfg = cfg
        self.spec = parse(lambda: cfg.spec(**cfg.spec_args), f"the model of {name!r}")
        if not isinstance(self.spec, mujoco.MjSpec):
            raise ModelError(f"the model of {name!r} is a {type(self.spec).__name__}, not a mujoco.MjSpec")
        _name_all(self.spec.bodies, "body")
        _name_all(self.spec.joints, "joint")
        self._incoming: Incoming | None = Incoming(name, self.spec)
        self._start = self._incoming.positions(cfg.init_state.keyframe)
        """Positions of the model's joints by name, from the keyframe or as it is compiled."""

    # -- building

    def attach_to(self, world: mujoco.MjSpec) -> None:
        """Put this entity's model into the world's, at its initial pose if it is fixed there."""
        frame = world.worldbody.add_frame()
        self._is_moved = not self._has_free_root()
        if self._is_moved:
            state = self.cfg.init_state
            frame.pos, frame.quat = list(state.pos or (0.0, 0.0, 0.0)), list(state.rot or (1.0, 0.0, 0.0, 0.0))
        assert self._incoming is not None
        self._incoming.attach_to(world, frame)

    def _has_free_root(self) -> bool:
        roots = self.spec.worldbody.bodies
        if not roots:
            raise ModelError(f"the model of {self.name!r} has no body")
        return any(joint.type == mujoco.mjtJoint.mjJNT_FREE for joint in roots[0].joints)

    def initialize(self, engine: Engine, env_origins: Tensor) -> None:
        """Find this entity's part of the compiled model."""
        assert self._incoming is not None
        self._incoming.compare(engine.model, self._changes, self._is_moved)
        self._incoming = None
        self.engine = engine
        self.env_origins = env_origins
        model, prefix = engine.model, f"{self.name}/"
        bodies = [i for i in range(model.nbody) if model.body(i).name.startswith(prefix)]
        joints = [i for i in range(model.njnt) if model.joint(i).name.startswith(prefix)]
        kinds = {i: mujoco.mjtJoint(int(model.jnt_type[i])) for i in joints}
        scalar = [i for i in joints if kinds[i] in _SCALAR_JOINTS]
        free = [i for i in joints if kinds[i] == mujoco.mjtJoint.mjJNT_FREE]
        self.body_names = [model.body(i).name.removeprefix(prefix) for i in bodies]
        self.joint_names = [model.joint(i).name.removeprefix(prefix) for i in scalar]
        self.joint_is_hinge = [kinds[i] == mujoco.mjtJoint.mjJNT_HINGE for i in scalar]
        self.body_ids = self._index(bodies)
        self._bodies = slice(bodies[0], bodies[-1] + 1)  # what was attached as one tree is compiled in one piece
        self.root_body = slice(bodies[0], bodies[0] + 1)
        """The column of the root in the engine's bodies."""
        self.body_mass = self._row(model.body_mass[bodies].tolist())[0]
        """Masses of the bodies as the model was written, `(B,)`, kg."""
        self.root_id = bodies[0]
        self.is_fixed_base = not free
        q_ids, v_ids = ([int(adr[i]) for i in scalar] for adr in (model.jnt_qposadr, model.jnt_dofadr))
        self._joint_q, self._joint_v = gm.columns(q_ids, engine.device), gm.columns(v_ids, engine.device)
        self._q_ids, self.dof_ids = self._index(q_ids), self._index(v_ids)
        """The joints' degrees of freedom in the model, `(J,)`: columns of a Jacobian."""
        if free:
            q, v = int(model.jnt_qposadr[free[0]]), int(model.jnt_dofadr[free[0]])
            self._root_q, self._root_v = slice(q, q + 7), slice(v, v + 6)
            q_ids, v_ids = [*range(q, q + 7), *q_ids], [*range(v, v + 6), *v_ids]
        self._all_q, self._all_v = gm.columns(q_ids, engine.device), gm.columns(v_ids, engine.device)
        self._down = self._row([0.0, 0.0, -1.0])
        self._set_defaults(model, scalar)

    def _changes(self, field: str, part: str) -> bool:
        """Whether this entity's config changes an array of its model for the part of this name."""
        return False

    def _set_defaults(self, model: mujoco.MjModel, joints: list[int]) -> None:
        state = self.cfg.init_state
        free = next((qpos for qpos in self._start.values() if len(qpos) == 7), _ORIGIN)
        rot = state.rot or free[3:]
        length = math.hypot(*rot)  # as in MJCF, a quaternion need not be a unit one
        self.default_root_pose = self._row([*(state.pos or free[:3]), *(part / length for part in rot)])
        self.default_root_vel = self._row([*state.lin_vel, *state.ang_vel])
        pos = [self._start[name][0] for name in self.joint_names]
        vel = [0.0] * len(joints)
        for target, values in ((pos, state.joint_pos), (vel, state.joint_vel)):
            for pattern, value in values.items():
                for i in match_names(pattern, self.joint_names, f"{self.name} joint"):
                    target[i] = value
        self.default_joint_pos, self.default_joint_vel = self._row(pos), self._row(vel)
        spin = gm.quat_rotate_inverse(self.default_root_pose[:, 3:], self.default_root_vel[:, 3:])
        self._default_root_qvel = torch.cat((self.default_root_vel[:, :3], spin), dim=1)
        limits = [model.jnt_range[i] if model.jnt_limited[i] else (-torch.inf, torch.inf) for i in joints]
        self.joint_pos_limits = self._row([list(map(float, pair)) for pair in limits] or [[]])

    def _index(self, ids: list[int]) -> Tensor:
        return torch.tensor(ids, dtype=torch.int64, device=self.engine.device)

    def _row(self, values: list[Any]) -> Tensor:
        """A constant with a leading dimension that broadcasts over environments."""
        return torch.tensor(values, device=self.engine.device, dtype=self.engine.dtype)[None]

    # -- finding parts

    def find_joints(self, patterns: str | tuple[str, ...]) -> list[int]:
        """Indices into this entity's joints."""
        return match_names(patterns, self.joint_names, f"{self.name} joint")

    def find_bodies(self, patterns: str | tuple[str, ...]) -> list[int]:
        """Indices into this entity's bodies."""
        return match_names(patterns, self.body_names, f"{self.name} body")

    def place_in(self, qpos: np.ndarray, pose: np.ndarray, joint_pos: np.ndarray) -> None:
        """Write the pose of a free root, `(7,)`, and joint positions, `(J,)`, into positions of the whole model."""
        self._need_free_root("pose")
        qpos[self._root_q] = pose
        qpos[self._q_ids.cpu().numpy()] = joint_pos

    # -- state

    @reading
    def joint_pos(self) -> Tensor:
        """Joint positions, `(N, J)`, rad or m."""
        return gm.take(self.engine.qpos, self._joint_q)

    @reading
    def joint_vel(self) -> Tensor:
        """Joint velocities, `(N, J)`, rad/s or m/s."""
        return gm.take(self.engine.qvel, self._joint_v)

    @reading
    def joint_pos_rel(self) -> Tensor:
        """Joint positions relative to the default pose, `(N, J)`."""
        return self.joint_pos - self.default_joint_pos

    @reading
    def joint_vel_rel(self) -> Tensor:
        """Joint velocities relative to the default ones, `(N, J)`."""
        return self.joint_vel - self.default_joint_vel

    @reading
    def joint_acc(self) -> Tensor:
        """Joint accelerations in the last physics step, `(N, J)`."""
        return gm.take(self.engine.qacc, self._joint_v)

    @reading
    def body_pos_w(self) -> Tensor:
        """Origins of the bodies, `(N, B, 3)`."""
        return self.engine.body_pos[:, self._bodies]

    @reading
    def body_quat_w(self) -> Tensor:
        """Orientations of the bodies, `(N, B, 4)`."""
        return self.engine.body_quat[:, self._bodies]

    @reading
    def body_lin_vel_w(self) -> Tensor:
        """Velocities of the bodies' origins, `(N, B, 3)`."""
        return self.engine.body_lin_vel[:, self._bodies]

    @reading
    def body_ang_vel_w(self) -> Tensor:
        """Angular velocities of the bodies, `(N, B, 3)`."""
        return self.engine.body_ang_vel[:, self._bodies]

    @reading
    def body_com_pos_w(self) -> Tensor:
        """Centres of mass of the bodies, `(N, B, 3)`."""
        return self.engine.body_com_pos[:, self._bodies]

    @reading
    def body_com_vel_w(self) -> Tensor:
        """Velocities of the bodies' centres of mass, `(N, B, 3)`."""
        return self.engine.velocity_at(self._bodies, self.body_com_pos_w)

    @reading
    def root_pos_w(self) -> Tensor:
        """Position of the root body, `(N, 3)`."""
        if self.is_fixed_base:
            return self.engine.body_pos[:, self.root_id]
        return self.engine.qpos[:, self._root_q][:, :3]

    @reading
    def root_quat_w(self) -> Tensor:
        """Orientation of the root body, `(N, 4)`."""
        if self.is_fixed_base:
            return self.engine.body_quat[:, self.root_id]
        return self.engine.qpos[:, self._root_q][:, 3:]

    @reading
    def root_lin_vel_w(self) -> Tensor:
        """Velocity of the root body's origin, world frame, `(N, 3)`."""
        if self.is_fixed_base:
            return self.engine.body_lin_vel[:, self.root_id]
        return self.engine.qvel[:, self._root_v][:, :3]

    @reading
    def root_ang_vel_b(self) -> Tensor:
        """Angular velocity of the root body in its own frame, `(N, 3)`."""
        if self.is_fixed_base:
            return gm.quat_rotate_inverse(self.root_quat_w, self.engine.body_ang_vel[:, self.root_id])
        return self.engine.qvel[:, self._root_v][:, 3:]

    @reading
    def _seen_from_root(self) -> Tensor:
        """The root's velocity and the unit vector down in the root's frame, `(N, 2, 3)`: turned in one go."""
        velocity = self.root_lin_vel_w
        return gm.quat_rotate_inverse(
            self.root_quat_w[:, None], torch.stack((velocity, self._down.expand_as(velocity)), dim=1)
        )

    @reading
    def root_lin_vel_b(self) -> Tensor:
        """Velocity of the root body in its own frame, `(N, 3)`."""
        return self._seen_from_root[:, 0]

    @reading
    def root_ang_vel_w(self) -> Tensor:
        """Angular velocity of the root body, world frame, `(N, 3)`."""
        return gm.quat_rotate(self.root_quat_w, self.root_ang_vel_b)

    @reading
    def projected_gravity_b(self) -> Tensor:
        """The unit vector down, in the root's frame, `(N, 3)`."""
        return self._seen_from_root[:, 1]

    @reading
    def heading_w(self) -> Tensor:
        """Yaw of the root, rad, `(N,)`."""
        return gm.yaw_of(self.root_quat_w)

    # -- changes

    def write_joint_state(
        self, pos: Tensor | None, vel: Tensor | None, env_ids: EnvIds, joint_ids: slice | Tensor = slice(None)
    ) -> None:
        """Set positions and velocities of joints, `(len(env_ids), len(joint_ids))`; None leaves them."""
        if pos is not None:
            self.engine.write_qpos(pos, self._q_ids[joint_ids], env_ids)
        if vel is not None:
            self.engine.write_qvel(vel, self.dof_ids[joint_ids], env_ids)

    def write_root_pose(self, pose: Tensor, env_ids: EnvIds) -> None:
        """Set the pose of a free root: position and quaternion in the world, `(len(env_ids), 7)`."""
        self._need_free_root("pose")
        self.engine.write_qpos(pose, self._root_q, env_ids)

    def write_root_velocity(self, velocity: Tensor, env_ids: EnvIds) -> None:
        """Set the velocity of a free root: linear and angular, world frame, `(len(env_ids), 6)`."""
        self._need_free_root("velocity")
        quat = self.engine.qpos[:, self._root_q][:, 3:]
        self._write_root_velocity(quat if env_ids is None else quat[env_ids], velocity, env_ids)

    def add_root_velocity(self, change: Tensor, env_ids: EnvIds) -> None:
        """Change the velocity of a free root: linear and angular, world frame, `(len(env_ids), 6)`."""
        self._need_free_root("velocity")
        velocity, quat = self.engine.qvel[:, self._root_v], self.engine.qpos[:, self._root_q][:, 3:]
        if env_ids is not None:
            velocity, quat = velocity[env_ids], quat[env_ids]
        spin = gm.quat_rotate_inverse(quat, change[:, 3:])
        self.engine.write_qvel(velocity + torch.cat((change[:, :3], spin), dim=1), self._root_v, env_ids)

    def write_default_root_velocity(self, quat: Tensor, env_ids: EnvIds) -> None:
        """Set the velocity of a free root to the default one, in the world, whichever way it is turned, `(n, 4)`."""
        if any(self.cfg.init_state.ang_vel):
            self._write_root_velocity(quat, self.default_root_vel.expand(len(quat), -1), env_ids)
        else:  # nothing to turn
            self.engine.write_qvel(self._default_root_qvel.expand(len(quat), -1), self._root_v, env_ids)

    def write_root_state(self, pose: Tensor, velocity: Tensor, env_ids: EnvIds) -> None:
        """Set pose and velocity of a free root."""
        self.write_root_pose(pose, env_ids)
        self._write_root_velocity(pose[:, 3:], velocity, env_ids)

    def _write_root_velocity(self, quat: Tensor, velocity: Tensor, env_ids: EnvIds) -> None:
        angular = gm.quat_rotate_inverse(quat, velocity[:, 3:])
        self.engine.write_qvel(torch.cat((velocity[:, :3], angular), dim=1), self._root_v, env_ids)

    def _need_free_root(self, what: str) -> None:
        if self.is_fixed_base:
            raise ConfigError(f"{self.name!r} is fixed to the world: its root {what} cannot be set")

    def state_dict(self) -> dict[str, Any]:
        """Nothing: positions and velocities are the engine's."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to what `state_dict` gave."""

    def reset(self, env_ids: EnvIds) -> None:
        """Write the default state."""
        count = self.engine.num_envs if env_ids is None else len(env_ids)
        pos, vel = self.default_joint_pos, self.default_joint_vel
        if not self.is_fixed_base:
            pos, vel = torch.cat((self.default_root_pose, pos), dim=1), torch.cat((self._default_root_qvel, vel), dim=1)
        if pos.shape[1] == 0:
            return
        pos = pos.expand(count, -1).clone()
        if not self.is_fixed_base:
            pos[:, :3] += self.env_origins if env_ids is None else self.env_origins[env_ids]
        self.engine.write_qpos(pos, self._all_q, env_ids)
        self.engine.write_qvel(vel.expand(count, -1), self._all_v, env_ids)


class RigidObject(Entity):
    """A thing without joints of its own."""


class Articulation(Entity):
    """A robot: an entity with driven joints."""

    cfg: ArticulationCfg
    parts = ("actuators",)
    _memory = ("joint_pos_target", "joint_vel_target", "joint_effort_target", "encoder_bias", "has_encoder_bias")

    def attach_to(self, world: mujoco.MjSpec) -> None:
        joints = {joint.name: joint for joint in self.spec.joints if joint.type in _SCALAR_JOINTS}
        names = list(joints)
        own = [part.target if int(part.trntype) in ON_JOINT else "" for part in self.spec.actuators]
        owner = actuated_joints(list(self.cfg.actuators.values()), names, own, self.name)
        self._driven_names = {names[i] for i in owner}
        replaced = {names[i] for i, cfg in owner.items() if not isinstance(cfg, XmlActuatorCfg)}
        assert self._incoming is not None
        self._incoming.leave_out([i for i, target in enumerate(own) if target in replaced])
        super().attach_to(world)
        # Into the world's MJCF, not the model's own: its `<default>` would give our actuators its ranges and gears.
        for cfg in self.cfg.actuators.values():
            mine = {names[i]: joints[names[i]] for i in owner if owner[i] is cfg}
            cfg.add_to_spec(world, mine)

    def initialize(self, engine: Engine, env_origins: Tensor) -> None:
        super().initialize(engine, env_origins)
        middle = self.joint_pos_limits.mean(dim=-1, keepdim=True)
        half = (self.joint_pos_limits[..., 1:] - self.joint_pos_limits[..., :1]) / 2
        half = half * self.cfg.soft_joint_pos_limit_factor
        soft = torch.cat((middle - half, middle + half), dim=-1)
        soft = torch.where(soft.isfinite(), soft, self.joint_pos_limits)
        self.soft_joint_pos_limits = gm.planes(soft).movedim(0, -1)  # all lower ones lie side by side, and all upper
        shape = (engine.num_envs, len(self.joint_names))
        self.joint_pos_target = self.default_joint_pos.repeat(engine.num_envs, 1)
        self.joint_vel_target = torch.zeros(shape, device=engine.device, dtype=engine.dtype)
        self.joint_effort_target = torch.zeros_like(self.joint_vel_target)
        self.encoder_bias = torch.zeros_like(self.joint_vel_target)
        """What the encoders read too much, rad; the servos hold what they read."""
        self.has_encoder_bias = False
        self.actuators: dict[str, Actuator] = {name: cfg.build(self) for name, cfg in self.cfg.actuators.items()}
        self.has_explicit_actuators = any(actuator.explicit for actuator in self.actuators.values())
        driven = [i for actuator in self.actuators.values() for i in actuator.joint_ids]
        ctrl = [i for actuator in self.actuators.values() for i in actuator.ctrl_ids.tolist()]
        self._driven, self._ctrl = gm.columns(driven, engine.device), gm.columns(ctrl, engine.device)
        gear = [ratio for actuator in self.actuators.values() for ratio in actuator.gear]
        self._gear = None if all(ratio == 1.0 for ratio in gear) else self._row(gear)
        direct = self._gear is None and sorted(driven) == list(range(shape[1]))
        by_joint = [ctrl[driven.index(i)] for i in sorted(driven)]
        self._ctrl_by_joint = gm.columns(by_joint, engine.device) if direct else None
        """The actuators in the order of the joints, if each joint has one and it has no gear."""

    def _changes(self, field: str, part: str) -> bool:
        limits = any(cfg.effort_limit for cfg in self.cfg.actuators.values() if isinstance(cfg, XmlActuatorCfg))
        if limits and field in ("actuator_forcerange", "actuator_forcelimited"):
            return True
        return part in self._driven_names and field in _OF_DRIVEN_JOINTS

    @reading
    def joint_effort(self) -> Tensor:
        """Force or torque of the actuators in the last physics step, `(N, J)`; zero where nothing drives."""
        if self._ctrl_by_joint is not None:
            return gm.take(self.engine.actuator_force, self._ctrl_by_joint)
        effort = torch.zeros_like(self.joint_vel_target)
        force = gm.take(self.engine.actuator_force, self._ctrl)
        effort[:, self._driven] = force if self._gear is None else force * self._gear
        return effort

    def write_encoder_bias(self, bias: Tensor, env_ids: EnvIds) -> None:
        """Give encoders a constant error, `(len(env_ids), J)`, rad."""
        self.encoder_bias[slice(None) if env_ids is None else env_ids] = bias
        self.has_encoder_bias = True

    def write_controls(self, env_ids: EnvIds = None) -> None:
        """Hand the actuators' outputs to the engine."""
        if self.actuators:
            controls = torch.cat([actuator.compute() for actuator in self.actuators.values()], dim=1)
            self.engine.write_ctrl(controls if env_ids is None else controls[env_ids], self._ctrl, env_ids)

    def state_dict(self) -> dict[str, Any]:
        """Targets, errors of the encoders, and what the actuators remember."""
        return keep_attributes(self, self._memory)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        load_attributes(self, state, self._memory)

    def reset(self, env_ids: EnvIds) -> None:
        super().reset(env_ids)
        self.joint_pos_target[slice(None) if env_ids is None else env_ids] = self.default_joint_pos
        gm.fill(self.joint_vel_target, env_ids)
        gm.fill(self.joint_effort_target, env_ids)
