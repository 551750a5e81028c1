"""What turns a joint's target into a force.

An implicit actuator is part of the model: the engine integrates it, stiff gains included, and a control step is one
native call. An explicit one computes its force here, from the state before each physics step.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
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

ON_JOINT = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
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

    def drives(self, joint_names: Sequence[str], in_file: Collection[str], entity: str) -> list[int]:
        """Which joints of an entity it drives; `in_file` are those on which the model has actuators of its own."""
        return match_names(self.joint_names, joint_names, f"{entity} actuator")

    def add_to_spec(self, spec: mujoco.MjSpec, joints: Mapping[str, mujoco.MjsJoint]) -> None:
        """Write this actuator for the joints it drives, by their names in the entity, into the MJCF."""
        names = list(joints)
        limits = self._per_joint(self.effort_limit, names, "effort_limit")
        self._set_joints(joints)
        for i, joint in enumerate(joints.values()):
            actuator = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            self._set_law(actuator, i, names)
            bounds = [-limits[i], limits[i]] if limits else _own_limit(joint)
            if bounds:
                actuator.forcerange = bounds
                actuator.forcelimited = mujoco.mjtLimited.mjLIMITED_TRUE
            # The joint's own limit would cut the force after the actuator has reported it.
            joint.actfrclimited = mujoco.mjtLimited.mjLIMITED_FALSE

    def _set_joints(self, joints: Mapping[str, mujoco.MjsJoint]) -> None:
        """Give the joints the armature and friction of this config."""
        for field in ("armature", "frictionloss"):
            values = self._per_joint(getattr(self, field), list(joints), field)
            for joint, value in zip(joints.values(), values, strict=False):
                setattr(joint, field, value)

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


@dataclass(kw_only=True)
class XmlActuatorCfg(ActuatorCfg):
    """The actuators that the model's own file has on these joints, with their gains, gears and ranges.

    A position servo follows position targets, a velocity servo (or one that integrates its input) velocity targets, and
    a motor effort targets, all in units of the joint. Any other law takes the effort target as its control, as it is.
    """

    joint_names: tuple[str, ...] = (".*",)
    """Regular expressions of the joints; of those that match, it drives the ones that have an actuator in the file."""

    accepts: ClassVar[tuple[Target, ...]] = ("position", "velocity", "effort")

    def drives(self, joint_names: Sequence[str], in_file: Collection[str], entity: str) -> list[int]:
        matched = match_names(self.joint_names, joint_names, f"{entity} actuator")
        mine = [i for i in matched if joint_names[i] in in_file]
        if not mine:
            wanted, those = ", ".join(self.joint_names), ", ".join(filter(None, in_file)) or "none"
            raise ConfigError(f"{entity} actuator: the model's file has no actuator on {wanted}; it has on: {those}")
        return mine

    def add_to_spec(self, spec: mujoco.MjSpec, joints: Mapping[str, mujoco.MjsJoint]) -> None:
        self._set_joints(joints)
        limits = self._per_joint(self.effort_limit, list(joints), "effort_limit")
        own = {actuator.target: actuator for actuator in spec.actuators}
        for joint, limit in zip(joints.values(), limits, strict=False):
            own[joint.name].forcerange = [-limit / abs(own[joint.name].gear[0]), limit / abs(own[joint.name].gear[0])]
            own[joint.name].forcelimited = mujoco.mjtLimited.mjLIMITED_TRUE

    def build(self, articulation: Articulation) -> Actuator:
        return XmlActuator(self, articulation)


class Actuator(Stateful):
    """Drives some joints of an articulation."""

    not_state = ("joint_names", "joint_ids", "columns", "ctrl_ids", "gear")
    explicit: ClassVar[bool]
    """Whether it must be computed before every physics step."""

    def __init__(self, cfg: ActuatorCfg, articulation: Articulation) -> None:
        self.cfg = cfg
        self.articulation = articulation
        engine, model = articulation.engine, articulation.engine.model
        prefix = f"{articulation.name}/"
        on = {
            model.joint(int(joint)).name.removeprefix(prefix): i
            for i, joint in enumerate(model.actuator_trnid[:, 0])
            if int(model.actuator_trntype[i]) in ON_JOINT
        }
        self.joint_ids = cfg.drives(articulation.joint_names, on, articulation.name)
        self.joint_names = [articulation.joint_names[i] for i in self.joint_ids]
        ids = [on[name] for name in self.joint_names]
        self.ctrl_ids = torch.tensor(ids, device=engine.device)
        self.gear: list[float] = model.actuator_gear[ids, 0].tolist()
        """Force or torque of each joint per force of its actuator."""
        self.columns = gm.columns(self.joint_ids, engine.device)

    def follows(self, joint: int) -> tuple[Target, ...]:
        """Which targets it follows on one of its joints."""
        return self.cfg.accepts

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
        is_velocity = torch.tensor("velocity" in self.cfg.accepts, device=self.articulation.engine.device)
        _write_gains(self, stiffness, damping, is_velocity, env_ids)


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


class XmlActuator(Actuator):
    """The engine holds the law that the model's file has; targets go in by the gear."""

    explicit = False

    def __init__(self, cfg: XmlActuatorCfg, articulation: Articulation) -> None:
        super().__init__(cfg, articulation)
        model, ids = articulation.engine.model, self.ctrl_ids.tolist()
        self.laws = [_law(model, i) for i in ids]
        """What each joint's actuator follows; None: any other law, which is given its control."""
        gain = model.actuator_gainprm[ids, 0].tolist()
        self.factor = self._row(
            [
                1.0 if law is None else 1.0 / (g * k) if law == "effort" else g
                for law, g, k in zip(self.laws, self.gear, gain, strict=True)
            ]
        )
        """Control per unit of the target, `(n,)`."""
        kinds = [law or "effort" for law in self.laws]
        self.is_velocity, self.is_effort = (
            torch.tensor([kind == name for kind in kinds], device=articulation.engine.device)
            for name in ("velocity", "effort")
        )

    def follows(self, joint: int) -> tuple[Target, ...]:
        return (self.laws[self.joint_ids.index(joint)] or "effort",)

    def compute(self) -> Tensor:
        robot = self.articulation
        target = gm.take(robot.joint_pos_target, self.columns)
        target = torch.where(self.is_velocity, gm.take(robot.joint_vel_target, self.columns), target)
        return self.factor * torch.where(self.is_effort, gm.take(robot.joint_effort_target, self.columns), target)

    def gains(self) -> tuple[Tensor, Tensor]:
        bias = self.articulation.engine.get_model_field("actuator_biasprm")[:, self.ctrl_ids]
        square, servo = self._row(self.gear) ** 2, ~self.is_effort
        return (-bias[..., 1].to(square.dtype) * square * servo, -bias[..., 2].to(square.dtype) * square * servo)

    def set_gains(self, stiffness: Tensor, damping: Tensor, env_ids: EnvIds) -> None:
        if bool(self.is_effort.any()):
            names = ", ".join(
                name for name, bare in zip(self.joint_names, self.is_effort.tolist(), strict=True) if bare
            )
            raise ConfigError(f"{self.articulation.name}: no gains to set: {names} have motors in the model's file")
        square = self._row(self.gear) ** 2
        _write_gains(self, stiffness / square, damping / square, self.is_velocity, env_ids)

    def drive(self) -> dict[str, list[float]]:
        model, ids = self.articulation.engine.model, self.ctrl_ids.tolist()
        drive: dict[str, list[float]] = {"stiffness": [], "damping": [], "effort_limit": []}
        for i, gear, law in zip(ids, self.gear, self.laws, strict=True):
            servo = law in ("position", "velocity")
            limit = float(abs(model.actuator_forcerange[i]).max()) if model.actuator_forcelimited[i] else math.inf
            if law == "effort" and model.actuator_ctrllimited[i]:
                limit = min(limit, float(abs(model.actuator_ctrlrange[i] * model.actuator_gainprm[i, 0]).max()))
            drive["stiffness"].append(float(-model.actuator_biasprm[i, 1]) * gear**2 if servo else 0.0)
            drive["damping"].append(float(-model.actuator_biasprm[i, 2]) * gear**2 if servo else 0.0)
            drive["effort_limit"].append(limit * abs(gear))
        return drive


