"""Actions of an arm: its hand moves as told, its fingers open and close.

Both start from where the joints are, not from where they were sent: pressing against something stores nothing up, and
what an action does can be seen from the state alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import mujoco
import torch
from torch import Tensor

from genelab import math as gm
from genelab.errors import ConfigError
from genelab.managers import XYZ, ActionTerm, ActionTermCfg, Meaning
from genelab.mdp.actions import check_actuators
from genelab.scene import POLAR, SAME, Articulation
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv


IK_FORMULA = (
    "d = scale * action clipped to [-1, 1]; r = the rotation vector 2 sin(angle / 2) axis that turns the hand back to "
    "the orientation it had at the start of the episode; J = the 6 x n Jacobian of the point and the hand's rotation, "
    "world frame; step = J^T (J J^T + damping^2 I)^-1 [d, r]; if its largest entry is above max_joint_step, all of it "
    "is shortened to that; target = (joint positions + step) clipped to joint_pos_limits; with compensate_gravity, "
    "target += (torque that holds the weight of what hangs on the joint) / stiffness"
)
GRIPPER_FORMULA = (
    "target of every finger = (mean position of the fingers + speed * step_dt * action clipped to [-1, 1]) clipped to "
    "joint_pos_limits; -1 closes, 1 opens"
)
"""For who runs an exported policy."""


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

    target = "position"
    formula: ClassVar[str]
    """How targets follow from its columns, in words."""

    def __init__(self, name: str, cfg: ActionTermCfg, env: ManagerBasedEnv, joint_names: tuple[str, ...]) -> None:
        super().__init__(name, cfg, env)
        self.robot = env.scene.articulation(cfg.entity)
        ids = self.robot.find_joints(joint_names)
        self.joint_names = [self.robot.joint_names[i] for i in ids]
        self.joint_ids = torch.tensor(ids, device=env.device)
        check_actuators(self.robot, set(ids), "position", f"env.actions.{name}")
        self._lowest, self._highest = self.robot.joint_pos_limits[0, self.joint_ids].unbind(dim=1)

    def metadata(self) -> dict[str, Any]:
        limits = [gm.decimals(pair) for pair in self.robot.joint_pos_limits[0, self.joint_ids]]
        return {"formula": self.formula, **super().metadata(), "joint_pos_limits": limits}


class DifferentialIkAction(ArmAction):
    """One step of damped least squares per control step."""

    dim = 3
    formula = IK_FORMULA
    cfg: DifferentialIkActionCfg

    def __init__(self, name: str, cfg: DifferentialIkActionCfg, env: ManagerBasedEnv) -> None:
        super().__init__(name, cfg, env, cfg.joint_names)
        found = self.robot.find_bodies(cfg.body)
        if len(found) != 1:
            raise ConfigError(f"env.actions.{name}.body: {cfg.body!r} is {len(found)} bodies, expected one")
        self.engine = env.scene.engine
        self._body = int(self.robot.body_ids[found[0]])
        self.chain = Chain(self.robot, self.joint_ids, self._body, cfg.point, f"env.actions.{name}")
        self._damping = cfg.damping**2 * torch.eye(6, device=env.device, dtype=env.dtype)
        self.orientation = self.engine.body_quat[:, self._body].clone()
        """What the hand is held at, `(N, 4)`."""

    def reset(self, env_ids: EnvIds) -> None:
        super().reset(env_ids)
        rows = slice(None) if env_ids is None else env_ids
        self.orientation[rows] = self.engine.body_quat[rows, self._body]

    def apply(self, action: Tensor) -> None:
        self.chain.update()
        move = self.cfg.scale * action.clamp(-1.0, 1.0)
        joints = self.robot.joint_pos[:, self.joint_ids] + self._joint_step(move)
        target = joints.clamp(self._lowest, self._highest)
        if self.cfg.compensate_gravity:
            target = target + self.chain.yielding()
        self.robot.joint_pos_target[:, self.joint_ids] = target

    def _joint_step(self, move: Tensor) -> Tensor:
        """Joint displacements that move the hand so and turn it back, `(N, joints)`."""
        turn = _turn(self.engine.body_quat[:, self._body], self.orientation)
        wanted = torch.cat((move, turn), dim=1)[..., None]
        transposed = self.chain.jacobian()
        step = transposed @ torch.linalg.solve(transposed.mT @ transposed + self._damping, wanted)
        longest = torch.linalg.vector_norm(step, torch.inf, dim=1, keepdim=True)
        return (step * (self.cfg.max_joint_step / longest.clamp(min=self.cfg.max_joint_step)))[..., 0]

    def meaning(self) -> Meaning:
        return Meaning(unit="1", frame="world", columns=XYZ, mirror=POLAR)

    def describe(self) -> tuple[str, str]:
        return ", ".join(self.joint_names), f"{self.cfg.scale:g}"


class GripperAction(ArmAction):
    """Fingers that move together."""

    dim = 1
    formula = GRIPPER_FORMULA
    cfg: GripperActionCfg

    def __init__(self, name: str, cfg: GripperActionCfg, env: ManagerBasedEnv) -> None:
        super().__init__(name, cfg, env, cfg.joint_names)
        self._step = cfg.speed * env.step_dt

    def apply(self, action: Tensor) -> None:
        opening = self.robot.joint_pos[:, self.joint_ids].mean(dim=1, keepdim=True)
        target = opening + self._step * action.clamp(-1.0, 1.0)
        self.robot.joint_pos_target[:, self.joint_ids] = target.clamp(self._lowest, self._highest)

    def meaning(self) -> Meaning:
        return Meaning(unit="1", columns=("opening",), mirror=SAME)

    def describe(self) -> tuple[str, str]:
        return ", ".join(self.joint_names), f"{self._step:g}"


class Chain:
    """Joints between the world and a hand: how they move a point of it, and what they carry.

    Both follow from where the joints' axes are. The engine has Jacobians, too, but from its state anew and for all
    joints of the world; here one reading of the bodies' poses serves for the point, the Jacobian and the weight.
    """

    def __init__(
        self, robot: Articulation, joint_ids: Tensor, body: int, point: tuple[float, float, float], where: str
    ) -> None:
        engine, model = robot.engine, robot.engine.model
        self.engine = engine
        joints = [int(model.joint(f"{robot.name}/{robot.joint_names[i]}").id) for i in joint_ids.tolist()]
        owners = [int(model.jnt_bodyid[j]) for j in joints]
        for owner in owners:
            if (count := int(model.body_jntnum[owner])) > 1:  # only the last turns with the body, the others lag behind
                raise ConfigError(f"{where}: {model.body(owner).name} has {count} joints, expected one for each body")

        def constant(values: Any) -> Tensor:
            return torch.tensor(values, device=engine.device, dtype=engine.dtype)

        slides = [model.jnt_type[j] == mujoco.mjtJoint.mjJNT_SLIDE for j in joints]
        moves = [_hangs_on(model, owner, body) for owner in owners]
        self._turns = constant([[float(m and not s)] for m, s in zip(moves, slides, strict=True)])
        self._shifts = constant([[float(m and s)] for m, s in zip(moves, slides, strict=True)])
        self._bodies = torch.tensor([*owners, body], device=engine.device)
        self._vectors = constant([*model.jnt_axis[joints].tolist(), list(point)])
        self._offsets = constant(model.jnt_pos[joints].tolist()) if model.jnt_pos[joints].any() else None
        self._slides = torch.tensor(slides, device=engine.device)[:, None] if any(slides) else None
        masses, stiffness = model.body_mass.tolist(), _stiffness(robot)
        carried = [[masses[b] * _hangs_on(model, owner, b) for b in range(model.nbody)] for owner in owners]
        self._carried = constant(carried) / constant([stiffness[i] for i in joint_ids.tolist()])[:, None]
        self._mass = self._carried.sum(dim=1, keepdim=True)
        self._up = constant((-model.opt.gravity).tolist())

    def update(self) -> None:
        """Look where axes, anchors and the point are now, in the world."""
        quat, pos = self.engine.body_quat[:, self._bodies], self.engine.body_pos[:, self._bodies]
        turned = gm.quat_rotate(quat, self._vectors)
        self._axis, self._anchor = turned[:, :-1], pos[:, :-1]
        if self._offsets is not None:
            self._anchor = self._anchor + gm.quat_rotate(quat[:, :-1], self._offsets)
        self._point = pos[:, -1:] + turned[:, -1:]

    def jacobian(self) -> Tensor:
        """How the point moves and the hand turns with each joint, `(N, joints, 6)`: a Jacobian, transposed."""
        moved = torch.linalg.cross(self._axis, self._point - self._anchor) * self._turns
        if self._slides is not None:
            moved = moved + self._axis * self._shifts
        return torch.cat((moved, self._axis * self._turns), dim=2)

    def yielding(self) -> Tensor:
        """How far ahead the servos' targets must be to hold the weight, `(N, joints)`; masses as the model has them."""
        moment = (
            self._carried @ self.engine.body_com_pos - self._mass * self._anchor
        )  # Σ m·(c − anchor), (N, joints, 3)
        hold = torch.linalg.cross(moment, self._up.expand_as(moment))
        if self._slides is not None:
            hold = torch.where(self._slides, self._mass * self._up, hold)
        return (self._axis * hold).sum(dim=2)


def _stiffness(robot: Articulation) -> dict[int, float]:
    """Stiffness of the joints' servos as configured."""
    gains: dict[int, float] = {}
    for actuator in robot.actuators.values():
        gains |= dict(zip(actuator.joint_ids, actuator.default_gains()[0].tolist(), strict=True))
    return gains


def _hangs_on(model: mujoco.MjModel, root: int, body: int) -> bool:
    """Whether a body moves with the root."""
    while body > root:
        body = int(model.body_parentid[body])
    return body == root


def _turn(start: Tensor, end: Tensor) -> Tensor:
    """The short rotation from one orientation to another, its axis times 2·sin(θ/2), in the world, `(N, 3)`."""
    vector = start[:, :1] * end[:, 1:] - end[:, :1] * start[:, 1:] + torch.linalg.cross(start[:, 1:], end[:, 1:])
    return 2.0 * (start * end).sum(dim=1, keepdim=True).sign() * vector
