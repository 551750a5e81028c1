"""The files of a project for one robot and one task: all there is to run it, nothing that hides a number."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from string import Template
from typing import Literal, get_args

import mujoco

from genelab.errors import UsageError
from genelab.scaffold import templates
from genelab.scaffold.survey import Survey
from genelab.scene import mjcf_file, urdf_file
from genelab.scene.pack import WORLD, pack
from genelab.scene.urdf import find_mesh

Kind = Literal["velocity", "reach", "blank"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def project_files(name: str, model: Path, kind: Kind, found: Survey, *, floating_base: bool) -> dict[str, bytes]:
    """The files by their names in the project's directory."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise UsageError(f"{name!r} is no name for a package: use small letters, digits and _, as in my_robot")
    if kind == "velocity" and found.base == "fixed":
        raise UsageError("a robot that is fixed to the world cannot walk: pass `kind='reach'` or `kind='blank'`")
    if kind == "reach" and not found.reach > 0.0:
        raise UsageError("this robot has nothing to reach with: pass `kind='blank'`")
    words = _words(name, model, kind, found, floating_base)
    task = getattr(templates, kind.upper())
    texts = {
        "pyproject.toml": templates.PYPROJECT,
        "README.md": templates.README,
        f"{name}/__init__.py": templates.INIT,
        f"{name}/robot.py": templates.ROBOT,
        f"{name}/task.py": templates.HEAD + task + templates.AGENT,
        "tests/test_task.py": templates.TEST,
    }
    files = {path: _used_imports(Template(text).substitute(words)).encode() for path, text in texts.items()}
    copied = model_files(model)
    return files | {f"{name}/model/{path}": content for path, content in copied.items()}


def _used_imports(text: str) -> str:
    """Without what the robot at hand does not need."""

    def kept(line: re.Match[str]) -> str:
        names = line[2].split(", ")
        rest = text.replace(line[0], "")
        used = sorted((name for name in names if re.search(rf"\b{name.split(' as ')[-1]}\b", rest)), key=names.index)
        return f"{line[1]}{', '.join(used)}\n" if used else ""

    return re.sub(r"^(from genelab[\w.]* import )(.*)\n", kept, text, flags=re.MULTILINE)


def model_files(model: Path) -> dict[str, bytes]:
    """The model and what it refers to, so that it loads from another folder; the file itself is not rewritten unless
    it must be."""
    if model.suffix.lower() == ".urdf":
        return _urdf_files(model)
    spec = mjcf_file(str(model))
    home = model.resolve().parent
    files = {model.name: model.read_bytes()}
    try:
        for path in (*_included(model.resolve()), *_assets(spec, home)):
            files[path.resolve().relative_to(home).as_posix()] = path.read_bytes()
    except (ValueError, OSError):  # something lies outside of the folder: MuJoCo writes it all anew
        packed = pack(spec)
        return {model.name: packed.pop(WORLD), **packed}
    return files


def _included(model: Path) -> list[Path]:
    found = []
    for part in ET.parse(model).iter("include"):
        path = model.parent / part.get("file", "")
        found += [path, *_included(path)]
    return found


def _assets(spec: mujoco.MjSpec, home: Path) -> list[Path]:
    compiler = spec.compiler
    parts = [(part.file, compiler.meshdir) for part in (*spec.meshes, *spec.skins, *spec.hfields) if part.file]
    for texture in spec.textures:
        parts += [(name, compiler.texturedir) for name in (texture.file, *texture.cubefiles) if name]
    return [home / folder / (PurePosixPath(name).name if spec.strippath else name) for name, folder in parts]


def _urdf_files(model: Path) -> dict[str, bytes]:
    urdf_file(str(model))  # refuses what cannot be loaded
    robot, files = ET.fromstring(model.read_bytes()), dict[str, bytes]()
    for mesh in robot.iter("mesh"):
        found = find_mesh(mesh.get("filename", ""), model.absolute().parent, {})
        if found is not None:
            name = f"meshes/{found.parent.name}_{found.name}"
            files[name] = found.read_bytes()
            mesh.set("filename", name)
    return {model.name: ET.tostring(robot), **files}


def task_id(name: str, kind: Kind) -> str:
    """How users will call the task."""
    return f"{'-'.join(word.capitalize() for word in name.split('_'))}-{kind.capitalize()}-v0"


