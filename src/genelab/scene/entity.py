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
from pathlib import Path
from typing import Any

import mujoco
import torch
from torch import Tensor

from genelab import math as gm
from genelab.errors import ConfigError
from genelab.scene.actuators import Actuator, ActuatorCfg, actuated_joints
from genelab.scene.mirror import Sides
from genelab.scene.names import match_names
from genelab.scene.reading import Reader, reading
from genelab.sim import Engine, EnvIds, ModelError
from genelab.state import keep_attributes, load_attributes

_SCALAR_JOINTS = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)


def mjcf_file(path: str) -> mujoco.MjSpec:
    """A model from an MJCF file."""
    if not Path(path).is_file():
        raise ModelError(f"no MJCF file at {path!r}")
    return _parse(lambda: mujoco.MjSpec.from_file(path), path)


def mjcf_text(xml: str) -> mujoco.MjSpec:
    """A model from MJCF text."""
    return _parse(lambda: mujoco.MjSpec.from_string(xml), "the MJCF text")


def _parse(read: Callable[[], mujoco.MjSpec], where: str) -> mujoco.MjSpec:
    try:
        return read()
    except ValueError as error:
        raise ModelError(f"{where} is not a valid model: {' '.join(str(error).split())}") from error


@dataclass(kw_only=True)
class InitialStateCfg:
    """Where an entity is after a reset, before events change it."""

    pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Position of a free root, relative to the environment's origin, m; a fixed root is moved by it from where its
    MJCF has it."""
    rot: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    """Orientation of the root, w x y z."""
    lin_vel: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Velocity of a free root, world frame, m/s."""
    ang_vel: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Angular velocity of a free root, world frame, rad/s."""
    joint_pos: dict[str, float] = field(default_factory=dict)
    """Joint positions by regular expression; joints not named are at the model's initial position."""
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
    """What drives the joints. Actuators in the MJCF on the same joints are replaced."""
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
        self.spec = _parse(lambda: cfg.spec(**cfg.spec_args), f"the model of {name!r}")
        if not isinstance(self.spec, mujoco.MjSpec):
            raise ModelError(f"the model of {name!r} is a {type(self.spec).__name__}, not a mujoco.MjSpec")
        _name_all(self.spec.bodies, "body")
        _name_all(self.spec.joints, "joint")

    # -- building

    def attach_to(self, world: mujoco.MjSpec) -> None:
        """Put this entity's model into the world's, at its initial pose if it is fixed there."""
        for key in list(self.spec.keys):
            self.spec.delete(key)  # a keyframe is of the whole world, not of one thing in it
        frame = world.worldbody.add_frame()
        if not self._has_free_root():
            frame.pos, frame.quat = list(self.cfg.init_state.pos), list(self.cfg.init_state.rot)
        world.attach(self.spec, prefix=f"{self.name}/", frame=frame)

    def _has_free_root(self) -> bool:
        roots = self.spec.worldbody.bodies
        if not roots:
            raise ModelError(f"the model of {self.name!r} has no body")
        return any(joint.type == mujoco.mjtJoint.mjJNT_FREE for joint in roots[0].joints)

    def initialize(self, engine: Engine, env_origins: Tensor) -> None:
        """Find this entity's part of the compiled model."""
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
        self._down = self._row([0.0, 0.0, -1.0])
        self._set_defaults(model, scalar)

    def _set_defaults(self, model: mujoco.MjModel, joints: list[int]) -> None:
        state = self.cfg.init_state
        length = math.hypot(*state.rot)  # as in MJCF, a quaternion need not be a unit one
        self.default_root_pose = self._row([*state.pos, *(part / length for part in state.rot)])
        self.default_root_vel = self._row([*state.lin_vel, *state.ang_vel])
        pos = [float(model.qpos0[model.jnt_qposadr[i]]) for i in joints]
        vel = [0.0] * len(joints)
        for target, values in ((pos, state.joint_pos), (vel, state.joint_vel)):
            for pattern, value in values.items():
                for i in match_names(pattern, self.joint_names, f"{self.name} joint"):
                    target[i] = value
        self.default_joint_pos, self.default_joint_vel = self._row(pos), self._row(vel)
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
    def root_lin_vel_b(self) -> Tensor:
        """Velocity of the root body in its own frame, `(N, 3)`."""
        return gm.quat_rotate_inverse(self.root_quat_w, self.root_lin_vel_w)

    @reading
    def root_ang_vel_w(self) -> Tensor:
        """Angular velocity of the root body, world frame, `(N, 3)`."""
        return gm.quat_rotate(self.root_quat_w, self.root_ang_vel_b)

    @reading
    def projected_gravity_b(self) -> Tensor:
        """The unit vector down, in the root's frame, `(N, 3)`."""
        return gm.quat_rotate_inverse(self.root_quat_w, self._down)

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
        quat = quat if env_ids is None else quat[env_ids]
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
        if not self.is_fixed_base:
            pose = self.default_root_pose.repeat(count, 1)
            pose[:, :3] += self.env_origins if env_ids is None else self.env_origins[env_ids]
            self.write_root_pose(pose, env_ids)
            self.write_root_velocity(self.default_root_vel.repeat(count, 1), env_ids)
        if self.joint_names:
            pos, vel = self.default_joint_pos.repeat(count, 1), self.default_joint_vel.repeat(count, 1)
            self.write_joint_state(pos, vel, env_ids)


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
        owner = actuated_joints(list(self.cfg.actuators.values()), names, self.name)
        driven = {names[i] for i in owner}
        for actuator in list(self.spec.actuators):
            if actuator.target in driven:
                self.spec.delete(actuator)
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
        self.soft_joint_pos_limits = torch.where(soft.isfinite(), soft, self.joint_pos_limits)
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

    @reading
    def joint_effort(self) -> Tensor:
        """Force or torque of the actuators in the last physics step, `(N, J)`; zero where nothing drives."""
        effort = torch.zeros_like(self.joint_vel_target)
        effort[:, self._driven] = gm.take(self.engine.actuator_force, self._ctrl)
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
        rows = slice(None) if env_ids is None else env_ids
        self.joint_pos_target[rows] = self.default_joint_pos
        self.joint_vel_target[rows] = 0.0
        self.joint_effort_target[rows] = 0.0
