"""What turns a joint's target into a force.

An implicit actuator is part of the model: the engine integrates it, stiff gains included, and a control step is one
native call. An explicit one computes its force here, from the state before each physics step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import mujoco
import torch
from torch import Tensor

from genelab import math as gm
from genelab.errors import ConfigError
from genelab.scene.names import match_names, resolve_values
from genelab.state import Stateful

if TYPE_CHECKING:
    from genelab.scene.entity import Articulation
    from genelab.sim import EnvIds

PerJoint = float | dict[str, float]
"""One number for all joints, or numbers by regular expression of joint names."""

Target = Literal["position", "velocity", "effort"]


@dataclass(kw_only=True)
class ActuatorCfg:
    """What all actuators have."""

    joint_names: tuple[str, ...]
    """Regular expressions of the joints it drives."""
    effort_limit: PerJoint | None = None
    """Largest force (N) or torque (N·m); None keeps the joint's `actuatorfrcrange`, without which it is unlimited."""
    armature: PerJoint | None = None
    """Reflected rotor inertia, kg·m²; None keeps the model's."""
    frictionloss: PerJoint | None = None
    """Dry friction in the joint, N·m; None keeps the model's."""

    accepts: ClassVar[tuple[Target, ...]] = ()
    """Which targets it follows."""

    def add_to_spec(self, spec: mujoco.MjSpec, joints: Mapping[str, mujoco.MjsJoint]) -> None:
        """Write this actuator for the joints it drives, by their names in the entity, into the MJCF."""
        names = list(joints)
        limits = self._per_joint(self.effort_limit, names, "effort_limit")
        armatures = self._per_joint(self.armature, names, "armature")
        frictions = self._per_joint(self.frictionloss, names, "frictionloss")
        for i, joint in enumerate(joints.values()):
            if armatures:
                joint.armature = armatures[i]
            if frictions:
                joint.frictionloss = frictions[i]
            actuator = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            self._set_law(actuator, i, names)
            bounds = [-limits[i], limits[i]] if limits else _own_limit(joint)
            if bounds:
                actuator.forcerange = bounds
                actuator.forcelimited = mujoco.mjtLimited.mjLIMITED_TRUE
            # The joint's own limit would cut the force after the actuator has reported it.
            joint.actfrclimited = mujoco.mjtLimited.mjLIMITED_FALSE

    def _set_law(self, actuator: mujoco.MjsActuator, i: int, names: list[str]) -> None:
        """Gains of the i-th joint."""
        raise NotImplementedError

    def _per_joint(self, values: PerJoint | None, names: list[str], what: str) -> list[float]:
        return [] if values is None else resolve_values(values, names, f"actuator {what}")

    def build(self, articulation: Articulation) -> Actuator:
        """The running actuator."""
        raise NotImplementedError


@dataclass(kw_only=True)
class ImplicitPdActuatorCfg(ActuatorCfg):
    """A position servo inside the engine: force = stiffness · (target − q) − damping · q̇."""

    stiffness: PerJoint
    """N/m or N·m/rad."""
    damping: PerJoint
    """N·s/m or N·m·s/rad."""

    accepts: ClassVar[tuple[Target, ...]] = ("position",)

    def _set_law(self, actuator: mujoco.MjsActuator, i: int, names: list[str]) -> None:
        stiffness = self._per_joint(self.stiffness, names, "stiffness")
        damping = self._per_joint(self.damping, names, "damping")
        actuator.set_to_position(kp=stiffness[i], kv=damping[i])

    def build(self, articulation: Articulation) -> Actuator:
        return ImplicitActuator(self, articulation)


@dataclass(kw_only=True)
class ImplicitVelocityActuatorCfg(ActuatorCfg):
    """A velocity servo inside the engine: force = damping · (target − q̇)."""

    damping: PerJoint
    """N·s/m or N·m·s/rad."""

    accepts: ClassVar[tuple[Target, ...]] = ("velocity",)

    def _set_law(self, actuator: mujoco.MjsActuator, i: int, names: list[str]) -> None:
        actuator.set_to_velocity(kv=self._per_joint(self.damping, names, "damping")[i])

    def build(self, articulation: Articulation) -> Actuator:
        return ImplicitActuator(self, articulation)