def _words(name: str, model: Path, kind: Kind, found: Survey, floating_base: bool) -> dict[str, str]:
    urdf = model.suffix.lower() == ".urdf"
    speed = _number(0.5 * math.sqrt(9.81 * max(found.height, 0.05)))
    target = next(iter(found.own.values()), "position")
    servo = not found.own
    return {
        "name": name,
        "id": task_id(name, kind),
        "kind": kind,
        "file": model.name,
        "title": " ".join(word.capitalize() for word in name.split("_")),
        "reader": "urdf_file" if urdf else "mjcf_file",
        "arguments": f"str(MODEL), floating_base={floating_base}" if urdf else "str(MODEL)",
        "actuator_class": "ImplicitPdActuatorCfg" if servo else "XmlActuatorCfg",
        "actuators": _servos(found) if servo else _own(found),
        "init_state": _init_state(found),
        "sides": repr(found.sides),
        "solver": _solver(found),
        "dt": f"{found.dt:g}",
        "decimation": str(max(1, round(0.02 / found.dt))),
        "terrain": "None" if found.has_floor else "PlaneCfg()",
        "terrain_why": "the robot's file has a floor" if found.has_floor else "a plane",
        "actions": _actions(found, target),
        "speed": speed,
        "half_speed": _number(float(speed) / 2),
        "back_speed": "0.0" if found.base == "planar" else f"-{speed}",
        "side_range": "(0.0, 0.0)"
        if found.base == "planar"
        else f"(-{_number(float(speed) / 2)}, {_number(float(speed) / 2)})",
        "turn_range": "(0.0, 0.0)" if found.base == "planar" else "(-1.0, 1.0)",
        "reset": _RESETS["free" if found.base == "free" else "other"],
        "height": _number(found.height),
        "low": _number(0.5 * found.height),
        "feet": repr(found.feet),
        "sensors": _sensors(found),
        "air_time": _AIR_TIME if found.feet else "",
        "tip": found.tip,
        "centre": repr(found.tip_at),
        "span": _number(max(0.1, 0.4 * found.reach)),
        "width": str(len(found.driven)),
        "mass": f"{found.mass:.6g}",
    }


def _number(value: float) -> str:
    return repr(float(f"{value:.2g}"))


def _per_joint(values: Mapping[str, float]) -> str:
    """One number, or a dict by joint name."""
    if len(set(values.values())) == 1:
        return repr(next(iter(values.values())))
    return "{" + ", ".join(f"{re.escape(name)!r}: {value!r}" for name, value in values.items()) + "}"


def _servos(found: Survey) -> str:
    columns = {key: {name: getattr(one, key) for name, one in found.gains.items()} for key in ("stiffness", "damping")}
    effort = {name: one.effort for name, one in found.gains.items()}
    names = ", ".join(repr(re.escape(name)) for name in found.gains)
    return f"""ImplicitPdActuatorCfg(
                joint_names=({names},),
                # The file has no actuators. Effort: its own limit, else twice what holds the load with the limb
                # stretched out. Stiffness: that effort at half a radian (a tenth of a metre). Damping: 0.7 of critical
                # for the inertia of the limb in the model's pose.
                effort_limit={_per_joint(effort)},
                stiffness={_per_joint(columns["stiffness"])},
                damping={_per_joint(columns["damping"])},
            )"""


def _own(found: Survey) -> str:
    names = ", ".join(repr(re.escape(name)) for name in found.own)
    return f"XmlActuatorCfg(joint_names=({names},))"


def _init_state(found: Survey) -> str:
    words = [] if found.keyframe is None else [f'keyframe="{found.keyframe}"']
    words += [] if found.place is None else [f"pos={found.place}"]
    words += [f"joint_pos={ {re.escape(name): value for name, value in found.pose.items()}!r}"] if found.pose else []
    return f"InitialStateCfg({', '.join(words)})"


def _solver(found: Survey) -> str:
    """Servos need an implicit integrator, whatever the file asks for."""
    return ', solver=SolverCfg(integrator="implicitfast")' if not found.own and found.stiff_file else ""


def _actions(found: Survey, target: str) -> str:
    by_target: dict[str, list[str]] = {}
    for name in found.driven:
        by_target.setdefault(found.own.get(name, "position"), []).append(name)
    rows = []
    for kind, names in by_target.items():
        scale = "0.25" if kind == "position" else "1.0"
        if kind == "effort":
            limits = {name: found.limits.get(name, 1.0) for name in names}
            scale = _per_joint({name: value if math.isfinite(value) else 1.0 for name, value in limits.items()})
        joints = ", ".join(repr(re.escape(name)) for name in names)
        cls = f"Joint{kind.capitalize()}ActionCfg"
        rows.append(f'"{kind}": mdp.{cls}(joint_names=({joints},), scale={scale}),')
    return "\n            ".join(rows)


def _sensors(found: Survey) -> str:
    if not found.feet:
        return "{}"
    names = ", ".join(repr(re.escape(name)) for name in found.feet)
    return f'{{"feet": ContactSensorCfg(entity="robot", bodies=({names},), other="world")}}'


_AIR_TIME = """
            "air_time": reward(
                mdp.air_time, 0.25, contact="feet", window=(0.1, 0.5), command="twist", threshold=0.1
            ),"""
_RESETS = {
    "free": """event(
                mdp.reset_root_uniform,
                "reset",
                pose_range={"x": (-0.5, 0.5), "y": (-0.5, 0.5), "yaw": (-3.14, 3.14)},
            )""",
    "other": """event(
                mdp.reset_joints_by_offset, "reset", position_range=(-0.05, 0.05), velocity_range=(-0.05, 0.05)
            )""",
}
