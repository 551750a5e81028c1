"""What can be told about a robot from its model alone, each by a rule that is written beside the number it gives."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import mujoco
import numpy as np

from genelab.errors import ConfigError, UsageError
from genelab.scaffold.code import number
from genelab.scaffold.model_files import check_sources
from genelab.scene import ArticulationCfg, InitialStateCfg, Scene, SceneCfg, XmlActuatorCfg, mjcf_file, urdf_file
from genelab.scene.actuators import Target
from genelab.scene.mirror import Sides, of_joints, other_side
from genelab.sim import ModelError, SimulationCfg

Base = Literal["free", "planar", "fixed"]
Kind = Literal["velocity", "reach", "blank"]
_SIDES: Sides = (
    *(("left_", "right_"), ("_left", "_right"), ("l_", "r_"), ("_l", "_r"), ("L_", "R_"), ("_L", "_R")),
    *(("FL", "FR"), ("RL", "RR"), ("LF", "RF"), ("LH", "RH"), ("left", "right")),
)
"""How left and right are told apart in names of others' models."""
_EXPLICIT = ("euler", "rk4")
_POSES = ("home", "stand", "standing", "rest", "squat", "default")
"""Keyframes that are a pose to start from, the best first."""
_MENDS = {
    "inertia must": ({"balanceinertia": "true"}, "balanceinertia: the inertia of {!r} is one that no body can have"),
    "mjMINVAL": (
        {"boundmass": "0.001", "boundinertia": "1e-6"},
        "boundmass, boundinertia: {!r} moves and has no mass, now 1 g",
    ),
}
"""What MuJoCo refuses in many a URDF, by a word of its message: attributes of `<compiler>` that mend it, and why."""


@dataclass(frozen=True, kw_only=True)
class Gains:
    """What drives a joint that nothing in the file drives."""

    effort: float
    stiffness: float
    damping: float


@dataclass(frozen=True, kw_only=True)
class Survey:
    """A model, looked at."""

    base: Base
    root: str
    mass: float
    bodies: int
    joints: tuple[str, ...]
    """All that can be driven: hinges and slides, but for those that let a planar robot travel and those that follow
    another joint."""
    own: dict[str, Target] = field(default_factory=dict)
    """What the file's own actuators follow, by joint."""
    limits: dict[str, float] = field(default_factory=dict)
    """Most effort of the file's own actuators, by joint."""
    gains: dict[str, Gains] = field(default_factory=dict)
    """Proposed for joints that have no actuator in the file, if none has."""
    keyframe: str | None = None
    pose: dict[str, float] = field(default_factory=dict)
    """Where joints start that the model, or its keyframe, has outside of their limits: a tenth of the range inside."""
    height: float = 0.0
    """Of the root above the lowest point of the robot, m."""
    place: tuple[float, float, float] | None = None
    """Where to put the root so that the robot stands on the ground; None: where the file has it."""
    has_floor: bool = False
    feet: tuple[str, ...] = ()
    tip: str = ""
    """The body farthest from the root along its joints."""
    tip_at: tuple[float, ...] = ()
    """Where the tip starts, m."""
    reach: float = 0.0
    """How far the tip is from the root, m."""
    slides: tuple[str, ...] = ()
    """Those of the driven joints that slide."""
    left: int = 0
    """Actuators of the file that nothing drives: they are on tendons or sites."""
    legs: bool = False
    """Whether it stands on two feet or more that have joints of their own."""
    compiler: dict[str, str] = field(default_factory=dict)
    """Attributes of `<compiler>` without which a URDF cannot be compiled."""
    mended: tuple[str, ...] = ()
    """What they mend, in words."""
    floating_base: bool = False
    """Whether a URDF was given a free joint."""
    sides: Sides = ()
    mirror: str = ""
    """Why the robot has no mirror image; "": it has one."""
    dt: float = 0.005
    stiff_file: bool = False
    """Whether the file asks for an integrator that is explicit: not for servos."""

    @property
    def driven(self) -> tuple[str, ...]:
        """Joints that act."""
        return tuple(self.own) or self.joints

    @property
    def kind(self) -> Kind:
        """What to ask of it: to move if it can, else to reach if it has something to reach with."""
        return "velocity" if self.base != "fixed" else "reach" if self.reach > 0.0 else "blank"


