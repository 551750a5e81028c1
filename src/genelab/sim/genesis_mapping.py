"""What Genesis is told: a compiled MuJoCo model, in its terms.

Genesis reads the compiled model itself, bodies depth first as MuJoCo numbers them, so ids agree. What it reads
differently, or not at all, is worked out here: actuators, which geoms may touch, and height fields.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from genelab.errors import summary
from genelab.sim.cfg import SimulationCfg
from genelab.sim.contacts import may_collide
from genelab.sim.engine import EngineError, ModelError, compile_spec

_HFIELD = int(mujoco.mjtGeom.mjGEOM_HFIELD)
_EULER, _IMPLICITFAST = mujoco.mjtIntegrator.mjINT_EULER, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
_ELLIPTIC = mujoco.mjtCone.mjCONE_ELLIPTIC
_KNOWN_FLAGS = sum(
    getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}")
    for name in ("AUTORESET", "CLAMPCTRL", "FILTERPARENT", "ISLAND", "MIDPHASE", "NATIVECCD", "WARMSTART")
)
"""What may be disabled: Genesis is told of it, or it is a matter of speed."""
_ONE_DOF = (int(mujoco.mjtJoint.mjJNT_SLIDE), int(mujoco.mjtJoint.mjJNT_HINGE))
_AFFINE = (int(mujoco.mjtBias.mjBIAS_NONE), int(mujoco.mjtBias.mjBIAS_AFFINE))

in_any_mode = torch.inference_mode()
"""Around what writes to the solver: it keeps its tensors. One that was made in inference mode may be written to in this
mode only; one that was not, in both."""
_started: tuple[int, bool] | None = None
"""Precision and GPU that Genesis, one per process, was started with."""


def start_genesis(cfg: SimulationCfg, in_use: bool) -> None:
    """Import Genesis and set it up for this precision and device."""
    global _started
    hook = sys.excepthook
    try:
        import genesis as gs
    except ImportError as error:
        raise EngineError(f"Genesis cannot be imported: {summary(error)}") from error
    finally:
        sys.excepthook = hook  # Genesis would print every exception twice
    wanted = (cfg.precision, cfg.gpu)
    if _started not in (None, wanted):
        if in_use:
            raise EngineError("Genesis runs in one precision and on one device per process: close the other engine")
        gs.destroy()
        _started = None
    if _started is None:
        backend = gs.gpu if cfg.gpu else gs.cpu
        gs.init(backend=backend, precision=str(cfg.precision), logging_level="error", theme="raw")
        _started = wanted


# -- scene


def build_scene(
    gs: Any, cfg: SimulationCfg, spec: mujoco.MjSpec, model: mujoco.MjModel, num_envs: int, env_spacing: float
) -> tuple[Any, Any, Any | None]:
    """The built scene, the entity that is the whole model, and the entity that is its height field, if any."""
    option, condim = model.opt, int(model.geom_condim.max(initial=3))
    scene = gs.Scene(
        sim_options=gs.options.SimOptions(dt=cfg.dt, substeps=1, gravity=tuple(option.gravity.tolist())),
        rigid_options=gs.options.RigidOptions(
            integrator=gs.integrator.Euler if option.integrator == _EULER else gs.integrator.implicitfast,
            iterations=option.iterations,
            ls_iterations=option.ls_iterations,
            tolerance=option.tolerance,
            friction_cone=gs.friction_cone.elliptic if option.cone == _ELLIPTIC else gs.friction_cone.pyramidal,
            impratio=option.impratio,
            contact_resolution=gs.contact_resolution.convex,
            contact_pruning_tolerance=None,
            constraint_timeconst=0.02,
            box_box_detection=True,
            enable_torsional_friction=condim >= 4,
            enable_rolling_friction=condim >= 6,
            # All pairs here; `allow_pairs` leaves those MuJoCo allows.
            enable_self_collision=True,
            enable_neutral_collision=True,
            enable_adjacent_collision=True,
            batch_dofs_info=True,
            batch_links_info=True,
        ),
        profiling_options=gs.options.ProfilingOptions(show_FPS=False),
        show_viewer=False,
    )
    # Frames, armatures and shapes as they are: by default Genesis moves the frame of a lone free body to its centre of
    # mass, adds armature to joints without one, and splits meshes.
    morph = gs.morphs.MJCF(
        file="<mujoco/>",
        align=False,
        default_armature=None,
        convexify=True,
        decompose_robot_error_threshold=float("inf"),
        decompose_object_error_threshold=float("inf"),
    )
    # A compiled model, for MJCF text keeps six digits; without the contact exclusions, which `allow_pairs` knows and
    # Genesis would squeeze into 32 bits of masks.
    plain = spec.copy()
    for exclude in plain.excludes:
        plain.delete(exclude)
    morph.file = compile_spec(plain)
    entity = scene.add_entity(morph, name="world")
    terrain = None
    for geom in colliding_geoms(model)[1]:
        # No contact with a terrain reads its distance field; Genesis itself warns that a fine one takes long.
        coarse = gs.materials.Rigid(sdf_min_res=16, sdf_max_res=16)
        terrain = scene.add_entity(gs.morphs.Terrain(**terrain_morph(model, geom)), coarse, name="terrain")
    try:
        scene.build(n_envs=num_envs, env_spacing=(env_spacing, env_spacing))
    except gs.GenesisException as error:
        raise EngineError(f"Genesis: {error}") from error
    _check_order(model, entity)
    if terrain is not None:
        (geom,) = colliding_geoms(model)[1]
        terrain.geoms[0].set_sol_params(np.concatenate((model.geom_solref[geom], model.geom_solimp[geom])))
    allow_pairs(scene.rigid_solver.collider, model)
    return scene, entity, terrain


def _check_order(model: mujoco.MjModel, entity: Any) -> None:
    """Genesis leaves the world body out where nothing needs it; all else must be as in MuJoCo."""
    names = [model.body(i).name for i in range(model.nbody)][-entity.n_links :]
    same = entity.n_links in (model.nbody, model.nbody - 1)
    same = same and all(not name or name == link.name for name, link in zip(names, entity.links, strict=True))
    same = same and [q for joint in entity.joints for q in joint.qs_idx_local] == list(range(model.nq))
    same = same and [dof for joint in entity.joints for dof in joint.dofs_idx_local] == list(range(model.nv))
    if not same:
        raise ModelError("Genesis read the bodies and joints of this model in another order than MuJoCo")
    solid = len(colliding_geoms(model)[0])
    if len(entity.geoms) != solid:
        raise ModelError(f"Genesis made {len(entity.geoms)} collision shapes of this model's {solid}")


def allow_pairs(collider: Any, model: mujoco.MjModel) -> None:
    """Leave Genesis only the pairs of geoms that collide in MuJoCo."""
    allowed = may_collide(model, np.concatenate(colliding_geoms(model)))
    pairs = collider.collider_info.collision_pair_idx
    table = pairs.to_numpy()
    table[: len(allowed), : len(allowed)][~allowed] = -1
    pairs.from_numpy(table)


def combine_as_mujoco(solver: Any, model: mujoco.MjModel, geoms: np.ndarray, friction: Tensor) -> None:
    """Give contacts the parameters MuJoCo's rule gives them; see `genesis_contacts`."""
    if may_collide(model, geoms).any():
        from genelab.sim.genesis_contacts import combine_as_mujoco

        combine_as_mujoco(solver, model, geoms, friction)


