"""Models of carts with poles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco

from genelab.scene import ArticulationCfg, ImplicitPdActuatorCfg

_CART_HEIGHT = 0.12
_RAIL = 3.0


@dataclass(frozen=True)
class Pole:
    """A capsule on a hinge."""

    length: float
    radius: float
    mass: float
    limit: float
    rgba: tuple[float, float, float, float]


_SINGLE = (Pole(0.80, 0.025, 0.1, 1.2, (0.85, 0.45, 0.15, 1.0)),)
_DOUBLE = (
    Pole(0.55, 0.023, 0.1, 1.2, (0.85, 0.45, 0.15, 1.0)),
    Pole(0.45, 0.020, 0.08, 1.5, (0.95, 0.75, 0.25, 1.0)),
)


def single_pendulum() -> mujoco.MjSpec:
    """A 1 kg cart on a rail with one pole: joints `cart` and `pole`."""
    return _cart_with((0.15, 0.10, 0.05), _SINGLE, ("pole",))


def double_pendulum() -> mujoco.MjSpec:
    """A 1 kg cart on a rail with two poles in a row: joints `cart`, `pole1` and `pole2`."""
    return _cart_with((0.17, 0.11, 0.05), _DOUBLE, ("pole1", "pole2"))


def _cart_with(half_size: tuple[float, float, float], poles: Sequence[Pole], names: Sequence[str]) -> mujoco.MjSpec:
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    # Nothing touches anything: no geom's type is in another's affinity.
    collision = {"contype": 2, "conaffinity": 4}
    body = spec.worldbody.add_body(name="cart", pos=[0, 0, _CART_HEIGHT])
    body.add_geom(
        name="cart",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=list(half_size),
        mass=1.0,
        rgba=[0.2, 0.35, 0.6, 1],
        **collision,
    )
    _add_joint(body, "cart", mujoco.mjtJoint.mjJNT_SLIDE, (1, 0, 0), _RAIL, damping=0.05)
    height = 0.0
    for name, pole in zip(names, poles, strict=True):
        body = body.add_body(name=name, pos=[0, 0, height])
        body.add_geom(
            name=name,
            type=mujoco.mjtGeom.mjGEOM_CAPSULE,
            fromto=[0, 0, 0, 0, 0, pole.length],
            size=[pole.radius, 0, 0],
            mass=pole.mass,
            rgba=list(pole.rgba),
            **collision,
        )
        _add_joint(body, name, mujoco.mjtJoint.mjJNT_HINGE, (0, 1, 0), pole.limit, damping=0.002)
        height = pole.length
    return spec


def _add_joint(
    body: mujoco.MjsBody,
    name: str,
    kind: mujoco.mjtJoint,
    axis: tuple[int, int, int],
    limit: float,
    damping: float,
) -> None:
    joint = body.add_joint(name=name, type=kind, axis=list(axis), range=[-limit, limit])
    joint.limited = mujoco.mjtLimited.mjLIMITED_TRUE
    joint.damping[0] = damping


def single_pendulum_cfg() -> ArticulationCfg:
    """The single pendulum with a position servo on the cart; the pole swings freely."""
    servo = ImplicitPdActuatorCfg(joint_names=("cart",), stiffness=80.0, damping=8.0)
    return ArticulationCfg(spec=single_pendulum, actuators={"cart": servo})


def double_pendulum_cfg() -> ArticulationCfg:
    """The double pendulum with a position servo on the cart; the poles swing freely."""
    servo = ImplicitPdActuatorCfg(joint_names=("cart",), stiffness=100.0, damping=10.0)
    return ArticulationCfg(spec=double_pendulum, actuators={"cart": servo})
