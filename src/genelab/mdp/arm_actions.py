"""Actions of an arm: its hand moves as told, its fingers open and close.

Both start from where the joints are, not from where they were sent: pressing against something stores nothing up, and
what an action does can be seen from the state alone.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import mujoco
import torch
from torch import Tensor

from genelab import math as gm
from genelab.errors import ConfigError
from genelab.managers import ActionTerm, ActionTermCfg
from genelab.mdp.actions import check_actuators
from genelab.scene import Articulation
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv


@dataclass(kw_only=True)
class DifferentialIkActionCfg(ActionTermCfg):
    """Displaces a point of the hand; three columns, x, y and z of the world, within ±1.

    The hand keeps the orientation it had at the reset. The joints take one step of damped least squares towards that.
    """

    joint_names: tuple[str, ...]
    """Regular expressions of the arm's joints."""
    body: str
    """Name of the hand's body."""
    point: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """The point that moves as told, in the hand, m."""
    scale: float = 0.05
    """Displacement per control step that an action of 1 asks for, m. Servos that lag behind give less."""
    damping: float = 0.05
    """Damping λ of the least squares: how much of a large joint step is given up near a singular pose."""
    max_joint_step: float = 0.2
    """Longest step of any joint, rad or m; a longer one is shortened in all joints alike."""
    compensate_gravity: bool = True
    """Carry the arm's own weight, as the controllers of real arms do. Without it the arm sinks in every step by what
    its servos yield."""

    def build(self, name: str, env: ManagerBasedEnv) -> ActionTerm:
        return DifferentialIkAction(name, self, env)


@dataclass(kw_only=True)
class GripperActionCfg(ActionTermCfg):
    """Opens (+1) and closes (−1) fingers: one column, the same target for all of them.

    The target is ahead of where the fingers are by what they may move in a control step, so fingers on an object press
    with their stiffness times that, and with zero action not at all.
    """

    joint_names: tuple[str, ...]
    """Regular expressions of the fingers' joints, which must open towards larger positions."""
    speed: float = 0.1
    """Speed of each finger at full action, m/s or rad/s."""

    def build(self, name: str, env: ManagerBasedEnv) -> ActionTerm:
        return GripperAction(name, self, env)


class ArmAction(ActionTerm):
    """Acts on the position targets of some joints."""

    units: ClassVar[tuple[str, ...]]
    """Fields of the config that say how much an action of 1 is."""

    def __init__(self, name: str, cfg: ActionTermCfg, env: ManagerBasedEnv, joint_names: tuple[str, ...]) -> None:
        super().__init__(name, cfg, env)
        self.robot = env.scene.articulation(cfg.entity)
        ids = self.robot.find_joints(joint_names)
        self.joint_names = [self.robot.joint_names[i] for i in ids]
        self.joint_ids = torch.tensor(ids, device=env.device)
        check_actuators(self.robot, set(ids), "position", f"env.actions.{name}")
        self._lowest, self._highest = self.robot.joint_pos_limits[0, self.joint_ids].unbind(dim=1)

    def settings(self) -> dict[str, Any]:
        """What of the config is its own, for those who rebuild the action on a robot."""
        common = {field.name for field in dataclasses.fields(ActionTermCfg)} | {"joint_names"}
        return {name: value for name, value in vars(self.cfg).items() if name not in common}


class DifferentialIkAction(ArmAction):
    """One step of damped least squares per control step."""

    dim = 3
    units = ("scale",)
    cfg: DifferentialIkActionCfg

    def __init__(self, name: str, cfg: DifferentialIkActionCfg, env: ManagerBasedEnv) -> None:
        super().__init__(name, cfg, env, cfg.joint_names)
        found = self.robot.find_bodies(cfg.body)
        if len(found) != 1:
            raise ConfigError(f"env.actions.{name}.body: {cfg.body!r} is {len(found)} bodies, expected one")
        self.engine = env.scene.engine
        self._body = int(self.robot.body_ids[found[0]])
        self._dofs = self.robot.dof_ids[self.joint_ids]
        self._point = torch.tensor(cfg.point, device=env.device, dtype=env.dtype)
        self._damping = cfg.damping**2 * torch.eye(6, device=env.device, dtype=env.dtype)
        self._weight = Weight(self.robot, self.joint_ids) if cfg.compensate_gravity else None
        self.orientation = self.engine.body_quat[:, self._body].clone()
        """What the hand is held at, `(N, 4)`."""

    def reset(self, env_ids: EnvIds) -> None:
        super().reset(env_ids)
        rows = slice(None) if env_ids is None else env_ids
        self.orientation[rows] = self.engine.body_quat[rows, self._body]

    def apply(self, action: Tensor) -> None:
        move = self.cfg.scale * action.clamp(-1.0, 1.0)
        joints = self.robot.joint_pos[:, self.joint_ids] + self._joint_step(move)
        target = joints.clamp(self._lowest, self._highest)
        if self._weight is not None:
            target = target + self._weight.yielding()
        self.robot.joint_pos_target[:, self.joint_ids] = target

    def _joint_step(self, move: Tensor) -> Tensor:
        """Joint displacements that move the hand so and turn it back, `(N, joints)`."""
        quat = self.engine.body_quat[:, self._body]
        point = self.engine.body_pos[:, self._body] + gm.quat_rotate(quat, self._point)
        jacobian = torch.cat(self.engine.jacobian(self._body, point), dim=1)[:, :, self._dofs]  # (N, 6, joints)
        wanted = torch.cat((move, _turn(quat, self.orientation)), dim=1)
        transposed = jacobian.transpose(1, 2)
        step = (transposed @ torch.linalg.solve(jacobian @ transposed + self._damping, wanted[..., None]))[..., 0]
        longest = step.abs().amax(dim=1, keepdim=True)
        return step * (self.cfg.max_joint_step / longest.clamp(min=self.cfg.max_joint_step))

    def describe(self) -> tuple[str, str]:
        return ", ".join(self.joint_names), f"{self.cfg.scale:g}"


