"""A page on which the policy drives its robot in the visitor's own browser.

MuJoCo and onnxruntime as WebAssembly, three.js to draw: they come from npm when the page is written, in the versions
below, and stand beside it. The page is files alone: any file server will do.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from genelab import mdp
from genelab.envs import ManagerBasedRlEnv
from genelab.errors import GenelabError, UsageError
from genelab.managers import ROBOT, ActionTerm, CommandTerm
from genelab.managers.base import select
from genelab.managers.observations import ObservationGroup, ObservationTermCfg
from genelab.mdp import actions, rolling_action, scripted_action
from genelab.mdp.clock import GaitClock
from genelab.rl.export_metadata import as_text
from genelab.rl.targets.base import Parcel, Target
from genelab.scene import Articulation, Entity
from genelab.scene import actuators as drives
from genelab.scene.pack import WORLD

PAGE = Path(__file__).parent / "page"
"""What we wrote of the page."""
KINDS: dict[Callable[..., Any], str] = {
    mdp.base_lin_vel: "base_lin_vel",
    mdp.base_ang_vel: "base_ang_vel",
    mdp.projected_gravity: "projected_gravity",
    mdp.joint_pos_rel: "joint_pos",
    mdp.joint_pos_measured: "joint_pos",
    mdp.joint_vel_rel: "joint_vel",
    mdp.wheel_angle: "wheel_angle",
    mdp.last_action: "last_action",
    mdp.generated_command: "command",
}
"""Observations that the page can make."""
ACTIONS = (
    actions.JointPositionAction,
    actions.JointVelocityAction,
    actions.JointEffortAction,
    scripted_action.ScriptedJointPositionAction,
    rolling_action.RollingAction,
)
"""Actions that the page can do."""
_OF_ROOT = ("base_lin_vel", "base_ang_vel", "projected_gravity")
_NPM_SECONDS = 600


@dataclass(frozen=True)
class Package:
    """A package of npm, and what the page takes of it."""

    name: str
    version: str
    integrity: str
    """SHA-512 of the archive, as npm writes it."""
    licence: str
    files: Mapping[str, str]
    """Path in the archive, by name beside the page."""


PACKAGES = (
    Package(
        "@mujoco/mujoco",
        "3.14.0",
        "sha512-WPUYidu4Fx8+uM4hQv80SOA0ifpWGrsNJguKs8JBV8SCTxjKQ2/rqsh880nUH0/Vwa8vuefghvCQkkoed3bkUg==",
        "Apache-2.0",
        {"mujoco.js": "mujoco.js", "mujoco.wasm": "mujoco.wasm"},
    ),
    Package(
        "onnxruntime-web",
        "1.30.0",
        "sha512-q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ==",
        "MIT",
        {
            "ort.wasm.min.mjs": "dist/ort.wasm.min.mjs",
            "ort-wasm-simd-threaded.mjs": "dist/ort-wasm-simd-threaded.mjs",
            "ort-wasm-simd-threaded.wasm": "dist/ort-wasm-simd-threaded.wasm",
        },
    ),
    Package(
        "three",
        "0.187.0",
        "sha512-Qiu7R+Cmh8CstZsY1uJOSWnVlfo7ZtNLV7mF8Jltk3LB3AtDu9cRZlcnRKkAk8Y4z6KKw35z7Y7Urd7jWY8etA==",
        "MIT",
        {
            "three.module.js": "build/three.module.js",
            "three.core.js": "build/three.core.js",
            "addons/controls/OrbitControls.js": "examples/jsm/controls/OrbitControls.js",
        },
    ),
)


class Web(Target):
    """A static page."""

    name = "web"

    def check(self, settings: Mapping[str, Any]) -> None:
        for program in ("npm", "node"):
            if shutil.which(program) is None:
                raise UsageError(f"the page's libraries come from npm, and there is no {program} here: install Node.js")

    def files(self, parcel: Parcel) -> dict[str, bytes]:
        policy = parcel.policy.write("onnx")
        plan = plan_of(parcel.policy.env, policy.metadata)
        world = parcel.world()
        world[WORLD] = readable(world[WORLD])
        plan["assets"] = [name for name in world if name != WORLD]
        plan["title"] = parcel.settings["title"] or title_of(parcel.task)
        vendor = fetch(PACKAGES)
        try_world(world, vendor)
        return {
            **{path.name: path.read_bytes() for path in sorted(PAGE.iterdir()) if path.is_file()},
            **{f"vendor/{name}": data for name, data in vendor.items()},
            **world,
            "policy.onnx": policy.data,
            "policy.onnx.metadata.json": as_text(policy.metadata).encode(),
            "page.json": as_text(plan).encode(),
        }

    def next_steps(self, out: Path, metadata: Mapping[str, Any]) -> Sequence[str]:
        return (f"python -m http.server --directory {out}", "and open http://localhost:8000 in a browser")


def title_of(task: str) -> str:
    """A task's id as words: `Genelab-Velocity-Flat-Unitree-Go1-v0` is `Unitree Go1, velocity, flat`."""
    words = re.sub(r"(?i)^genelab-|-v\d+$", "", task).split("-")
    makers = [i for i, word in enumerate(words) if word == "Unitree"]
    if not makers:
        return " ".join(words)
    name, what = words[makers[0] :], [word.lower() for word in words[: makers[0]]]
    return ", ".join([" ".join(name), *what])


