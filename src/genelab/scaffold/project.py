"""The files of a project for one robot and one task: all there is to run it, nothing that hides a number."""

from __future__ import annotations

import importlib.util
import keyword
import math
import re
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any, get_args

from genelab.errors import UsageError
from genelab.scaffold import templates
from genelab.scaffold.code import WIDTH, assignment, comment, literal, number, parsed, pattern
from genelab.scaffold.model_files import model_files
from genelab.scaffold.survey import Kind, Survey
from genelab.text import markdown

KINDS: tuple[Kind, ...] = get_args(Kind)


def project_files(name: str, model: Path, kind: Kind, found: Survey, assets: Sequence[Path] = ()) -> dict[str, bytes]:
    """Return the files of a project by their paths in its directory.

    Args:
        name: Name of the package.
        model: The robot's file.
        kind: What is asked of the robot.
        found: What `survey` found of it.
        assets: Folders besides the model's own whose meshes and textures may be copied.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise UsageError(f"{name!r} is no name for a package: use small letters, digits and _, as in my_robot")
    if taken := _taken(name):
        raise UsageError(f"{name!r} is {taken}: choose another name, as my_{name}")
    if kind == "velocity" and found.base == "fixed":
        raise UsageError("a robot that is fixed to the world cannot walk: pass `kind='reach'` or `kind='blank'`")
    if kind == "reach" and not found.reach > 0.0:
        raise UsageError("this robot has nothing to reach with: pass `kind='blank'`")
    words = _words(name, model, kind, found)
    task = getattr(templates, kind.upper())
    texts = {
        "pyproject.toml": templates.PYPROJECT,
        "README.md": templates.README,
        ".gitignore": templates.IGNORED,
        f"{name}/__init__.py": templates.INIT,
        f"{name}/robot.py": templates.ROBOT,
        f"{name}/task.py": templates.HEAD + task + templates.AGENT,
        "tests/test_task.py": templates.TEST,
    }
    filled = {path: _used_imports(Template(text).substitute(words)) for path, text in texts.items()}
    files = {path: parsed(text, path).encode() for path, text in filled.items()}
    copied = model_files(model, assets)
    return files | {f"{name}/model/{path}": content for path, content in copied.items()}


def _taken(name: str) -> str | None:
    """What a package of that name could not be imported beside."""
    if keyword.iskeyword(name):
        return "a word of Python"
    found = importlib.util.find_spec(name)
    return "a module that is installed" if found is not None and found.origin is not None else None


def _used_imports(text: str) -> str:
    """Without what the robot at hand does not need."""

    def kept(line: re.Match[str]) -> str:
        names = line[2].split(", ")
        rest = text.replace(line[0], "")
        used = [name for name in names if re.search(rf"\b{name.split(' as ')[-1]}\b", rest)]
        line_ = f"{line[1]}{', '.join(used)}"
        if len(line_) > WIDTH:
            line_ = f"{line[1]}({''.join(f'{chr(10)}    {name},' for name in used)}\n)"
        return f"{line_}\n" if used else ""

    return re.sub(r"^(from [\w.]+ import )(.*)\n", kept, text, flags=re.MULTILINE)


def task_id(name: str, kind: Kind) -> str:
    """How users will call the task."""
    return f"{'-'.join(word.capitalize() for word in name.split('_'))}-{kind.capitalize()}-v0"


def findings(found: Survey) -> dict[str, str]:
    """What was found and guessed, in words."""
    drives = "the file's own actuators" if found.own else "position servos, gains proposed from the model"
    start = f"keyframe {found.keyframe!r}" if found.keyframe else "as the file has it"
    start = f"{start}, root at {found.place[2]} m" if found.place else start
    if found.pose:
        start += (
            f", {_count(len(found.pose), 'joint')} moved inside {'its' if len(found.pose) == 1 else 'their'} limits"
        )
    words = {
        "robot": f"{_count(found.bodies, 'body')}, {found.mass:.3g} kg, base {found.base}",
        "joints": f"{len(found.driven)} driven by {drives}",
        "start": start,
        "feet": ", ".join(found.feet) or "none found",
        "mirror": f"none: {found.mirror}" if found.mirror else f"left and right are {_pairs(found)} in names",
        "ground": "the file's floor" if found.has_floor else "a plane",
    }
    if found.left:
        words["joints"] += (
            f"; {_count(found.left, 'actuator')} on tendons or sites {'stays' if found.left == 1 else 'stay'} at 0"
        )
    if found.mended:
        words["mended"] = "; ".join(found.mended)
    return words


def _count(count: int, what: str) -> str:
    many = what.removesuffix("y") + "ies" if what.endswith("y") else f"{what}s"
    return f"{count} {what if count == 1 else many}"


def _pairs(found: Survey) -> str:
    return ", ".join(f"{left} and {right}" for left, right in found.sides)


def _words(name: str, model: Path, kind: Kind, found: Survey) -> dict[str, str]:
    title = " ".join(word.capitalize() for word in name.split("_"))
    speed = number(0.5 * math.sqrt(9.81 * max(found.height, 0.05)))
    planar = found.base == "planar"
    names, tables = _tables(found)
    rows = {"file": model.name, **findings(found)}
    return {
        "name": name,
        "id": task_id(name, kind),
        "file": literal(model.name),
        "title": title,
        "does": _DOES[kind],
        "findings": "\n".join(f"| {what} | {markdown(words)} |" for what, words in rows.items()),
        "reader": "urdf_file" if model.suffix.lower() == ".urdf" else "mjcf_file",
        "read": _read(model, found),
        "tables": tables,
        "brought": ", ".join(sorted(names)),
        "servos": "" if found.own else _SERVOS,
        "actuators": "XmlActuatorCfg()" if found.own else "servos",
        "init_state": _init_state(found),
        "sides": literal(found.sides, indent=8, used=14),
        "simulation": f"SimulationCfg(dt={found.dt:g}{_solver(found)})",
        "decimation": str(max(1, round(0.02 / found.dt))),
        "terrain": "None" if found.has_floor else "PlaneCfg()",
        "terrain_why": "  # the robot's file has a floor" if found.has_floor else "",
        "actions": _actions(found),
        "joint_obs": ", asset=part(joints=JOINTS)" if planar else "",
        "speed": repr(speed),
        "half_speed": repr(number(speed / 2)),
        "back_speed": "0.0" if planar else f"-{speed}",
        "side_range": "(0.0, 0.0)" if planar else f"(-{number(speed / 2)}, {number(speed / 2)})",
        "turn_range": "(0.0, 0.0)" if planar else "(-1.0, 1.0)",
        "turn_reward": "" if planar else _TURN,
        "resets": _RESETS["free" if found.base == "free" else "other"],
        "low": repr(number(0.5 * found.height)),
        "feet": assignment("FEET", tuple(map(pattern, found.feet))) if found.feet else "",
        "sensors": _SENSORS if found.feet else "",
        "air_time": _AIR_TIME if found.feet else "",
        "tip": literal(pattern(found.tip)),
        "centre": literal(found.tip_at),
        "span": repr(number(max(0.1, 0.4 * found.reach))),
        "width": str(len(found.driven)),
        "mass": f"{found.mass:.6g}",
    }


def _read(model: Path, found: Survey) -> str:
    if model.suffix.lower() != ".urdf":
        return "mjcf_file(str(MODEL))"
    words = f"str(MODEL), floating_base={found.floating_base}"
    return f"urdf_file({words}, compiler=MENDED)" if found.compiler else f"urdf_file({words})"


def _tables(found: Survey) -> tuple[set[str], str]:
    """Constants of the robot: what drives which joint, and the names of those that the task uses."""
    joints = {pattern(name): name for name in found.driven}
    text, names = "", set[str]()
    if found.compiler:
        text += "".join(comment(f"{line}.") for line in found.mended) + assignment("MENDED", found.compiler) + "\n"
    if not found.own:
        rows = "".join(
            f"    {literal(key)}: {literal((gains.effort, gains.stiffness, gains.damping))},\n"
            for key, name in joints.items()
            for gains in [found.gains[name]]
        )
        text += templates.SERVOS.replace("$rows", rows)
        names.add("SERVOS")
    for kind, (constant, why) in _OWN.items():
        mine = [key for key, name in joints.items() if found.own.get(name) == kind]
        if mine:
            value: Any = tuple(mine)
            if kind == "effort":
                limits = {key: found.limits.get(joints[key], 1.0) for key in mine}
                value = {key: number(one) if math.isfinite(one) else 1.0 for key, one in limits.items()}
            text += f"# {why}\n{assignment(constant, value)}"
            names.add(constant)
    if len(set(_scales(found).values())) > 1:
        text += f"# What an action of 1 is: a quarter of a radian, or 5 cm.\n{assignment('SCALE', _scales(found))}"
        names.add("SCALE")
    if found.base == "planar":
        one = next(iter(names)) if len(names) == 1 and set(found.joints) == set(found.driven) else ""
        text += "# All joints but those by which it travels.\n"
        text += f"JOINTS = tuple({one})\n" if one else assignment("JOINTS", tuple(map(pattern, found.joints)))
        names.add("JOINTS")
    return names, text


def _init_state(found: Survey) -> str:
    rows = []
    if found.keyframe is not None:
        rows.append(f"keyframe={literal(found.keyframe)}")
    if found.place is not None:
        rows.append(f"pos={literal(found.place)},  # the robot stands on the ground")
    if found.pose:
        pose = {pattern(name): value for name, value in found.pose.items()}
        rows.append("# A tenth of the range inside of their limits.")
        rows.append(f"joint_pos={literal(pose, indent=12, used=22)}")
    lines = "".join(f"            {row}{'' if '#' in row else ','}\n" for row in rows)
    return f"InitialStateCfg(\n{lines}        )" if rows else "InitialStateCfg()"


def _solver(found: Survey) -> str:
    """Servos need an implicit integrator, whatever the file asks for."""
    return ', solver=SolverCfg(integrator="implicitfast")' if not found.own and found.stiff_file else ""


def _actions(found: Survey) -> str:
    """One row for each kind of target, in the order of the joints."""
    scales = set(_scales(found).values())
    position = repr(scales.pop()) if len(scales) == 1 else "SCALE"
    if not found.own:
        return f'"position": mdp.JointPositionActionCfg(joint_names=tuple(SERVOS), scale={position}),'
    rows = []
    for kind, (constant, _) in _OWN.items():
        if kind in found.own.values():
            joints = f"tuple({constant})" if kind == "effort" else constant
            scale = {"effort": constant, "velocity": "1.0", "position": position}[kind]
            rows.append(f'"{kind}": mdp.Joint{kind.capitalize()}ActionCfg(joint_names={joints}, scale={scale}),')
    return "\n            ".join(rows)


def _scales(found: Survey) -> dict[str, float]:
    """What an action of 1 is for position targets, by joint."""
    joints = [name for name in found.driven if found.own.get(name, "position") == "position"]
    return {pattern(name): 0.05 if name in found.slides else 0.25 for name in joints}


_DOES: dict[Kind, str] = {
    "velocity": "moves as commanded",
    "reach": "brings its tip to a target",
    "blank": "keeps its pose",
}
_OWN = {
    "position": ("POSITION", "Joints whose actuators in the file follow positions."),
    "velocity": ("VELOCITY", "Joints whose actuators in the file follow velocities."),
    "effort": (
        "EFFORT",
        "Joints with motors in the file, and the most they can do (N·m or N): an action of 1 asks for it.",
    ),
}
_SERVOS = """
    effort, stiffness, damping = ({joint: row[i] for joint, row in SERVOS.items()} for i in range(3))
    servos = ImplicitPdActuatorCfg(
        joint_names=tuple(SERVOS),
        effort_limit=effort,
        stiffness=stiffness,
        damping=damping,
    )"""
_SENSORS = """
            sensors={"feet": ContactSensorCfg(entity="robot", bodies=FEET, other="world")},"""
_AIR_TIME = (
    '\n            "air_time": reward(mdp.air_time, 0.25, contact="feet", window=(0.1, 0.5), '
    'command="twist", threshold=0.1),'
)
_TURN = """
            "track_ang_vel": reward(mdp.track_ang_vel_exp, 1.0, command="twist", std=0.5),"""
_RESETS = {
    "free": """"start": event(
                mdp.reset_root_uniform, "reset", pose_range={"x": (-0.5, 0.5), "y": (-0.5, 0.5), "yaw": (-3.14, 3.14)}
            ),""",
    "other": """"start": event(
                mdp.reset_joints_by_offset, "reset", position_range=(-0.05, 0.05), velocity_range=(-0.05, 0.05)
            ),""",
}