def survey(path: Path, *, kind: Kind | None = None, fixed_base: bool = False, assets: Sequence[Path] = ()) -> Survey:
    """Load a model as a task would, and look at it.

    The root of a URDF floats if it has to walk or has legs, unless it is to be fixed. The model may refer to files
    below its own folder and below `assets`, and to no others.
    """
    if path.suffix.lower() == ".xacro":
        raise UsageError(f"{path} is a macro of a URDF: write the URDF first, `xacro {path.name} > robot.urdf`")
    if path.suffix.lower() not in (".urdf", ".xml"):
        raise UsageError(f"{path}: a robot is MJCF, *.xml, or URDF, *.urdf")
    check_sources(path, assets)
    if path.suffix.lower() != ".urdf":
        if fixed_base:
            raise UsageError("an MJCF says itself whether its base is free: `fixed_base` is for a URDF")
        return _survey(path, mjcf_file, {})
    if not fixed_base and kind != "reach":
        found = _survey_urdf(path, floating_base=True)
        if found.legs or kind == "velocity":
            return found
    return _survey_urdf(path, floating_base=False)


def _survey_urdf(path: Path, *, floating_base: bool) -> Survey:
    compiler: dict[str, str] = {}
    mended: list[str] = []
    while True:
        try:
            found = _survey(path, urdf_file, {"floating_base": floating_base, "compiler": compiler})
            return replace(found, compiler=compiler, mended=tuple(mended), floating_base=floating_base)
        except ModelError as error:
            mend, why = next((how for word, how in _MENDS.items() if word in str(error)), ({}, ""))
            if mend.keys() <= compiler.keys():
                raise
            name = re.search(r"name '([^']*)'", str(error))
            mended.append(why.format(name[1] if name else "a link"))
            compiler |= mend


def _survey(path: Path, read: Callable[..., mujoco.MjSpec], options: dict[str, Any]) -> Survey:
    arguments = {"path": str(path), **options}
    cfg = ArticulationCfg(spec=read, spec_args=arguments, sides=_SIDES)
    spec = cfg.spec(**arguments)
    names = {key.name for key in spec.keys}
    keyframe = next((name for name in _POSES if name in names), None)
    cfg.init_state = InitialStateCfg(keyframe=keyframe)
    motors = any(int(part.trntype) == mujoco.mjtTrn.mjTRN_JOINT for part in spec.actuators)
    cfg.actuators = {"own": XmlActuatorCfg()} if motors else {}
    try:
        scene = Scene(SceneCfg(entities={"robot": cfg}), SimulationCfg())
    except ConfigError:  # two actuators on a joint, say: the file's own cannot be taken over
        cfg.actuators = {}
        scene = Scene(SceneCfg(entities={"robot": cfg}), SimulationCfg())
    try:
        step = float(spec.option.timestep)
        return _look(scene, keyframe, step if spec.authored.option & 1 and 0.001 <= step <= 0.01 else 0.005)
    finally:
        scene.engine.close()