def inexpressible(model: mujoco.MjModel) -> Iterator[str]:
    """What of a model Genesis would step as something else."""
    hfields = np.flatnonzero(model.geom_type == _HFIELD)
    springs = (model.jnt_stiffness > 0) & (model.qpos_spring[model.jnt_qposadr] != model.qpos0[model.jnt_qposadr])
    limited_balls = (model.jnt_limited == 1) & (model.jnt_type == int(mujoco.mjtJoint.mjJNT_BALL))
    solid = np.concatenate(colliding_geoms(model))
    smooth = may_collide(model, solid) & (pair_condim(model, solid) == 1)
    direct = [np.any(solref[:, 0] < 0) for solref in (model.geom_solref[solid], model.jnt_solref, model.eq_solref)]
    option, disabled = model.opt, _disabled(model.opt.disableflags & ~_KNOWN_FLAGS)
    for bad, what in (
        (option.integrator not in (_EULER, _IMPLICITFAST), "this integrator (`env.simulation.solver.integrator`)"),
        (option.solver != mujoco.mjtSolver.mjSOL_NEWTON, "another solver than Newton's"),
        (option.density or option.viscosity, "a medium with density or viscosity"),
        (bool(disabled), f"the flag {disabled}"),
        (model.ntendon > 0, "tendons"),
        (model.npair > 0, "explicit contact pairs"),
        (np.any(model.body_gravcomp), "gravity compensation of bodies"),
        (np.any(springs), "a spring that rests away from the joint's reference"),
        (np.any(limited_balls), "the range of a ball joint"),
        (np.any(smooth), f"contacts without friction (condim 1){_named(model, solid, smooth)}"),
        (any(direct), "a `solref` that is stiffness and damping (negative)"),
        (len(hfields) > 1, "more than one height field"),
        (np.any(model.geom_bodyid[hfields]), "a height field on a moving body"),
    ):
        if bad:
            yield what
    for geom in colliding_geoms(model)[1]:
        yield from _uneven(model, geom)
    for i in range(model.nu):
        if why := _why_not(model, i):
            yield f"actuator {model.actuator(i).name or f'number {i}'!r}: {why}"


def _disabled(flags: int) -> str:
    """The first of the flags that are disabled, as MJCF has it."""
    bits = (bit for bit in mujoco.mjtDisableBit.__members__.values() if bit & flags)
    return next((f'{bit.name.removeprefix("mjDSBL_").lower()}="disable"' for bit in bits), "")


# -- actuators


def actuator_dofs(model: mujoco.MjModel) -> np.ndarray:
    """The degree of freedom each actuator drives, `(nu,)`."""
    return model.jnt_dofadr[model.actuator_trnid[:, 0]].astype(np.int64)