def _law(model: mujoco.MjModel, i: int) -> Target | None:
    """Which kind of target an actuator's control is, by its law; None: of none."""
    gain, bias = float(model.actuator_gainprm[i, 0]), model.actuator_biasprm[i]
    if model.actuator_gaintype[i] != mujoco.mjtGain.mjGAIN_FIXED or gain == 0.0:
        return None
    if model.actuator_biastype[i] == mujoco.mjtBias.mjBIAS_NONE:
        return "effort"
    if model.actuator_biastype[i] != mujoco.mjtBias.mjBIAS_AFFINE or bias[0] != 0.0:
        return None
    if bias[1] == -gain:
        integrates = model.actuator_dyntype[i] == mujoco.mjtDyn.mjDYN_INTEGRATOR
        return "velocity" if integrates else "position"
    return "velocity" if bias[1] == 0.0 and bias[2] == -gain else None


def _write_gains(actuator: Actuator, stiffness: Tensor, damping: Tensor, is_velocity: Tensor, env_ids: EnvIds) -> None:
    """Write gains of servos, in units of the actuator, into the models of environments."""
    engine = actuator.articulation.engine
    rows = slice(None) if env_ids is None else env_ids
    for field, columns in (
        ("actuator_gainprm", (torch.where(is_velocity, damping, stiffness),)),
        ("actuator_biasprm", (torch.zeros_like(stiffness), -stiffness, -damping)),
    ):
        values = engine.get_model_field(field)[rows][:, actuator.ctrl_ids]
        for i, column in enumerate(columns):
            values[..., i] = column
        engine.set_model_field(field, values, actuator.ctrl_ids, env_ids)


def _own_limit(joint: mujoco.MjsJoint) -> list[float]:
    """The limit that the model has on the joint's actuator force, if any."""
    limited = joint.actfrclimited != mujoco.mjtLimited.mjLIMITED_FALSE and any(joint.actfrcrange)
    return list(joint.actfrcrange) if limited else []


def actuated_joints(
    cfgs: Sequence[ActuatorCfg], joint_names: Sequence[str], in_file: Sequence[str], entity: str
) -> dict[int, ActuatorCfg]:
    """Which actuator drives which joint; one joint has at most one. `in_file` has a joint for each of the model's."""
    owner: dict[int, ActuatorCfg] = {}
    for cfg in cfgs:
        for i in cfg.drives(joint_names, in_file, entity):
            if isinstance(cfg, XmlActuatorCfg) and in_file.count(joint_names[i]) > 1:
                raise ConfigError(f"{entity}: the model's file has two actuators on the joint {joint_names[i]!r}")
            if i in owner:
                raise ConfigError(f"{entity}: two actuators drive the joint {joint_names[i]!r}")
            owner[i] = cfg
    return owner
