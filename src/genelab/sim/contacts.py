"""Contact forces that engines are asked for, and the MJCF sensors that MuJoCo answers from."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

_MAX_FORCE, _NET_FORCE = 2, 3
"""MJCF's reductions of all contacts that match: to the strongest ones, and to one net force."""
SLOTS_WITHIN = 16
"""How many contacts within a body are summed, the strongest first."""
WIDTH_WITHIN = 10
"""Numbers of each: how many there are, force in the contact frame, normal, tangent."""


@dataclass(frozen=True, kw_only=True)
class ContactQuery:
    """A contact force to report: that on `body`, from `other` or from anything."""

    sensor: str
    """Name of the contact sensor in the MJCF."""
    body: str
    other: str | None = None
    """Only contacts with this body count; None: with anything."""
    subtree: bool = False
    """`body` and `other` stand for themselves and everything attached below them; `world` is the ground alone."""

    @property
    def within(self) -> bool:
        """Whether it asks for contacts of a body with itself, of which both sides are felt, so that nothing is left."""
        return self.other == self.body


def add_contact_sensor(world: mujoco.MjSpec, query: ContactQuery) -> None:
    """Write a query into the MJCF."""
    kind = mujoco.mjtObj.mjOBJ_XBODY if query.subtree else mujoco.mjtObj.mjOBJ_BODY
    sensor = world.add_sensor(name=query.sensor, type=mujoco.mjtSensor.mjSENS_CONTACT, objtype=kind, objname=query.body)
    if query.other is not None:  # the world's subtree would be everything, not the ground
        sensor.reftype = mujoco.mjtObj.mjOBJ_BODY if query.other == "world" else kind
        sensor.refname = query.other
    data = mujoco.mjtConDataField
    fields = [data.mjCONDATA_FOUND, data.mjCONDATA_FORCE]
    if query.within:
        fields += [data.mjCONDATA_NORMAL, data.mjCONDATA_TANGENT]
    reduction, slots = (_MAX_FORCE, SLOTS_WITHIN) if query.within else (_NET_FORCE, 1)
    sensor.intprm[:3] = [sum(1 << int(field) for field in fields), reduction, slots]


def may_collide(model: mujoco.MjModel, geoms: np.ndarray) -> np.ndarray:
    """MuJoCo's rule for which of the geoms collide, `(len(geoms), len(geoms))`."""
    contype, conaffinity = model.geom_contype[geoms], model.geom_conaffinity[geoms]
    allowed = ((contype[:, None] & conaffinity) | (contype & conaffinity[:, None])) != 0
    body = model.geom_bodyid[geoms]
    weld = model.body_weldid[body]
    allowed &= weld[:, None] != weld
    if not model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_FILTERPARENT:
        parent = model.body_weldid[model.body_parentid[weld]]
        child_of = (weld[:, None] == parent) & (weld[:, None] != 0) & (weld != 0)
        allowed &= ~(child_of | child_of.T)
    for signature in model.exclude_signature:
        first, second = body == signature >> 16, body == signature & 0xFFFF
        allowed &= ~((first[:, None] & second) | (second[:, None] & first))
    return allowed