class GripperAction(ArmAction):
    """Fingers that move together."""

    dim = 1
    units = ("speed",)
    cfg: GripperActionCfg

    def __init__(self, name: str, cfg: GripperActionCfg, env: ManagerBasedEnv) -> None:
        super().__init__(name, cfg, env, cfg.joint_names)
        self._step = cfg.speed * env.step_dt

    def apply(self, action: Tensor) -> None:
        opening = self.robot.joint_pos[:, self.joint_ids].mean(dim=1, keepdim=True)
        target = opening + self._step * action.clamp(-1.0, 1.0)
        self.robot.joint_pos_target[:, self.joint_ids] = target.clamp(self._lowest, self._highest)

    def describe(self) -> tuple[str, str]:
        return ", ".join(self.joint_names), f"{self._step:g}"


class Weight:
    """What the weight of all that hangs on joints does to their servos; masses as the model was written."""

    def __init__(self, robot: Articulation, joint_ids: Tensor) -> None:
        engine, model = robot.engine, robot.engine.model
        self.engine = engine
        names = [f"{robot.name}/{robot.joint_names[i]}" for i in joint_ids.tolist()]
        joints = [int(model.joint(name).id) for name in names]

        def constant(values: object) -> Tensor:
            return torch.as_tensor(values, device=engine.device).to(engine.dtype)

        self._bodies = torch.tensor([int(model.jnt_bodyid[j]) for j in joints], device=engine.device)
        self._axis, self._anchor = constant(model.jnt_axis[joints]), constant(model.jnt_pos[joints])
        self._slides = torch.tensor(
            [int(model.jnt_type[j]) == int(mujoco.mjtJoint.mjJNT_SLIDE) for j in joints], device=engine.device
        )
        self._carried = constant([[_mass_below(model, body, b) for b in range(model.nbody)] for body in self._bodies])
        self._gravity = constant(model.opt.gravity)
        self._stiffness = torch.zeros(len(joints), device=engine.device, dtype=engine.dtype)
        for actuator in robot.actuators.values():
            for joint, stiffness in zip(actuator.joint_ids, actuator.default_gains()[0], strict=True):
                self._stiffness[joint_ids == joint] = stiffness

    def load(self) -> Tensor:
        """Force or torque that holds the weight, `(N, joints)`."""
        quat = self.engine.body_quat[:, self._bodies]
        axis = gm.quat_rotate(quat, self._axis)
        anchor = self.engine.body_pos[:, self._bodies] + gm.quat_rotate(quat, self._anchor)
        mass = self._carried.sum(dim=1, keepdim=True)
        moment = self._carried @ self.engine.body_com_pos - mass * anchor  # Σ m·(c − anchor), (N, joints, 3)
        turned = torch.linalg.cross(moment, self._gravity.expand_as(moment))
        pulled = torch.where(self._slides[:, None], mass * self._gravity, turned)
        return -(axis * pulled).sum(dim=2)

    def yielding(self) -> Tensor:
        """How far ahead the servos' targets must be to hold the weight, `(N, joints)`."""
        return self.load() / self._stiffness


def _mass_below(model: mujoco.MjModel, root: int, body: int) -> float:
    """The mass of a body if it hangs on the root, else zero."""
    above = body
    while above > root:
        above = int(model.body_parentid[above])
    return float(model.body_mass[body]) if above == root else 0.0


def _turn(start: Tensor, end: Tensor) -> Tensor:
    """The shortest rotation from one orientation to another, as axis times angle in the world, `(N, 3)`."""
    inverse = torch.cat((start[:, :1], -start[:, 1:]), dim=1)
    between = gm.quat_mul(end, inverse)
    sine = between[:, 1:].norm(dim=1, keepdim=True)
    angle = 2.0 * torch.atan2(sine, between[:, :1].abs())
    return between[:, 1:] * torch.where(between[:, :1] < 0, -1.0, 1.0) * angle / sine.clamp(min=1e-9)