@dataclass(kw_only=True)
class IdealPdActuatorCfg(ActuatorCfg):
    """Force = stiffness · (q* − q) + damping · (q̇* − q̇) + feed-forward, computed before every physics step."""

    stiffness: PerJoint = 0.0
    """N/m or N·m/rad."""
    damping: PerJoint = 0.0
    """N·s/m or N·m·s/rad."""

    accepts: ClassVar[tuple[Target, ...]] = ("position", "velocity", "effort")

    def _set_law(self, actuator: mujoco.MjsActuator, i: int, names: list[str]) -> None:
        actuator.set_to_motor()

    def build(self, articulation: Articulation) -> Actuator:
        return IdealPdActuator(self, articulation)


@dataclass(kw_only=True)
class DcMotorActuatorCfg(IdealPdActuatorCfg):
    """An ideal PD whose torque follows the line from stall torque at rest to zero at the no-load speed."""

    saturation_effort: PerJoint
    """Stall torque, N·m: what the motor gives at rest, before `effort_limit` cuts it."""
    velocity_limit: PerJoint
    """No-load speed, rad/s: where the driving torque has fallen to zero."""

    def build(self, articulation: Articulation) -> Actuator:
        return DcMotorActuator(self, articulation)


class Actuator(Stateful):
    """Drives some joints of an articulation."""

    not_state = ("joint_names", "joint_ids", "columns", "ctrl_ids")
    explicit: ClassVar[bool]
    """Whether it must be computed before every physics step."""

    def __init__(self, cfg: ActuatorCfg, articulation: Articulation) -> None:
        self.cfg = cfg
        self.articulation = articulation
        self.joint_ids = match_names(cfg.joint_names, articulation.joint_names, f"{articulation.name} actuator")
        self.joint_names = [articulation.joint_names[i] for i in self.joint_ids]
        model, engine = articulation.engine.model, articulation.engine
        names = [f"{articulation.name}/{name}" for name in self.joint_names]
        self.ctrl_ids = torch.tensor([model.actuator(name).id for name in names], device=engine.device)
        self.columns = gm.columns(self.joint_ids, engine.device)

    def compute(self) -> Tensor:
        """The engine's control for these joints, `(N, n)`."""
        raise NotImplementedError

    def gains(self) -> tuple[Tensor, Tensor]:
        """Stiffness and damping as they are in force, `(N, n)` each."""
        raise NotImplementedError

    def default_gains(self) -> tuple[Tensor, Tensor]:
        """Stiffness and damping as the config has them, `(n,)` each; zero where there is none."""
        drive = self.drive()
        return self._row(drive["stiffness"]), self._row(drive["damping"])

    def drive(self) -> dict[str, list[float]]:
        """Gains and limits of each joint as configured, whatever an environment was given at its start."""
        model, ids = self.articulation.engine.model, self.ctrl_ids.tolist()
        limits = [float(model.actuator_forcerange[i][1]) if model.actuator_forcelimited[i] else math.inf for i in ids]
        return {**self._numbers("stiffness", "damping"), "effort_limit": limits}

    def _numbers(self, *keys: str) -> dict[str, list[float]]:
        """Fields of the config by joint; zeros where it has none."""
        return {key: resolve_values(getattr(self.cfg, key, 0.0), self.joint_names, key) for key in keys}

    def set_gains(self, stiffness: Tensor, damping: Tensor, env_ids: EnvIds) -> None:
        """Give environments their own gains, `(len(env_ids), n)` each."""
        raise NotImplementedError

    def _per_joint(self, values: PerJoint, what: str) -> Tensor:
        return self._row(resolve_values(values, self.joint_names, what))

    def _row(self, values: list[float]) -> Tensor:
        engine = self.articulation.engine
        return torch.tensor(values, device=engine.device, dtype=engine.dtype)