def _look(scene: Scene, keyframe: str | None, dt: float) -> Survey:
    robot, model = scene.articulation("robot"), scene.engine.model
    scene.reset(None)
    data = mujoco.MjData(model)
    data.qpos[:] = scene.engine.qpos[0].double().numpy()
    joints = {name: model.joint(f"robot/{name}").id for name in robot.joint_names}
    pose = _into_limits(model, data, joints)
    mujoco.mj_forward(model, data)
    rails = [name for name, i in joints.items() if model.jnt_bodyid[i] == robot.root_id and robot.is_fixed_base]
    slides = [name for name in rails if model.jnt_type[joints[name]] == mujoco.mjtJoint.mjJNT_SLIDE]
    planar = any(not model.jnt_limited[joints[name]] for name in slides)
    own = robot.actuators.get("own")
    follows: dict[str, Target] = (
        {} if own is None else {name: own.follows(i)[0] for name, i in zip(own.joint_names, own.joint_ids, strict=True)}
    )
    coupled = {int(model.eq_obj1id[i]) for i in range(model.neq) if model.eq_type[i] == mujoco.mjtEq.mjEQ_JOINT}
    kept = [n for n, i in joints.items() if i not in coupled and not (planar and n in rails and n not in follows)]
    if not kept:
        raise UsageError("this model has no joint that could be driven: a task needs at least one")
    base: Base = "free" if not robot.is_fixed_base else "planar" if planar else "fixed"
    low = _lowest(model, data, robot.body_ids.tolist())
    root = data.xpos[robot.root_id]
    feet = _feet(model, data, robot.body_ids.tolist(), low) if base != "fixed" else ()
    tip = _tip(model, robot.body_ids.tolist())
    place = None
    if base == "free" and abs(low) >= 0.03 and not _weightless(model):
        place = (0.0, 0.0, float(f"{root[2] - low + 0.005:.3f}"))
    limits = {} if own is None else dict(zip(own.joint_names, own.drive()["effort_limit"], strict=True))
    gains = {} if follows else {name: _gains(model, data, joints[name], len(feet), dt) for name in kept}
    sides, mirror = _mirror(robot, [robot.joint_names.index(name) for name in (tuple(follows) or kept)])
    return Survey(
        base=base,
        root=robot.body_names[0],
        mass=float(robot.body_mass.sum()),
        bodies=len(robot.body_names),
        joints=tuple(kept),
        own=follows,
        limits=limits,
        gains=gains,
        keyframe=keyframe,
        pose=pose,
        height=float(root[2] - low),
        place=place,
        has_floor=bool(np.any((model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE) & (model.geom_bodyid == 0))),
        feet=tuple(model.body(i).name.removeprefix("robot/") for i in feet),
        tip=model.body(tip).name.removeprefix("robot/"),
        tip_at=tuple(round(float(part), 3) for part in data.xpos[tip]),
        reach=float(np.linalg.norm(data.xpos[tip] - root)),
        slides=tuple(name for name in kept if model.jnt_type[joints[name]] == mujoco.mjtJoint.mjJNT_SLIDE),
        left=int(model.nu) - len(follows),
        legs=_has_legs(model, feet),
        sides=sides,
        mirror=mirror,
        dt=dt,
        stiff_file=scene.options["integrator"].source == "model" and scene.options["integrator"].value in _EXPLICIT,
    )


def _into_limits(model: mujoco.MjModel, data: mujoco.MjData, joints: dict[str, int]) -> dict[str, float]:
    """Move joints that start outside of their limits inside; which, and where to."""
    moved = {}
    for name, i in joints.items():
        (low, high), at = model.jnt_range[i], int(model.jnt_qposadr[i])
        if model.jnt_limited[i] and not low <= data.qpos[at] <= high:
            inside = 0.1 * (high - low)
            moved[name] = number(low + inside if data.qpos[at] < low else high - inside)
            data.qpos[at] = moved[name]
    return moved


def _lowest(model: mujoco.MjModel, data: mujoco.MjData, bodies: list[int]) -> float:
    """The lowest point of what can touch, m."""
    heights = [_bottom(model, data, geom) for geom in range(model.ngeom) if _touches(model, geom, bodies)]
    return min(heights, default=0.0)


def _touches(model: mujoco.MjModel, geom: int, bodies: list[int]) -> bool:
    return int(model.geom_bodyid[geom]) in bodies and bool(model.geom_contype[geom] | model.geom_conaffinity[geom])


def _bottom(model: mujoco.MjModel, data: mujoco.MjData, geom: int) -> float:
    centre, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
    turn = data.geom_xmat[geom].reshape(3, 3)
    return float((data.geom_xpos[geom] + turn @ centre)[2] - np.abs(turn[2]) @ half)


def _feet(model: mujoco.MjModel, data: mujoco.MjData, bodies: list[int], low: float) -> tuple[int, ...]:
    """The lowest bodies of limbs' last links that are near the ground; more than four are no feet."""
    bottoms: dict[int, float] = {}
    for geom in (geom for geom in range(model.ngeom) if _touches(model, geom, bodies)):
        body = int(model.geom_bodyid[geom])
        bottoms[body] = min(_bottom(model, data, geom), bottoms.get(body, math.inf))
    link = {body: int(model.body_weldid[body]) for body in bodies}  # what is fixed together is one link
    inner = {
        link.get(parent) for body in bottoms for parent in _ancestors(model, body) if link.get(parent) != link[body]
    }
    ends = {link[body] for body in bottoms} - inner - {link[bodies[0]]}
    lowest = [min((body for body in bottoms if link[body] == end), key=bottoms.__getitem__) for end in sorted(ends)]
    span = float(data.xpos[bodies[0], 2]) - low
    feet = [body for body in lowest if bottoms[body] - low < 0.15 * max(span, 1e-6)]
    return tuple(feet) if 1 <= len(feet) <= 4 else ()