# -- what the page must know beside the metadata


def plan_of(env: ManagerBasedRlEnv, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Where in MuJoCo's arrays the numbers are that the metadata speak of; refuses by name what the page cannot do."""
    terrain = env.scene.terrain
    if terrain is not None and not terrain.is_plane:
        raise UsageError("the page has a level floor, and this task's ground is generated: export the flat task")
    groups = [env.observation_manager.groups[name] for name in metadata["obs_groups"]]
    root = _root(env)
    model = env.scene.engine.model
    used = [_drive(env, term) for term in env.action_manager.terms.values()]
    controls, velocity = _controls(env)
    start = _start(env)
    return {
        "observations": [
            {"group": group.name, "history": group.cfg.history_length, "terms": list(_terms(env, group, root))}
            for group in groups
        ],
        "joints": dict(zip(env.action_manager.terms, used, strict=True)),
        "computed": [joint for joints in used for joint in joints if joint["law"] != "model"],
        "clocks": {
            name: dict(zip(term.foot_names, term.offsets.tolist(), strict=True))
            for name, term in env.commands.terms.items()
            if isinstance(term, GaitClock)
        },
        "controls": controls,
        "velocity": velocity,
        "root": None if root is None else _addresses(model, root),
        "start": start.tolist(),
        **_extent(model, start, root),
    }


def _robots(env: ManagerBasedRlEnv) -> list[Articulation]:
    names = dict.fromkeys(term.cfg.entity for term in env.action_manager.terms.values())
    return [env.scene.articulation(name) for name in names]


def _root(env: ManagerBasedRlEnv) -> Articulation | None:
    """The robot that moves about, if one does."""
    return next((robot for robot in _robots(env) if not robot.is_fixed_base), None)


def _addresses(model: mujoco.MjModel, robot: Entity) -> dict[str, int]:
    joint = model.joint(int(model.body_jntadr[robot.root_id]))
    return {"quat": int(joint.qposadr[0]) + 3, "vel": int(joint.dofadr[0])}


def _terms(env: ManagerBasedRlEnv, group: ObservationGroup, root: Articulation | None) -> Iterator[dict[str, Any]]:
    for layout in group.layout:
        cfg, where = group.cfgs[layout.name], f"the observation '{group.name}/{layout.name}'"
        kind = KINDS.get(cfg.func)
        if kind is None:
            known = ", ".join(sorted({func.__name__ for func in KINDS}))
            name = getattr(cfg.func, "__name__", cfg.func)
            raise UsageError(f"the page cannot make {where}, which is {name}: it has {known}")
        if cfg.delay != (0, 0):
            raise UsageError(f"the page cannot make {where}, which arrives late: its delay is {cfg.delay}")
        yield {"name": layout.name, "kind": kind, **_columns(env, cfg, kind, root, where)}


def _columns(
    env: ManagerBasedRlEnv, cfg: ObservationTermCfg, kind: str, root: Articulation | None, where: str
) -> dict[str, Any]:
    if kind == "command":
        return {"command": cfg.params["command"]}
    if kind == "last_action":
        return {}
    asset = select(cfg.params.get("asset", ROBOT), env)
    if kind in _OF_ROOT:
        if asset.entity is not root:
            raise UsageError(f"the page cannot make {where}: {asset.entity.name!r} is not the robot that moves about")
        return {}
    robot, ids = asset.entity, asset.joints
    joints = [env.scene.engine.model.joint(f"{robot.name}/{robot.joint_names[i]}") for i in ids]
    rest = robot.default_joint_vel if kind == "joint_vel" else robot.default_joint_pos
    return {
        "joints": [robot.joint_names[i] for i in ids],
        "qpos": [int(joint.qposadr[0]) for joint in joints],
        "qvel": [int(joint.dofadr[0]) for joint in joints],
        "rest": rest[0, ids].tolist(),
    }


def _drive(env: ManagerBasedRlEnv, term: ActionTerm) -> list[dict[str, Any]]:
    """How targets of an action's joints become controls."""
    if type(term) not in ACTIONS:
        known = ", ".join(kind.__name__ for kind in ACTIONS)
        raise UsageError(f"the page cannot do the action {term.name!r}, a {type(term).__name__}: it has {known}")
    if term.cfg.delay != (0, 0):
        raise UsageError(
            f"the page cannot do the action {term.name!r}, which arrives late: its delay is {term.cfg.delay}"
        )
    robot = env.scene.articulation(term.cfg.entity)
    found = {
        robot.joint_names[joint]: _law(env, actuator, k)
        for actuator in robot.actuators.values()
        for k, joint in enumerate(actuator.joint_ids)
    }
    return [{"joint": name, "target": term.target, **found[name]} for name in term.joint_names]


def _law(env: ManagerBasedRlEnv, actuator: drives.Actuator, k: int) -> dict[str, Any]:
    """What turns a target of the actuator's k-th joint into a control."""
    ctrl = int(actuator.ctrl_ids[k])
    if type(actuator) is drives.ImplicitActuator:
        return {"ctrl": ctrl, "law": "model", "factor": 1.0}
    if type(actuator) is drives.XmlActuator:
        return {"ctrl": ctrl, "law": "model", "factor": float(actuator.factor[k])}
    if type(actuator) not in (drives.IdealPdActuator, drives.DcMotorActuator):
        raise UsageError(f"the page cannot drive {actuator.joint_names[k]} by a {type(actuator).__name__}")
    robot = actuator.articulation
    joint = env.scene.engine.model.joint(f"{robot.name}/{actuator.joint_names[k]}")
    drive = {key: values[k] for key, values in actuator.drive().items()}
    law = {
        "ctrl": ctrl,
        "law": "pd",
        "qpos": int(joint.qposadr[0]),
        "qvel": int(joint.dofadr[0]),
        "rest": float(robot.default_joint_pos[0, actuator.joint_ids[k]]),
        "stiffness": drive["stiffness"],
        "damping": drive["damping"],
    }
    if isinstance(actuator, drives.DcMotorActuator):
        motor = {"stall": drive["saturation_effort"], "no_load_speed": drive["velocity_limit"]}
        law |= {"law": "motor", "limit": drive["effort_limit"], **motor}
    return law


def _controls(env: ManagerBasedRlEnv) -> tuple[list[dict[str, Any]], str | None]:
    """Sliders, and which command is a velocity of the robot."""
    controls, velocity = [], None
    for name, term in env.commands.terms.items():
        if isinstance(term, GaitClock):
            continue
        for column, control in enumerate(_sliders(term)):
            ends = {"low": control.low, "high": control.high}
            controls.append({"command": name, "column": column, "label": control.label, **ends})
        if isinstance(term, mdp.VelocityCommand):
            velocity = name
    return controls, velocity


def _sliders(term: CommandTerm) -> list[Any]:
    sliders = term.controls()
    if not sliders:
        raise UsageError(
            f"the page cannot ask for the command {term.name!r}, a {type(term).__name__}: it has no sliders"
        )
    return sliders


def _start(env: ManagerBasedRlEnv) -> np.ndarray:
    """Positions in the middle of the world, everything in its default state, `(nq,)`."""
    model = env.scene.engine.model
    qpos = model.qpos0.copy()
    for entity in env.scene.entities.values():
        for name, rest in zip(entity.joint_names, entity.default_joint_pos[0].tolist(), strict=True):
            qpos[model.joint(f"{entity.name}/{name}").qposadr[0]] = rest
        if not entity.is_fixed_base:
            at = _addresses(model, entity)["quat"] - 3
            qpos[at : at + 7] = entity.default_root_pose[0].double().cpu().numpy()
    return qpos


def _extent(model: mujoco.MjModel, start: np.ndarray, root: Articulation | None) -> dict[str, Any]:
    """How large what is seen is, m, and where its middle."""
    data = mujoco.MjData(model)
    data.qpos[:] = start
    mujoco.mj_kinematics(model, data)
    solid = model.geom_type != mujoco.mjtGeom.mjGEOM_PLANE
    places = data.geom_xpos[solid]
    middle = places.mean(axis=0) if root is None else data.xpos[root.root_id]
    reach = np.linalg.norm(places - middle, axis=1).max(initial=0.1)
    return {"size": round(2 * float(reach), 3), "middle": middle.tolist()}


# -- files that the browser can read


def readable(world: bytes) -> bytes:
    """MJCF as npm's older MuJoCo reads it: without the `input` of a general actuator, which its gains tell as well."""
    root = ET.fromstring(world)
    for actuator in root.iterfind("actuator/general"):
        actuator.attrib.pop("input", None)
    return ET.tostring(root)


def fetch(packages: Sequence[Package]) -> dict[str, bytes]:
    """The files of npm's packages that the page takes, by name, and a list of where they come from."""
    found: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        _run(
            ["npm", "pack", "--silent", "--prefer-offline", *(f"{one.name}@{one.version}" for one in packages)], folder
        )
        for package in packages:
            archive = Path(folder) / f"{package.name.strip('@').replace('/', '-')}-{package.version}.tgz"
            data = archive.read_bytes()
            if f"sha512-{base64.b64encode(hashlib.sha512(data).digest()).decode()}" != package.integrity:
                raise GenelabError(
                    f"npm gave another {package.name} {package.version} than the one this page was made for"
                )
            with tarfile.open(archive) as members:
                for name, path in package.files.items():
                    member = members.extractfile(f"package/{path}")
                    assert member is not None
                    found[name] = member.read()
    about = [{"name": one.name, "version": one.version, "license": one.licence} for one in packages]
    return {**found, "packages.json": (json.dumps(about, indent=2) + "\n").encode()}


_TRY = """
import { readFileSync } from "node:fs";
import load from "./mujoco.mjs";
const mujoco = await load({ wasmBinary: readFileSync("mujoco.wasm") });
for (const path of JSON.parse(readFileSync("files.json"))) {
  const folder = path.split("/").slice(0, -1).join("/");
  if (folder && !mujoco.FS.analyzePath("/" + folder).exists) mujoco.FS.mkdir("/" + folder);
  mujoco.FS.writeFile("/" + path, readFileSync(path));
}
try {
  const model = mujoco.MjModel.from_xml_path("/world.xml");
  console.log(model.nq, model.nv, model.nu);
} catch (error) {
  console.error(error.message);
  process.exit(1);
}
"""


def try_world(world: Mapping[str, bytes], vendor: Mapping[str, bytes]) -> None:
    """Refuse a world that npm's MuJoCo cannot read."""
    with tempfile.TemporaryDirectory() as folder:
        files = {**world, "mujoco.mjs": vendor["mujoco.js"], "mujoco.wasm": vendor["mujoco.wasm"]}
        files |= {"try.mjs": _TRY.encode(), "files.json": json.dumps(list(world)).encode()}
        for name, data in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        _run(["node", "try.mjs"], folder)


def _run(words: Sequence[str], folder: str) -> None:
    """Run a program, and say its last words if it fails."""
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=_NPM_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise GenelabError(f"{words[0]} was not done after {_NPM_SECONDS} s") from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["it says nothing"]
        raise GenelabError(f"{words[0]} failed: {' '.join(' '.join(said).split())[:300]}")