class ImplicitActuator(Actuator):
    """The engine holds the law; only the target goes in."""

    explicit = False

    def compute(self) -> Tensor:
        robot = self.articulation
        target = robot.joint_pos_target if "position" in self.cfg.accepts else robot.joint_vel_target
        return gm.take(target, self.columns)

    def gains(self) -> tuple[Tensor, Tensor]:
        engine = self.articulation.engine
        bias = engine.get_model_field("actuator_biasprm")[:, self.ctrl_ids].to(engine.dtype)
        return -bias[..., 1], -bias[..., 2]

    def set_gains(self, stiffness: Tensor, damping: Tensor, env_ids: EnvIds) -> None:
        engine = self.articulation.engine
        rows = slice(None) if env_ids is None else env_ids
        position = "position" in self.cfg.accepts
        for field, columns in (
            ("actuator_gainprm", (stiffness if position else damping,)),
            ("actuator_biasprm", (torch.zeros_like(stiffness), -stiffness, -damping)),
        ):
            values = engine.get_model_field(field)[rows][:, self.ctrl_ids]
            for i, column in enumerate(columns):
                values[..., i] = column
            engine.set_model_field(field, values, self.ctrl_ids, env_ids)


class IdealPdActuator(Actuator):
    """PD with feed-forward; the engine sees a force."""

    explicit = True
    cfg: IdealPdActuatorCfg

    def __init__(self, cfg: IdealPdActuatorCfg, articulation: Articulation) -> None:
        super().__init__(cfg, articulation)
        shape = (articulation.engine.num_envs, 1)
        self.stiffness = self._per_joint(cfg.stiffness, "stiffness").repeat(shape)
        self.damping = self._per_joint(cfg.damping, "damping").repeat(shape)

    def compute(self) -> Tensor:
        robot, joints = self.articulation, self.columns
        error = gm.take(robot.joint_pos_target, joints) - gm.take(robot.joint_pos, joints)
        error_rate = gm.take(robot.joint_vel_target, joints) - gm.take(robot.joint_vel, joints)
        return self.stiffness * error + self.damping * error_rate + gm.take(robot.joint_effort_target, joints)

    def gains(self) -> tuple[Tensor, Tensor]:
        return self.stiffness.clone(), self.damping.clone()

    def set_gains(self, stiffness: Tensor, damping: Tensor, env_ids: EnvIds) -> None:
        rows = slice(None) if env_ids is None else env_ids
        self.stiffness[rows] = stiffness
        self.damping[rows] = damping


class DcMotorActuator(IdealPdActuator):
    """An ideal PD under a torque-speed line."""

    cfg: DcMotorActuatorCfg

    def __init__(self, cfg: DcMotorActuatorCfg, articulation: Articulation) -> None:
        super().__init__(cfg, articulation)
        self.stall = self._per_joint(cfg.saturation_effort, "saturation_effort")
        self.no_load_speed = self._per_joint(cfg.velocity_limit, "velocity_limit")
        limit = cfg.effort_limit if cfg.effort_limit is not None else cfg.saturation_effort
        self.limit = self._per_joint(limit, "effort_limit")

    def drive(self) -> dict[str, list[float]]:
        drive = super().drive()
        limits = [min(pair) for pair in zip(drive["effort_limit"], gm.decimals(self.limit), strict=True)]
        return {**drive, "effort_limit": limits, **self._numbers("saturation_effort", "velocity_limit")}

    def compute(self) -> Tensor:
        speed = gm.take(self.articulation.joint_vel, self.columns) / self.no_load_speed
        highest = torch.minimum(self.stall * (1.0 - speed), self.limit)
        lowest = torch.maximum(self.stall * (-1.0 - speed), -self.limit)
        # Above the no-load speed the line crosses zero: the motor can only brake, never beyond its limit.
        highest, lowest = torch.maximum(highest, -self.limit), torch.minimum(lowest, self.limit)
        return torch.clamp(super().compute(), lowest, highest)


def _own_limit(joint: mujoco.MjsJoint) -> list[float]:
    """The limit that the model has on the joint's actuator force, if any."""
    limited = joint.actfrclimited != mujoco.mjtLimited.mjLIMITED_FALSE and any(joint.actfrcrange)
    return list(joint.actfrcrange) if limited else []


def actuated_joints(cfgs: Sequence[ActuatorCfg], joint_names: Sequence[str], entity: str) -> dict[int, ActuatorCfg]:
    """Which actuator drives which joint; one joint has at most one."""
    owner: dict[int, ActuatorCfg] = {}
    for cfg in cfgs:
        for i in match_names(cfg.joint_names, joint_names, f"{entity} actuator"):
            if i in owner:
                raise ConfigError(f"{entity}: two actuators drive the joint {joint_names[i]!r}")
            owner[i] = cfg
    return owner