def _ancestors(model: mujoco.MjModel, body: int) -> list[int]:
    found = []
    while body:
        body = int(model.body_parentid[body])
        found.append(body)
    return found


def _has_legs(model: mujoco.MjModel, feet: tuple[int, ...]) -> bool:
    """Whether each foot has more joints of its own than it shares with all others: fingers at the end of an arm have
    fewer."""
    joints = [{i for body in (foot, *_ancestors(model, foot)) for i in _joints_of(model, body)} for foot in feet]
    shared = set.intersection(*joints) if joints else set()
    return len(feet) > 1 and all(len(own - shared) > len(shared) for own in joints)


def _joints_of(model: mujoco.MjModel, body: int) -> list[int]:
    """Hinges and slides of a body."""
    first = int(model.body_jntadr[body])
    joints = range(first, first + int(model.body_jntnum[body])) if body else range(0)
    return [i for i in joints if model.jnt_type[i] != mujoco.mjtJoint.mjJNT_FREE]


def _weightless(model: mujoco.MjModel) -> bool:
    return bool(model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_GRAVITY) or not np.any(model.opt.gravity)


def _tip(model: mujoco.MjModel, bodies: list[int]) -> int:
    """The body with most joints between it and the world; of several the first."""

    def joints_above(body: int) -> int:
        return sum(int(model.body_jntnum[i]) for i in (body, *_ancestors(model, body)))

    return max(bodies, key=joints_above)


def _gains(model: mujoco.MjModel, data: mujoco.MjData, joint: int, feet: int, dt: float) -> Gains:
    """Effort: the file's limit, else twice what holds the load with the limb stretched out. Stiffness: that effort at
    half a radian (a tenth of a metre), or as much as one physics step can follow, a radian of a swing. Damping: 0.7 of
    critical for the inertia of the limb in the model's pose."""
    body, dof = int(model.jnt_bodyid[joint]), int(model.jnt_dofadr[joint])
    below = [i for i in range(model.nbody) if i == body or body in _ancestors(model, i)]
    slide = model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE
    if model.jnt_actfrclimited[joint]:
        effort = float(np.abs(model.jnt_actfrcrange[joint]).max())
    else:
        length = max(float(np.linalg.norm(data.xipos[i] - data.xanchor[joint])) for i in below)
        carried = max(float(model.body_subtreemass[body]), float(model.body_mass.sum()) / feet if feet else 0.0)
        effort = 2.0 * 9.81 * carried * (1.0 if slide else max(length, 0.01))
    stiffness = min(effort / (0.1 if slide else 0.5), 1.0 / (dt**2 * max(float(model.dof_invweight0[dof]), 1e-9)))
    inertia = float(model.dof_M0[dof])
    damping = 2.0 * 0.7 * math.sqrt(stiffness * inertia)
    return Gains(effort=number(effort), stiffness=number(stiffness), damping=number(damping))


def _mirror(robot: Any, joints: list[int]) -> tuple[Sides, str]:
    """Which of the usual words for left and right this robot uses, and whether its joints have a mirror image."""
    names = [*robot.joint_names, *robot.body_names]

    def used(pair: tuple[str, str]) -> bool:
        return any(
            (name.startswith(pair[0]) and pair[1] + name.removeprefix(pair[0]) in names)
            or (name.endswith(pair[0]) and name.removesuffix(pair[0]) + pair[1] in names)
            for name in names
        )

    sides: Sides = ()
    for pair in _SIDES:
        names = [name for name in names if other_side(name, sides) == name]  # of those that no word before tells apart
        sides = (*sides, pair) if used(pair) else sides
    robot.cfg.sides = sides
    if not sides:
        return sides, "no names tell left from right"
    try:
        of_joints(robot, joints)
    except ConfigError as error:
        return sides, str(error)
    return sides, ""