def _why_not(model: mujoco.MjModel, actuator: int) -> str:
    """What keeps an actuator from being an affine law on one joint."""
    if model.actuator_trntype[actuator] != mujoco.mjtTrn.mjTRN_JOINT:
        return "it does not drive a joint"
    if int(model.jnt_type[model.actuator_trnid[actuator, 0]]) not in _ONE_DOF:
        return "its joint is neither a hinge nor a slide"
    if model.actuator_dyntype[actuator] != mujoco.mjtDyn.mjDYN_NONE:
        return "it has internal dynamics"
    if model.actuator_gaintype[actuator] != mujoco.mjtGain.mjGAIN_FIXED:
        return "its gain depends on the state"
    if int(model.actuator_biastype[actuator]) not in _AFFINE:
        return "its bias is not affine"
    if model.actuator_gear[actuator, 0] != 1:
        return "its gear is not 1"
    if model.actuator_trnid[actuator, 0] in model.actuator_trnid[:actuator, 0]:
        return "its joint has another actuator"
    return ""


def actuator_reference(model: mujoco.MjModel) -> np.ndarray:
    """Positions at which Genesis's joint positions are zero, of the actuated joints, `(nu,)`."""
    return model.qpos0[model.jnt_qposadr[model.actuator_trnid[:, 0]]]


def actuator_limits(model: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """Ranges of control and force, `(nu, 2)` each, infinite where there is no limit."""
    clamped = not model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CLAMPCTRL
    limited = (model.actuator_ctrllimited == 1) & clamped
    control = np.where(limited[:, None], model.actuator_ctrlrange, (-np.inf, np.inf))
    force = np.where(model.actuator_forcelimited[:, None] == 1, model.actuator_forcerange, (-np.inf, np.inf))
    joint = model.actuator_trnid[:, 0]
    total = np.where(model.jnt_actfrclimited[joint, None] == 1, model.jnt_actfrcrange[joint], (-np.inf, np.inf))
    return control, np.clip(force, total[:, :1], total[:, 1:])


# -- what may touch what


def colliding_geoms(model: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """Ids of the geoms Genesis reads as collision shapes, and of the height field, each in order."""
    solid = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    hfield = model.geom_type == _HFIELD
    return np.flatnonzero(solid & ~hfield), np.flatnonzero(solid & hfield)


def pair_condim(model: mujoco.MjModel, geoms: np.ndarray) -> np.ndarray:
    """MuJoCo's rule for the dimensions of a contact of two of the geoms, `(len(geoms), len(geoms))`."""
    condim, priority = model.geom_condim[geoms], model.geom_priority[geoms]
    first, second = np.broadcast_arrays(condim[:, None], condim)
    higher = np.sign(priority[:, None] - priority)
    return np.where(higher > 0, first, np.where(higher < 0, second, np.maximum(first, second)))


def _named(model: mujoco.MjModel, geoms: np.ndarray, pairs: np.ndarray) -> str:
    """The first of some pairs of geoms, for a message."""
    if not pairs.any():
        return ""
    names = [model.geom(int(geoms[i])).name or f"number {geoms[i]}" for i in np.argwhere(pairs)[0]]
    return f", as between the geoms {names[0]!r} and {names[1]!r}"


def body_mask(model: mujoco.MjModel, name: str, subtree: bool) -> np.ndarray:
    """The named body, or it and all below it, `(nbody,)`."""
    mask = np.arange(model.nbody) == model.body(name).id
    if subtree:
        for body in range(1, model.nbody):
            mask[body] |= mask[model.body_parentid[body]]
    return mask


# -- ground


def _uneven(model: mujoco.MjModel, geom: int) -> Iterator[str]:
    """What of a height field Genesis does not have."""
    field = model.geom_dataid[geom]
    half_x, half_y = model.hfield_size[field, :2]
    if not np.isclose(half_x / (model.hfield_ncol[field] - 1), half_y / (model.hfield_nrow[field] - 1)):
        yield "a height field with different spacing along x and y"
    if not np.allclose(model.geom_quat[geom], (1, 0, 0, 0)):
        yield "a rotated height field"


def terrain_morph(model: mujoco.MjModel, geom: int) -> dict[str, Any]:
    """Arguments of `gs.morphs.Terrain` for the same surface as a height field geom."""
    field = model.geom_dataid[geom]
    rows, cols, start = model.hfield_nrow[field], model.hfield_ncol[field], model.hfield_adr[field]
    half_x, half_y, elevation, _ = model.hfield_size[field]
    spacing = 2 * half_x / (cols - 1)
    # MuJoCo: rows along y, centred, 0..1. Genesis: rows along x, from the corner, in metres.
    heights = model.hfield_data[start : start + rows * cols].reshape(rows, cols).T.astype(np.float64) * elevation
    corner = model.geom_pos[geom] - (half_x, half_y, 0.0)
    return {
        "height_field": heights,
        "horizontal_scale": float(spacing),
        "vertical_scale": 1.0,
        "pos": tuple(corner.tolist()),
    }
