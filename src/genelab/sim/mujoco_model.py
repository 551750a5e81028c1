"""The model that MuJoCo steps: the world's, without what costs time and changes no number of the physics.

- Geoms that touch nothing. Their poses are computed in every physics step, and a robot that a person recognises has
  two or three that are only drawn for each that touches anything. Where none is left, nobody looks for contacts.
- Islands: a single tree of bodies is never divided into problems to be solved apart.
- The hierarchy of bounding boxes within a body, which has to be searched: for a few geoms it is faster to look at all.
"""

from __future__ import annotations

import copy

import mujoco
import numpy as np
from mujoco.batch import MODEL_FIELDS

_GEOM = int(mujoco.mjtObj.mjOBJ_GEOM)
_SEES_GEOMS = {
    int(getattr(mujoco.mjtSensor, name))
    for name in (
        *("mjSENS_RANGEFINDER", "mjSENS_GEOMDIST", "mjSENS_GEOMNORMAL", "mjSENS_GEOMFROMTO", "mjSENS_INSIDESITE"),
        *("mjSENS_TACTILE", "mjSENS_PLUGIN", "mjSENS_USER"),
    )
    if hasattr(mujoco.mjtSensor, name)
}
"""Sensors that look at geoms, be they only drawn or not."""
_OF_GEOMS = ("geom_", "bvh_", "body_geom", "body_bvh", "name_")
"""What the fields are called that say which geoms there are."""
_FEW_GEOMS = 8
"""Of a body."""
_OFF = mujoco.mjtDisableBit


def lean_model(spec: mujoco.MjSpec, model: mujoco.MjModel) -> tuple[mujoco.MjModel, np.ndarray]:
    """A model of the same physics, and which geoms of the full one it has; `spec` is what that was compiled from."""
    keep = _matters(model)
    lean = copy.copy(model) if keep.all() else _without(spec, model, keep)
    if lean.ntree <= 1:
        lean.opt.disableflags |= int(_OFF.mjDSBL_ISLAND)
    if lean.body_geomnum.max() <= _FEW_GEOMS:
        lean.opt.disableflags |= int(_OFF.mjDSBL_MIDPHASE)
    if not (_touches(model).any() or model.npair or model.nflex):
        lean.opt.disableflags |= int(_OFF.mjDSBL_CONTACT)
    return lean, np.flatnonzero(keep)


def _without(spec: mujoco.MjSpec, model: mujoco.MjModel, keep: np.ndarray) -> mujoco.MjModel:
    """The same model with these geoms only."""
    lean = spec.copy()
    lean.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
    for mine, full in zip(lean.bodies, spec.bodies, strict=True):
        if full.id > 0:
            _give_inertia(mine, model, full.id)
    for mine, full in zip(lean.geoms, spec.geoms, strict=True):
        if not keep[full.id]:
            lean.delete(mine)
    stepped = lean.compile()
    _take_numbers(stepped, model, keep)
    return stepped


def _matters(model: mujoco.MjModel) -> np.ndarray:
    """Which geoms the physics or a sensor looks at, `(ngeom,)`."""
    everything = np.ones(model.ngeom, dtype=bool)
    if model.nplugin or model.nflex or np.isin(model.sensor_type, list(_SEES_GEOMS)).any():
        return everything
    matters = _touches(model) | (model.geom_fluid[:, 0] != 0)
    wraps = np.isin(model.wrap_type, (mujoco.mjtWrap.mjWRAP_SPHERE, mujoco.mjtWrap.mjWRAP_CYLINDER))
    named = (
        model.pair_geom1,
        model.pair_geom2,
        model.wrap_objid[wraps],
        model.sensor_objid[model.sensor_objtype == _GEOM],
        model.sensor_refid[model.sensor_reftype == _GEOM],
    )
    matters[np.concatenate(named)] = True
    return matters


def _touches(model: mujoco.MjModel) -> np.ndarray:
    return touching(model, model.geom_contype, model.geom_conaffinity)


def touching(model: mujoco.MjModel, contype: np.ndarray, conaffinity: np.ndarray) -> np.ndarray:
    """Which geoms can touch one of another body if they have these masks, `(..., ngeom)` all three."""
    meets = (contype[..., :, None] & conaffinity[..., None, :]) != 0
    others = model.geom_bodyid[:, None] != model.geom_bodyid
    return ((meets | meets.swapaxes(-1, -2)) & others).any(axis=-1)


def _give_inertia(body: mujoco.MjsBody, model: mujoco.MjModel, full_id: int) -> None:
    """Let a body weigh what it does with all its geoms."""
    body.explicitinertial = True
    body.fullinertia[:] = np.nan
    body.ialt.type = mujoco.mjtOrientation.mjORIENTATION_QUAT
    body.mass = model.body_mass[full_id]
    body.ipos, body.iquat = model.body_ipos[full_id], model.body_iquat[full_id]
    body.inertia = model.body_inertia[full_id]


def _take_numbers(stepped: mujoco.MjModel, model: mujoco.MjModel, keep: np.ndarray) -> None:
    """Give it the full model's numbers to the last bit, where compiling again has rounded them."""
    for name in MODEL_FIELDS:
        if name.startswith("opt."):
            continue
        full, mine = getattr(model, name), getattr(stepped, name)
        if name.startswith("geom_"):
            mine[:] = full[keep]
        elif not name.startswith(_OF_GEOMS) and full.shape == mine.shape:
            mine[:] = full
    stepped.stat.meaninertia = model.stat.meaninertia
