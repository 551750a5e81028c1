"""Actions on joints."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from genelab import math as gm
from genelab.errors import ConfigError
from genelab.managers import ActionTerm, ActionTermCfg, Meaning
from genelab.scene import Articulation
from genelab.scene.actuators import Actuator, PerJoint, Target
from genelab.scene.mirror import of_joints
from genelab.scene.names import resolve_values

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv


@dataclass(kw_only=True)
class JointActionCfg(ActionTermCfg):
    """Target = offset + scale · action, one column per joint in the order of the model."""

    joint_names: tuple[str, ...] = (".*",)
    """Regular expressions of the joints."""
    scale: PerJoint = 1.0
    """Factor of the action."""
    offset: PerJoint = 0.0
    """Added after the scale."""
    clip: tuple[float, float] | None = None
    """Bounds of the action before the scale."""


@dataclass(kw_only=True)
class JointPositionActionCfg(JointActionCfg):
    """Positions of joints, m or rad."""

    use_default_offset: bool = True
    """Zero action is the default pose; `offset` comes on top."""

    def build(self, name: str, env: ManagerBasedEnv) -> ActionTerm:
        return JointPositionAction(name, self, env)


@dataclass(kw_only=True)
class JointVelocityActionCfg(JointActionCfg):
    """Velocities of joints, m/s or rad/s."""

    def build(self, name: str, env: ManagerBasedEnv) -> ActionTerm:
        return JointVelocityAction(name, self, env)


@dataclass(kw_only=True)
class JointEffortActionCfg(JointActionCfg):
    """Forces or torques of joints, N or N·m."""

    def build(self, name: str, env: ManagerBasedEnv) -> ActionTerm:
        return JointEffortAction(name, self, env)


FORMULA = "target = offset + scale * clipped action"
"""For who runs an exported policy."""


class JointAction(ActionTerm):
    """One column of the action per joint."""

    not_state: ClassVar[tuple[str, ...]] = ("joint_columns",)
    target: Target
    cfg: JointActionCfg
    told_elsewhere = JointPositionActionCfg

    def __init__(self, name: str, cfg: JointActionCfg, env: ManagerBasedEnv) -> None:
        super().__init__(name, cfg, env)
        self.robot = env.scene.articulation(cfg.entity)
        ids = self.robot.find_joints(cfg.joint_names)
        self.joint_names = [self.robot.joint_names[i] for i in ids]
        self.joint_ids = torch.tensor(ids, device=env.device)
        self.joint_columns = gm.columns(ids, env.device)
        self.dim = len(ids)
        check_actuators(self.robot, set(ids), self.target, f"env.actions.{name}")
        self.scale = self._per_joint(cfg.scale, "scale")
        self.offset = self._per_joint(cfg.offset, "offset")

    def _per_joint(self, values: PerJoint, what: str) -> Tensor:
        numbers = resolve_values(values, self.joint_names, f"env.actions.{self.name}.{what}")
        return torch.tensor(numbers, device=self.env.device, dtype=self.env.dtype)

    def apply(self, action: Tensor) -> None:
        self._target()[:, self.joint_columns] = self._wanted(action)

    def _wanted(self, action: Tensor) -> Tensor:
        """The targets that an action asks for, `(N, dim)`."""
        if self.cfg.clip is not None:
            action = action.clamp(*self.cfg.clip)
        return self.offset + self.scale * action

    def _target(self) -> Tensor:
        """Where they go, `(N, J)`."""
        raise NotImplementedError

    def linear(self) -> dict[str, Any]:
        """Factor, offset and bounds of its columns."""
        columns = {"scale": self.scale, "offset": self.offset}
        by_joint = {key: dict(zip(self.joint_names, gm.decimals(one), strict=True)) for key, one in columns.items()}
        return {**by_joint, "clip": self.cfg.clip}

    def transforms(self) -> dict[str, Any]:
        return {**self.linear(), **self.settings()}

    def metadata(self) -> dict[str, Any]:
        # Who sets targets otherwise has a formula of its own to tell, or none.
        formula = {"formula": FORMULA} if type(self).apply is JointAction.apply else {}
        return {**formula, **super().metadata()}

    def meaning(self) -> Meaning:
        return Meaning(
            unit="1", columns=tuple(self.joint_names), mirror=partial(of_joints, self.robot, self.joint_ids.tolist())
        )

    def describe(self) -> tuple[str, str]:
        values = {f"{value:.4g}" for value in self.scale.tolist()}
        return ", ".join(self.joint_names), values.pop() if len(values) == 1 else "per joint"


class JointPositionAction(JointAction):
    """Position targets."""

    target = "position"
    cfg: JointPositionActionCfg

    def __init__(self, name: str, cfg: JointPositionActionCfg, env: ManagerBasedEnv) -> None:
        super().__init__(name, cfg, env)
        if cfg.use_default_offset:
            self.offset = self.offset + self.robot.default_joint_pos[0, self.joint_ids]

    def remedy(self, key: str, trained: Any) -> str | None:
        """An offset on top of the default pose cannot be told from the pose."""
        if key == "offset" and self.cfg.use_default_offset:
            return f"make env.actions.{self.name}.offset and the robot's default pose add up to that"
        return super().remedy(key, trained)

    def _wanted(self, action: Tensor) -> Tensor:
        wanted = super()._wanted(action)
        if self.robot.has_encoder_bias:
            wanted -= gm.take(self.robot.encoder_bias, self.joint_columns)
        return wanted

    def _target(self) -> Tensor:
        return self.robot.joint_pos_target


class JointVelocityAction(JointAction):
    """Velocity targets."""

    target = "velocity"

    def _target(self) -> Tensor:
        return self.robot.joint_vel_target


class JointEffortAction(JointAction):
    """Force or torque targets."""

    target = "effort"

    def _target(self) -> Tensor:
        return self.robot.joint_effort_target


def check_actuators(robot: Articulation, joints: set[int], target: Target, where: str) -> None:
    """Every joint must have an actuator that follows this kind of target."""
    for actuator_name, actuator in robot.actuators.items():
        mine = joints & set(actuator.joint_ids)
        if any(target not in actuator.follows(joint) for joint in mine):
            raise ConfigError(
                f"{where}: the actuator {actuator_name!r} ({type(actuator.cfg).__name__}) "
                f"does not follow {target} targets{_what_it_follows(robot, actuator, mine)}"
            )
        joints = joints - mine
    if joints:
        names = ", ".join(robot.joint_names[i] for i in sorted(joints))
        raise ConfigError(f"{where}: no actuator drives {names}")


def _what_it_follows(robot: Articulation, actuator: Actuator, joints: set[int]) -> str:
    """Which joints follow what, where that differs from joint to joint."""
    kinds = {robot.joint_names[i]: actuator.follows(i) for i in sorted(joints)}
    if all(kind == actuator.cfg.accepts for kind in kinds.values()):
        return ""
    return ": " + ", ".join(f"{name} follows {' or '.join(kind)}" for name, kind in kinds.items())
