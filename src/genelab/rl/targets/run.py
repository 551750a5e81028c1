"""Run an exported policy in plain MuJoCo, from its metadata alone.

    python run.py --command 0.5 0 0 --seconds 10
    python run.py --script "0.5 0 0: 5, 0 0 1: 5"
    python run.py --directions            # the fastest command either way along each axis, by itself
    python run.py --window                # steer with the arrow keys
    python run.py --episodes 16           # whole episodes, or of a policy that follows a motion the whole motion

It needs mujoco, onnxruntime and numpy, and beside it `policy.onnx`, `policy.onnx.metadata.json`, `world.xml`, and where
the metadata speak of tables `tables.npz`. This is the check of a policy outside the lab, and where a program for a real
robot starts: `Simulation.read_sensors` and `Simulation.write_motors` are the two functions to replace.

An export is checked before it runs: its files against `manifest.json`, the network against the golden rows, and the
whole loop (sensors, network, targets, drives, physics) against a recorded rollout. What fails is not run. NaN in an
observation, an action, a target or a torque stops the program before it reaches a drive. Exit codes: 0, 1 for a run
that failed, 2 for bad input.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import math
import os
import re
import stat
import subprocess
import sys
import time
import traceback
import warnings
import xml.etree.ElementTree as ET
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import numpy as np

Array = np.ndarray
Command = dict[str, Array]
"""What is asked for, by the name of the command."""


MOTION_ENDED = "motion_ended"
"""The end of who followed a motion to its last frame."""


class Refused(Exception):
    """Bad input, in one line: exit code 2."""


class Stopped(Exception):
    """A run that failed, in one line: exit code 1."""


# -- the files of an export

SCHEMA = 2
"""Version of the metadata that this program knows: 2 has a rollout of the whole loop, 1 has golden rows alone."""
POLICY, METADATA, WORLD, TABLES = "policy.onnx", "policy.onnx.metadata.json", "world.xml", "tables.npz"
MANIFEST = "manifest.json"
LARGEST = {POLICY: 2**30, METADATA: 2**26, MANIFEST: 2**26, WORLD: 2**28, TABLES: 2**30}
"""Bytes; no export of ours comes near."""
EDITED = ("README.md",)
"""Files that people edit after the export: a difference from the manifest is noted, not refused."""
MACROS = ("attach", "composite", "flexcomp", "include", "replicate")
"""Elements of MJCF that one line can make a million bodies of, or that read other files. Exports have them expanded."""
COMPILE_SECONDS, COMPILE_BYTES = 60, 4 * 2**30
"""What compiling a world may take."""
COMPILE = """
import sys
sys.path[:] = {path!r}
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
except (ImportError, ValueError, OSError):
    pass
import mujoco, numpy
try:
    model = mujoco.MjModel.from_xml_path({world!r})
    data = numpy.empty(mujoco.mj_sizeModel(model), numpy.uint8)
    mujoco.mj_saveModel(model, None, data)
    mujoco.MjData(model)
except Exception as error:
    sys.exit(" ".join(str(error).split()) or type(error).__name__)
sys.stdout.buffer.write(data)
"""
"""The program that compiles a world in a process of its own: native code that hangs or dies does so there."""
GOLDEN_TOLERANCE = 1e-3
"""Largest tolerance that golden rows may state."""
ROLLOUT_STEPS = 16
ROLLOUT_TOLERANCES = {
    "command": 1e-6,
    "positions": 1e-6,
    "velocities": 1e-6,
    "observations": 1e-3,
    "actions": 1e-3,
    "controls": 1e-3,
    "positions_after": 1e-4,
    "velocities_after": 1e-3,
}
"""Largest difference from a recorded control step, absolute up to 1 and relative above it. An error of 1e-6 in the
network's answers is 1e-5 in velocities; 1 % of gravity, 2 % of mass or gains of a walking robot are 1e-2 or more."""
BOUNDS: dict[str, tuple[float, float]] = {
    "step_dt": (1e-4, 1.0),
    "physics_dt": (1e-5, 0.1),
    "decimation": (1, 1000),
    "obs_dim": (1, 1e5),
    "action_dim": (1, 1e4),
    "history_length": (1, 1000),
    "frames": (1, 1e6),
    "frequency": (1e-3, 100.0),
    "run_out": (0.0, 60.0),
    "swing_share": (1e-3, 0.999),
    "share": (-10.0, 10.0),
    "scale": (-1e4, 1e4),
    "offset": (-1e4, 1e4),
    "stiffness": (0.0, 1e6),
    "damping": (0.0, 1e6),
    "acceleration": (0.0, 1e4),
    "episode_length_s": (1e-3, 1e6),
}
"""Sane values of numbers of the metadata, by the key that they stand under."""
MOST = 1e9
"""Largest magnitude of any other number of the metadata."""
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that would write to a terminal what they are not."""


def read_file(path: Path) -> bytes:
    """Return the content of a file of an export, of limited size."""
    if not path.is_file():
        raise Refused(f"{path} is missing or no regular file: export it again")
    if path.stat().st_size > LARGEST.get(path.name, 2**30):
        raise Refused(f"{path} has {path.stat().st_size} bytes, more than any export")
    return path.read_bytes()


def read_json(path: Path) -> dict[str, Any]:
    """Return an object of JSON without NaN, infinities and control characters."""

    def number(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            raise Refused(f"{path}: {text[:20]} is no number")
        return value

    def integer(text: str) -> int:
        number(text)
        return int(text)

    data = read_file(path)
    try:
        value = json.loads(data, parse_float=number, parse_int=integer, parse_constant=number)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Refused(f"{path} holds a {type(value).__name__}, not an object")
    return value


def check_manifest(folder: Path) -> str | None:
    """Compare every file with `manifest.json`, if there is one.

    Returns:
        A line that says what was compared, None without a manifest.
    """
    path = folder / MANIFEST
    if not os.path.lexists(path):
        return None
    listed = read_json(path).get("files")
    if not isinstance(listed, dict):
        raise Refused(f"{path} lists no files")
    for name, entry in listed.items():
        if PurePosixPath(name).is_absolute() or {"..", "\\"} & set(PurePosixPath(name).parts):
            raise Refused(f"{path}: {name!r} is no file of the folder")
        if not (folder / name).is_file():
            raise Refused(f"{path}: {name} is missing")
        if hashlib.sha256(read_file(folder / name)).hexdigest() != dict(entry).get("sha256"):
            if name not in EDITED:
                raise Refused(f"{path}: {name} is not the file that was exported, its SHA-256 is another")
            print(f"note: {name} was changed after the export", file=sys.stderr)
    read = [POLICY, METADATA, WORLD, *([TABLES] if (folder / TABLES).exists() else [])]
    read += [asset.relative_to(folder).as_posix() for asset in (folder / "assets").rglob("*") if asset.is_file()]
    for name in read:
        if name not in listed:
            raise Refused(f"{path} does not list {name}: it was added after the export")
    return f"{MANIFEST}: {len(listed)} files agree, its own SHA-256 is {hashlib.sha256(path.read_bytes()).hexdigest()}"


def read_metadata(folder: Path) -> dict[str, Any]:
    """Return the metadata of the policy in a folder, with every number in its bounds."""
    missing = [name for name in (POLICY, METADATA, WORLD) if not (folder / name).is_file()]
    if missing:
        raise Refused(f"{folder} has no {' and no '.join(missing)}: genelab export TASK CKPT --for mujoco makes it")
    path = folder / METADATA
    about = read_json(path)
    if "golden" not in about or "start" not in about:
        raise Refused(f"{folder}: the metadata are of an older export: export it again")
    version = about.get("schema_version", 1)
    if version not in range(1, SCHEMA + 1):
        raise Refused(
            f"{path}: schema_version {version!r} is unknown, this program knows up to {SCHEMA}: update genelab"
        )
    if version >= 2 and "rollout" not in about:
        raise Refused(f"{path}: the rollout of the whole loop is missing: export it again")
    check_values(about, path)
    period = about["decimation"] * about["physics_dt"]
    if not math.isclose(about["step_dt"], period, rel_tol=1e-6):
        raise Refused(f"{path}: step_dt {about['step_dt']:g} is not decimation * physics_dt, {period:g}")
    return about


def check_values(value: Any, file: Path, *place: str) -> None:
    """Refuse numbers out of their bounds and texts with control characters, anywhere in the metadata."""
    if isinstance(value, dict):
        for name, inner in value.items():
            check_values(name, file, *place)
            check_values(inner, file, *place, name)
    elif isinstance(value, list):
        for inner in value:
            check_values(inner, file, *place)
    elif isinstance(value, str):
        if CONTROL.search(value):
            raise Refused(f"{file}: {'.'.join(place)}: the text {value[:40]!r} has control characters")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        low, high = BOUNDS.get(place[-1], (-MOST, MOST))
        if not low <= value <= high:
            raise Refused(f"{file}: {'.'.join(place)}: {value:g} is not between {low:g} and {high:g}")


def read_tables(folder: Path, about: dict[str, Any]) -> dict[str, Array]:
    """Return the numbers that are too many for the metadata."""
    if not about.get("tables"):
        return {}
    path = folder / TABLES
    if not path.is_file():
        raise Refused(f"{folder} has no tables.npz, which its metadata speak of: export it again")
    try:
        with zipfile.ZipFile(io.BytesIO(read_file(path))) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > LARGEST[TABLES]:
                raise Refused(f"{path} unpacks to more than any export has")
        with np.load(path, allow_pickle=False) as file:
            tables = {name: file[name] for name in file.files}
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError) as error:
        raise Refused(f"{path} is damaged: {error}") from error
    for name, shape in about["tables"].items():
        found = list(tables[name].shape) if name in tables else None
        if found != shape:
            raise Refused(f"{path}: the table {name} is of shape {found}, its metadata say {shape}")
        if tables[name].dtype.kind not in "biuf" or not np.isfinite(tables[name]).all():
            raise Refused(f"{path}: the table {name} has entries that are no numbers")
    return tables


def load_world(path: Path) -> Any:
    """Compile a world in a process of its own, with limits of time and memory, and return MuJoCo's model.

    MuJoCo cannot be interrupted while it compiles, and a few lines of MJCF can ask for millions of bodies.
    """
    import mujoco

    check_world(path)
    code = COMPILE.format(path=sys.path, memory=COMPILE_BYTES, world=str(path.resolve()))
    try:
        child = subprocess.run(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMPILE_SECONDS,
            env={**os.environ, "MUJOCO_GL": "disable"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Refused(f"{path}: MuJoCo has not compiled it after {COMPILE_SECONDS} s") from None
    if child.returncode != 0:
        said = child.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {child.returncode}"]
        raise Refused(f"{path}: MuJoCo cannot load it: {said[0]}")
    model = mujoco.MjModel.from_binary_path("world.mjb", {"world.mjb": child.stdout})
    for name in ("iterations", "ls_iterations", "noslip_iterations", "ccd_iterations", "sdf_iterations"):
        if getattr(model.opt, name, 0) > 10_000:
            raise Refused(f"{path}: option {name} is {getattr(model.opt, name)}, more than 10000")
    if not np.linalg.norm(model.opt.gravity) <= 100.0:
        raise Refused(f"{path}: gravity {model.opt.gravity.tolist()} is more than 100 m/s²")
    return model


def check_world(path: Path) -> None:
    """Refuse MJCF that an export cannot have: macros, and files outside of the folder."""
    data = read_file(path)
    if b"<!DOCTYPE" in data:
        raise Refused(f"{path}: exports have no DOCTYPE")
    try:
        root = ET.fromstring(data)
    except (ET.ParseError, ValueError) as error:
        raise Refused(f"{path} is not XML: {error}") from error
    for element in root.iter():
        if element.tag in MACROS:
            raise Refused(f"{path}: exports have no <{element.tag}>")
        for key, value in element.attrib.items():
            if key.startswith("file") or key in ("meshdir", "texturedir", "assetdir"):
                inside = PurePosixPath(value.replace("\\", "/"))
                if inside.is_absolute() or ".." in inside.parts:
                    raise Refused(f"{path}: {value} is not a file of the folder")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file by another name first, so that an older one is replaced at once or not at all."""
    target = checked_place(path)
    temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise Stopped(f"cannot write {path}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def checked_place(path: Path) -> Path:
    """Return where a file is to be written, links followed; refuse what cannot be written in the end."""
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            raise Refused(f"cannot write {path}: it is {'a directory' if target.is_dir() else 'no regular file'}")
        probe = target.with_name(f".{target.name}.{os.urandom(4).hex()}.tmp")
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}") from error
    return target


# -- the policy


class Policy:
    """The network: raw observations in, actions out. It is checked before it is used."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise Refused("onnxruntime is not installed: pip install onnxruntime") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # it is too small to share
        options.log_severity_level = 4  # what is wrong comes as an exception
        data = read_file(path)  # as bytes it cannot refer to other files
        try:
            self.session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has a kind for each of its codes
            raise Refused(f"{path}: onnxruntime cannot load it: {error}") from error
        (self.obs, *state) = self.session.get_inputs()
        if list(self.obs.shape[1:]) != [about["obs_dim"]]:
            width = " × ".join(map(str, self.obs.shape[1:]))
            raise Refused(f"{path}: takes {width} observations, its metadata say {about['obs_dim']}")
        self.shapes = {port.name: (port.shape[0], 1, port.shape[2]) for port in state}
        self.width = about["action_dim"]
        self.reset()
        self.check(about["golden"])

    def reset(self) -> None:
        """Forget: at the start of each episode."""
        self.state = {name: np.zeros(shape, np.float32) for name, shape in self.shapes.items()}

    def __call__(self, obs: Array) -> Array:
        actions, *after = self.session.run(None, {self.obs.name: obs[None].astype(np.float32), **self.state})
        if actions.shape != (1, self.width):
            raise Refused(f"the policy answers {list(actions.shape)}, its metadata say {[1, self.width]}")
        self.state = dict(zip(self.shapes, after, strict=True))
        return actions[0].astype(float)

    def check(self, golden: dict[str, Any]) -> None:
        """Refuse a file that is not the policy its metadata speak of."""
        if not golden["actions"]:
            raise Refused("the metadata have no golden rows: export it again")
        if not golden["tolerance"] <= GOLDEN_TOLERANCE:
            raise Refused(f"golden rows with a tolerance of {golden['tolerance']:g} prove nothing: export it again")
        rows = zip(golden["observations"], golden["actions"], golden["resets"], strict=True)
        for number, (seen, wanted, reset) in enumerate(rows):
            if reset:
                self.reset()
            error = float(np.abs(self(np.array(seen)) - wanted).max())
            if not error <= golden["tolerance"]:
                raise Refused(
                    f"the policy does not repeat golden row {number}: its actions differ by {error:.3g}, "
                    f"more than {golden['tolerance']:g}"
                )
        self.reset()


# -- the robot


class Motion:
    """A motion to follow: what is asked for with every control step, from tables."""

    def __init__(self, name: str, about: dict[str, Any], tables: dict[str, Array]) -> None:
        prefix = f"commands.{name}."
        self.about = about
        self.tables = {key.removeprefix(prefix): rows for key, rows in tables.items() if key.startswith(prefix)}
        missing = {"joint_pos", "joint_vel", "body_pos", "body_quat", "root_state"} - set(self.tables)
        if missing:
            raise Refused(f"the motion {name!r} has no table {min(missing)!r}: export it with --for mujoco")
        self.anchor = about["bodies"].index(about["anchor"])
        self.hands = [about["bodies"].index(body) for body in about["end_effectors"]]
        self.bodies = [f"{about['entity']}/{body}" for body in about["bodies"]]
        self.choose(0)

    def choose(self, clip: int) -> None:
        """Follow this one of its clips, from the start."""
        self.first = self.about["clips"][clip]["first"]
        self.last = self.first + self.about["clips"][clip]["frames"] - 1
        self.begin()

    def begin(self) -> None:
        """The robot is on the first frame, and is asked for the one after it."""
        self.frame = min(self.first + 1, self.last)

    def tick(self) -> None:
        """A control step has passed; the last frame stays."""
        self.frame = min(self.frame + 1, self.last)

    def now(self, table: str) -> Array:
        """What is asked for with this control step."""
        return self.tables[table][self.frame].astype(float)

    @property
    def command(self) -> Array:
        """As it is observed: joint positions, then velocities."""
        return np.concatenate((self.now("joint_pos"), self.now("joint_vel")))

    def too_far(self, end: dict[str, Any], places: Array, turns: Array) -> bool:
        """Whether the bodies, `(B, 3)` and `(B, 3, 3)`, are where the motion has them no longer, by an end of the
        metadata."""
        function, params = end["function"], end["params"]
        if function == "motion_anchor_tilted":
            _, x, y, _ = self.now("body_quat")[self.anchor]
            return bool(abs(1 - 2 * (x * x + y * y) - turns[self.anchor, 2, 2]) > params["limit"])
        chosen = {"motion_anchor_too_far": [self.anchor], "motion_end_effector_too_far": self.hands}.get(function, [])
        away = np.abs(self.now("body_pos") - places)[chosen, 2]
        return bool(len(away) and away.max() > params["distance"])


def check_finite(what: str, *values: Array) -> None:
    """Stop before a number that is NaN or infinite goes anywhere."""
    if not all(np.isfinite(one).all() for one in values):
        raise Stopped(f"{what} is NaN or infinite: nothing more is sent to the drives")


class Simulation:
    """The robot and its world in MuJoCo."""

    def __init__(self, model: Any, about: dict[str, Any], tables: dict[str, Array] | None = None) -> None:
        """Make the state of a world.

        Args:
            model: The compiled world, of `load_world`.
            about: The metadata.
            tables: What the metadata have in `tables.npz`.
        """
        import mujoco

        self.mj = mujoco
        self.about = about
        self.model = model
        self.model.opt.timestep = about["physics_dt"]
        self.data = mujoco.MjData(self.model)
        self._found: dict[Any, Any] = {}
        """What was looked up by name."""
        self.watch: Callable[[], None] = lambda: None
        """Called after every control step: a window draws."""
        self.drives = [
            Drive(self, name, group, drive)
            for name, group in about["entities"].items()
            for drive in group["drives"].values()
        ]
        self.tables = tables or {}
        self.motions = {
            name: Motion(name, one, self.tables)
            for name, one in about["commands"].items()
            if one["type"] == "MotionCommand"
        }
        if self.model.nhfield:
            rows, columns = int(self.model.hfield_nrow[0]), int(self.model.hfield_ncol[0])
            self.heights = self.model.hfield_data[: rows * columns].reshape(rows, columns)
            self.base = float(self.model.geom_pos[self.model.geom_type == mujoco.mjtGeom.mjGEOM_HFIELD][0][2])

    def read_sensors(self, source: dict[str, Any]) -> Array:
        """What a `source` of the metadata measures now: joints, a gyroscope, the direction of gravity, places."""
        kind = source["kind"]
        if kind in ("joint_pos", "joint_vel", "mean_sine_cosine"):
            values = self.joints(source["entity"], source["joints"], "vel" if kind == "joint_vel" else "pos")
            if kind == "mean_sine_cosine":
                return np.array([np.sin(values).mean(), np.cos(values).mean()])
            return values - np.array(source["minus"])
        if kind == "difference":
            return self.read_sensors(source["to"]) - self.read_sensors(source["from"])
        body = self.body(source["body"])
        own, turned = self.data.xpos[body], self.data.xmat[body].reshape(3, 3)
        place = own + turned @ source["pos"] if any(source.get("pos", ())) else own
        turned = turned @ self._turn(source["rot"]) if "rot" in source else turned  # the sensor's frame in the world
        if kind == "gravity":
            return turned.T @ np.array([0.0, 0.0, -1.0])
        if kind == "pos":
            return place.copy()
        if kind in ("motion_anchor_pos", "motion_anchor_ori"):
            follows, asked = self.motions[source["command"]], np.zeros(9)
            if kind == "motion_anchor_pos":
                return turned.T @ (follows.now("body_pos")[follows.anchor] - place)
            self.mj.mju_quat2Mat(asked, follows.now("body_quat")[follows.anchor])
            return (turned.T @ asked.reshape(3, 3))[:, :2].ravel()
        if kind == "height_scan":
            heading = math.atan2(turned[1, 0], turned[0, 0])
            across = np.array([[math.cos(heading), -math.sin(heading)], [math.sin(heading), math.cos(heading)]])
            points = place[:2] + np.array(source["points"]) @ across.T
            below = place[2] - self.ground(points)
            return np.clip(below, -source["max_distance"], source["max_distance"]) - source["minus"]
        motion = np.zeros(6)  # turning, moving
        self.mj.mj_objectVelocity(self.model, self.data, self.mj.mjtObj.mjOBJ_XBODY, body, motion, 0)
        if kind == "ang_vel":
            return turned.T @ motion[:3]
        if kind in ("lin_vel", "lin_vel_w"):
            moved = motion[3:] if place is own else motion[3:] + np.cross(motion[:3], place - own)
            return moved if kind == "lin_vel_w" else turned.T @ moved
        raise Refused(f"no sensor is known for {kind!r}: add it to read_sensors")

    def write_motors(self, targets: dict[str, dict[str, Array]]) -> None:
        """Give the drives their targets, position, velocity or effort by joint, and let one control period pass."""
        for drive in self.drives:
            drive.take(targets)
        for _ in range(self.about["decimation"]):
            for drive in self.drives:
                drive.act()
            check_finite("a control of the drives", self.data.ctrl)
            self.mj.mj_step(self.model, self.data)
        check_finite("the state after a control step", self.data.qpos, self.data.qvel)
        self.look()
        self.watch()

    def look(self) -> None:
        """Positions and velocities of all bodies, as the joints are now."""
        for update in (self.mj.mj_kinematics, self.mj.mj_comPos, self.mj.mj_comVel):
            update(self.model, self.data)

    def joints(self, entity: str, names: Sequence[str], what: str = "pos") -> Array:
        """Positions or velocities of joints."""
        key = entity, *names
        if key not in self._found:
            found = [self.model.joint(f"{entity}/{name}") for name in names]
            self._found[key] = np.array([(joint.qposadr[0], joint.dofadr[0]) for joint in found], dtype=int).T
        places, speeds = self._found[key]
        return self.data.qpos[places] if what == "pos" else self.data.qvel[speeds]

    def body(self, name: str) -> int:
        """The number of a body."""
        if name not in self._found:
            self._found[name] = self.model.body(name).id
        return int(self._found[name])

    def ground(self, points: Array) -> Array:
        """Height of the ground below points `(..., 2 or 3)`, m: of the height field, between its points bilinear."""
        x, y = points[..., 0], points[..., 1]
        if not self.model.nhfield:
            return np.zeros_like(x)
        rows, columns = self.heights.shape
        half_x, half_y, span, _ = self.model.hfield_size[0]
        x = np.clip((x + half_x) / (2 * half_x) * (columns - 1), 0, columns - 1.000001)
        y = np.clip((y + half_y) / (2 * half_y) * (rows - 1), 0, rows - 1.000001)
        i, j = y.astype(int), x.astype(int)
        u, v = y - i, x - j
        upper = self.heights[i, j] * (1 - v) + self.heights[i, j + 1] * v
        lower = self.heights[i + 1, j] * (1 - v) + self.heights[i + 1, j + 1] * v
        return self.base + span * (upper * (1 - u) + lower * u)

    def reset(self, rng: np.random.Generator) -> list[str]:
        """Put everything where an episode begins; says which events of the metadata are not known here."""
        start, unknown = self.about["start"], []
        self.mj.mj_resetData(self.model, self.data)
        for name, state in start["entities"].items():
            if state["root_pos"] is not None:
                root = self._root(name)
                self.data.qpos[root : root + 3] = np.add(state["root_pos"], start["origin"])
                self.data.qpos[root + 3 : root + 7] = state["root_quat"]
            for joint, position in zip(state["joint_names"], state["joint_pos"], strict=True):
                self.data.joint(f"{name}/{joint}").qpos = position
        for event in start["events"]:
            if not self._happens(event, rng):
                unknown.append(event["name"])
        for drive in self.drives:
            drive.take({})
        self.mj.mj_forward(self.model, self.data)
        return unknown

    def _happens(self, event: dict[str, Any], rng: np.random.Generator) -> bool:
        params, start = event["params"], self.about["start"]["entities"]
        asset = params.get("asset") or {"name": "robot", "joint_names": None}
        if event["function"] == "reset_joints_by_offset" and asset["joint_names"] is None:
            for joint in start[asset["name"]]["joint_names"]:
                handle = self.data.joint(f"{asset['name']}/{joint}")
                handle.qpos += rng.uniform(*params["position_range"])
                handle.qvel += rng.uniform(*params["velocity_range"])
            return True
        if event["function"] == "reset_to_motion" and not (params.get("pose_range") or params.get("velocity_range")):
            self.put_on(self.motions[params["command"]])
            return True
        if event["function"] == "reset_root_uniform" and not params.get("velocity_range"):
            drawn = {axis: rng.uniform(*ends) for axis, ends in params["pose_range"].items()}
            root = self._root(asset["name"])
            place = self.data.qpos[root : root + 3]
            place += [drawn.get(axis, 0.0) for axis in "xyz"]
            place[2] += max(float(self.ground(place)) - self.about["start"]["origin"][2], 0.0)
            self._yaw(root, drawn.get("yaw", 0.0))
            return set(drawn) <= {"x", "y", "z", "yaw"}
        return False

    def put_on(
        self, motion: Motion, off: dict[str, float] | None = None, rng: np.random.Generator | None = None
    ) -> None:
        """Put a robot on the first frame of a motion, or off that by at most so much."""
        entity, names = motion.about["entity"], motion.about["joint_names"]
        root, state = self._root(entity), motion.tables["root_state"][motion.first].astype(float)
        joints = motion.tables["joint_pos"][motion.first].astype(float)
        speeds = motion.tables["joint_vel"][motion.first]
        self.data.qpos[root : root + 7] = state[:7]
        self.data.qpos[root : root + 3] += self.about["start"]["origin"]
        if off is not None and rng is not None:
            self.data.qpos[root : root + 2] += [rng.uniform(-off[axis], off[axis]) for axis in "xy"]
            self._yaw(root, rng.uniform(-off["yaw"], off["yaw"]))
            low, high = np.array(self.about["entities"][entity]["joint_pos_limits"], dtype=float).T
            joints = np.clip(joints + rng.uniform(-off["joints"], off["joints"], len(joints)), low, high)
        dof = self.model.jnt_dofadr[self.model.jnt_qposadr == root][0]
        turned = np.zeros(9)
        self.mj.mju_quat2Mat(turned, self.data.qpos[root + 3 : root + 7])
        self.data.qvel[dof : dof + 3] = state[7:10]
        self.data.qvel[dof + 3 : dof + 6] = turned.reshape(3, 3).T @ state[10:]  # MuJoCo has it in the body's frame
        for name, position, speed in zip(names, joints, speeds, strict=True):
            handle = self.data.joint(f"{entity}/{name}")
            handle.qpos, handle.qvel = position, speed
        self.mj.mj_forward(self.model, self.data)

    def put(self, entity: str, pose: Array) -> None:
        """Put the root of a robot somewhere else: position and quaternion."""
        root = self._root(entity)
        self.data.qpos[root : root + 7] = pose
        self.mj.mj_forward(self.model, self.data)

    def _yaw(self, root: int, angle: float) -> None:
        """Turn a free root about the vertical."""
        turned = np.zeros(4)
        yaw = np.array([math.cos(angle / 2), 0.0, 0.0, math.sin(angle / 2)])
        self.mj.mju_mulQuat(turned, yaw, self.data.qpos[root + 3 : root + 7].copy())
        self.data.qpos[root + 3 : root + 7] = turned

    def _root(self, entity: str) -> int:
        """Where the free root of an entity begins in the positions."""
        for i in range(self.model.njnt):
            joint = self.model.joint(i)
            if joint.name.startswith(f"{entity}/") and joint.type[0] == self.mj.mjtJoint.mjJNT_FREE:
                return int(joint.qposadr[0])
        raise Refused(f"{entity} has no free root in the model")

    def _turn(self, rot: Sequence[float]) -> Array:
        matrix, quat = np.zeros(9), np.array(rot)
        self.mj.mju_quat2Mat(matrix, quat / np.linalg.norm(quat))
        return matrix.reshape(3, 3)

    def ended(self) -> str | None:
        """Which end of the metadata is reached, if it is one that this program knows."""
        for end in self.about["ends"]:
            params = end["params"]
            asset = params.get("asset") or {"name": "robot", "joint_names": None}
            start = self.about["start"]["entities"].get(asset["name"])
            if end["function"] == "joint_pos_beyond" and start is not None:
                names = asset["joint_names"] or start["joint_names"]
                if np.abs(self.joints(asset["name"], names)).max() > params["bound"]:
                    return end["name"]
            if end["function"] in ("bad_orientation", "root_too_low"):
                root = self._root(asset["name"])
                place, (_, x, y, _) = self.data.qpos[root : root + 3], self.data.qpos[root + 3 : root + 7]
                if end["function"] == "bad_orientation" and 1 - 2 * (x * x + y * y) < math.cos(params["limit"]):
                    return end["name"]
                if end["function"] == "root_too_low" and place[2] - self.ground(place) < params["height"]:
                    return end["name"]
            motion = self.motions.get(params.get("command", ""))
            if motion is not None and motion.too_far(end, *self.places(motion.bodies)):
                return end["name"]
        return MOTION_ENDED if any(motion.frame == motion.last for motion in self.motions.values()) else None

    def places(self, bodies: Sequence[str]) -> tuple[Array, Array]:
        """Positions and orientations of bodies, `(B, 3)` and `(B, 3, 3)`."""
        ids = [self.body(body) for body in bodies]
        return self.data.xpos[ids], self.data.xmat[ids].reshape(-1, 3, 3)


class Robot(Simulation):
    """The robot that runs, here the simulated one. For a real one replace these two functions: the rollout that checks
    an export before it runs is made by `Simulation` and never moves a motor."""

    def read_sensors(self, source: dict[str, Any]) -> Array:
        """Ask the sensors for what a `source` of the metadata measures."""
        return super().read_sensors(source)

    def write_motors(self, targets: dict[str, dict[str, Array]]) -> None:
        """Give the drives their targets, by kind and joint, and wait for the control period to pass."""
        super().write_motors(targets)


class Drive:
    """The drives of some joints. Servos are in the model; a PD or a DC motor computes its torque before every step."""

    SERVOS = ("ImplicitPdActuatorCfg", "ImplicitVelocityActuatorCfg")
    MOTORS = ("IdealPdActuatorCfg", "DcMotorActuatorCfg")

    def __init__(self, robot: Simulation, entity: str, group: dict[str, Any], drive: dict[str, Any]) -> None:
        if drive["type"] not in self.SERVOS + self.MOTORS:
            raise Refused(f"the drive {drive['type']} is not known here: {drive['law']}")
        self.robot, self.entity, self.kind, self.names = robot, entity, drive["type"], drive["joint_names"]
        columns = [group["joint_names"].index(name) for name in self.names]

        def numbers(key: str) -> Array:
            values = group.get(key) or [None] * len(group["joint_names"])
            return np.array([math.inf if values[i] is None else values[i] for i in columns])

        self.stiffness, self.damping = numbers("stiffness"), numbers("damping")
        self.limit, self.stall, self.speed = (
            numbers(key) for key in ("effort_limit", "saturation_effort", "velocity_limit")
        )
        self.rest = np.array([group["default_joint_pos"][i] for i in columns])
        self.ctrl = [robot.model.actuator(f"{entity}/{name}").id for name in self.names]
        self.take({})

    def take(self, targets: dict[str, dict[str, Array]]) -> None:
        """Keep the targets of its joints; without one a joint stays at its default."""

        def of(kind: str, default: Array) -> Array:
            given = targets.get(kind, {})
            values = [
                given.get(f"{self.entity}/{name}", start) for name, start in zip(self.names, default, strict=True)
            ]
            return np.array(values)

        nothing = np.zeros(len(self.names))
        self.pos, self.vel, self.effort = of("position", self.rest), of("velocity", nothing), of("effort", nothing)

    def act(self) -> None:
        """Write the model's controls for the next physics step."""
        if self.kind in self.SERVOS:
            self.robot.data.ctrl[self.ctrl] = self.vel if self.kind == "ImplicitVelocityActuatorCfg" else self.pos
            return
        pos, vel = (self.robot.joints(self.entity, self.names, what) for what in ("pos", "vel"))
        torque = self.stiffness * (self.pos - pos) + self.damping * (self.vel - vel) + self.effort
        low, high = -self.limit, self.limit
        if self.kind == "DcMotorActuatorCfg":
            high = np.clip(self.stall * (1.0 - vel / self.speed), -self.limit, self.limit)
            low = np.clip(self.stall * (-1.0 - vel / self.speed), -self.limit, self.limit)
        self.robot.data.ctrl[self.ctrl] = np.clip(torque, low, high)


# -- from commands to targets


class Clock:
    """A gait clock: when each foot is to be in the air."""

    def __init__(self, about: dict[str, Any], step_dt: float) -> None:
        self.about, self.dt = about, step_dt
        self.reset()

    def reset(self) -> None:
        """Nobody begins running."""
        self.phase, self.resting, self.runs = 0.0, self.about["run_out"], False

    def tick(self, command: Array) -> None:
        """A control step has passed, and this is asked for now.

        The phase grows at rest, too, before `see` puts it back to 0: the first step of a walk shows it one step on.
        """
        self.phase += self.about["frequency"] * self.dt
        self.resting += self.dt
        self.see(command)

    def see(self, command: Array) -> None:
        """Whether it is to run."""
        axes = self.about["command_axes"]
        asked = np.linalg.norm(command if axes is None else command[list(axes)]) > self.about["threshold"]
        self.resting = 0.0 if asked else self.resting
        end = 1.0 if self.about["run_out"] > 0 else 0.0
        self.runs = bool(asked or self.resting < self.about["run_out"] or (self.runs and self.phase < end))
        self.phase = self.phase % 1.0 if self.runs else 0.0

    @property
    def shown(self) -> Array:
        """Sine and cosine, zeros at rest."""
        angle = 2 * math.pi * self.phase
        return np.array([math.sin(angle), math.cos(angle)]) * self.runs


class Controller:
    """What runs on the robot: observations from sensors and commands, targets from actions."""

    def __init__(self, robot: Simulation, policy: Policy, about: dict[str, Any]) -> None:
        self.robot, self.policy, self.about = robot, policy, about
        self.clocks = {
            name: Clock(one, about["step_dt"]) for name, one in about["commands"].items() if one["type"] == "GaitClock"
        }
        for group in about["obs_groups"].values():
            for term in group["terms"]:
                if term["source"] is None:
                    raise Refused(f"the metadata do not tell how the observation {term['name']!r} is made")
        for action in about["actions"]:
            if action["type"] not in ACTIONS:
                raise Refused(f"the action {action['type']} is not known here: {action['formula']}")
        self.frames: dict[str, list[Array]] = {}
        self.seen = np.zeros(about["obs_dim"])
        self.reset()

    def reset(self) -> None:
        """An episode begins."""
        self.policy.reset()
        self.frames.clear()
        self.last = np.zeros(self.about["action_dim"])
        self.speed: dict[str, Array] = {}
        self.held: dict[str, Array] = {}
        self.past: dict[str, list[Array]] = {}
        self.steps = 0
        for clock in self.clocks.values():
            clock.reset()
        for motion in self.robot.motions.values():
            motion.begin()

    def step(self, command: Command) -> None:
        """One control period: observe, act, move."""
        for clock in self.clocks.values():
            asked = command[clock.about["command"]]
            clock.tick(asked) if self.steps else clock.see(asked)
        for motion in self.robot.motions.values() if self.steps else ():
            motion.tick()
        self.seen = self.observe(command)
        check_finite("an observation", self.seen)
        self.last = self.policy(self.seen)
        check_finite("an action of the policy", self.last)
        targets: dict[str, dict[str, Any]] = {}
        for action in self.about["actions"]:
            columns = self.last[action["start"] : action["start"] + action["dim"]]
            values = ACTIONS[action["type"]](self, action, columns, command)
            check_finite(f"a target of the action {action['name']!r}", values)
            names = [f"{action['entity']}/{name}" for name in action["joint_names"]]
            targets.setdefault(action["target"], {}).update(zip(names, values, strict=True))
        self.robot.write_motors(targets)
        self.steps += 1

    def observe(self, command: Command) -> Array:
        """The network's input, raw: groups side by side, of each the last frames, the oldest first."""
        parts = []
        for name, group in self.about["obs_groups"].items():
            frame = np.concatenate([self.reading(term["source"], command) for term in group["terms"]])
            frames = self.frames.setdefault(name, [frame] * group["history_length"])
            self.frames[name] = [*frames[1:], frame] if self.steps else frames
            parts += self.frames[name]
        return np.concatenate(parts)

    def reading(self, source: dict[str, Any], command: Command) -> Array:
        """What one term of the observation is now."""
        if source["kind"] == "last_action":
            return self.last
        if source["kind"] == "command":
            if source["command"] in self.robot.motions:
                return self.robot.motions[source["command"]].command
            clock = self.clocks.get(source["command"])
            return command[source["command"]] if clock is None else clock.shown
        if source["kind"] == "time_left":
            return np.array([1.0 - self.steps * self.about["step_dt"] / self.about["episode_length_s"]])
        return self.robot.read_sensors(source)


Law = Callable[[Controller, dict[str, Any], Array, Command], Array]


def linear(controller: Controller, about: dict[str, Any], action: Array, command: Command) -> Array:
    """Offset + scale · clipped action."""
    if about["clip"] is not None:
        low, high = about["clip"]
        action = np.clip(action, -math.inf if low is None else low, math.inf if high is None else high)
    return np.array(about["offset"]) + np.array(about["scale"]) * action


def scripted(controller: Controller, about: dict[str, Any], action: Array, command: Command) -> Array:
    """The same on top of a step that the gait clock makes."""
    clock = controller.clocks[about["clock"]]
    asked, swing = command[clock.about["command"]], clock.about["swing_share"]
    frames = about.get("frames", 1)
    past = controller.past[about["name"]] = [*controller.past.get(about["name"], [asked] * frames)[1:], asked]
    asked = np.mean(past, axis=0)
    added = np.abs(asked) @ np.array(about["spread"])
    for foot, step in about["steps"].items() if clock.runs else ():
        x = (clock.phase + clock.about["offsets"][foot]) % 1.0
        y = (x + about["lead"]) % 1.0
        lift = math.sin(math.pi * x / swing) ** 2 if x < swing else 0.0
        sweep = -math.cos(math.pi * y / swing) if y < swing else 1.0 - 2.0 * (y - swing) / (1.0 - swing)
        added = added + lift * np.array(step) + sweep * (asked @ np.array(about["strides"][foot]))
    return linear(controller, about, action, command) + about["share"] * added


def rolling(controller: Controller, about: dict[str, Any], action: Array, command: Command) -> Array:
    """The same on top of wheels that roll as commanded."""
    speed = controller.speed.get(about["name"], np.zeros(about["dim"]))
    most = about["acceleration"] * controller.about["step_dt"]
    speed = speed + np.clip(command[about["command"]] @ np.array(about["rolls"]) - speed, -most, most)
    controller.speed[about["name"]] = speed
    return linear(controller, about, action, command) + about["share"] * speed


def following(controller: Controller, about: dict[str, Any], action: Array, command: Command) -> Array:
    """The same on top of a motion: its joints, ahead by what they move, and the torque that it takes."""
    motion, names = controller.robot.motions[about["command"]], about["joint_names"]
    columns = [motion.about["joint_names"].index(name) for name in names]
    ahead = motion.now("joint_pos")[columns] + about["lead"] * motion.now("joint_vel")[columns]
    target = linear(controller, about, action, command) + about["share"] * (
        ahead - np.array(about["default_joint_pos"])
    )
    if about["feed_forward"]:
        group = controller.about["entities"][about["entity"]]
        gains = [group["stiffness"][group["joint_names"].index(name)] or math.inf for name in names]
        torque = controller.robot.tables[f"actions.{about['name']}.torque"][motion.frame]
        target = target + about["feed_forward"] * torque / gains
    return target


def inverse_kinematics(controller: Controller, about: dict[str, Any], action: Array, command: Command) -> Array:
    """One step of damped least squares that moves a point of the hand and keeps its orientation.

    It needs the arm's model and measured joint positions, on a real robot as well.
    """
    robot, entity = controller.robot, about["entity"]
    mj, model, data = robot.mj, robot.model, robot.data
    body = data.body(f"{entity}/{about['body']}")
    held = controller.held.setdefault(about["name"], body.xquat.copy())
    now = body.xquat
    turn = now[0] * held[1:] - held[0] * now[1:] + np.cross(now[1:], held[1:])
    wanted = np.concatenate((about["scale"] * np.clip(action, -1, 1), 2 * np.sign(now @ held) * turn))
    dofs = [model.joint(f"{entity}/{name}").dofadr[0] for name in about["joint_names"]]
    moves, turns = np.zeros((3, model.nv)), np.zeros((3, model.nv))
    point = body.xpos + body.xmat.reshape(3, 3) @ np.array(about["point"])
    mj.mj_jac(model, data, moves, turns, point, body.id)
    jacobian = np.vstack((moves, turns))[:, dofs]
    step = jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + about["damping"] ** 2 * np.eye(6), wanted)
    step *= about["max_joint_step"] / max(np.abs(step).max(), about["max_joint_step"])
    target = np.clip(robot.joints(entity, about["joint_names"]) + step, *np.array(about["joint_pos_limits"]).T)
    if about["compensate_gravity"]:
        still = mj.MjData(model)
        still.qpos[:] = data.qpos
        for update in (mj.mj_kinematics, mj.mj_comPos, mj.mj_crb, mj.mj_comVel):
            update(model, still)
        weight = np.zeros(model.nv)
        mj.mj_rne(model, still, 0, weight)
        group = controller.about["entities"][entity]
        gains = [group["stiffness"][group["joint_names"].index(name)] for name in about["joint_names"]]
        target = target + weight[dofs] / gains
    return target


def gripper(controller: Controller, about: dict[str, Any], action: Array, command: Command) -> Array:
    """All fingers ahead of their mean by what they may move in a control step."""
    opening = controller.robot.joints(about["entity"], about["joint_names"]).mean()
    target = opening + about["speed"] * controller.about["step_dt"] * np.clip(action, -1, 1)
    return np.clip(np.repeat(target, len(about["joint_names"])), *np.array(about["joint_pos_limits"]).T)


ACTIONS: dict[str, Law] = {
    "JointPositionAction": linear,
    "JointVelocityAction": linear,
    "JointEffortAction": linear,
    "ScriptedJointPositionAction": scripted,
    "RollingAction": rolling,
    "MotionJointPositionAction": following,
    "DifferentialIkAction": inverse_kinematics,
    "GripperAction": gripper,
}
"""From columns of the action to targets of joints, by the `type` of the metadata."""


# -- what is asked, and what became of it


class Steering:
    """What is asked for: one command that users set, the others as the metadata have them."""

    def __init__(self, about: dict[str, Any]) -> None:
        self.about = about
        mine = [name for name, one in about["commands"].items() if one["type"] != "GaitClock"]
        self.name = mine[0] if mine else None
        self.ranges = list(about["commands"][self.name]["ranges"].values()) if self.name else []
        self.is_velocity = self.name is not None and about["commands"][self.name]["type"] == "VelocityCommand"
        self.is_motion = self.name is not None and about["commands"][self.name]["type"] == "MotionCommand"
        self.is_goal = self.name is not None and "goal_radius" in about["commands"][self.name]
        self.value = np.zeros(len(self.ranges))

    @property
    def command(self) -> Command:
        return {} if self.name is None else {self.name: self.value}

    def set(self, values: Sequence[float]) -> None:
        """Ask for this; outside of what the policy was trained for it is refused."""
        self.value = self.checked(values)

    def checked(self, values: Sequence[float]) -> Array:
        """The command as an array, if the policy was trained for it."""
        if len(values) != len(self.ranges):
            raise Refused(f"the command {self.name} has {len(self.ranges)} numbers, got {len(values)}")
        for value, (low, high) in zip(values, self.ranges, strict=True):
            if not low <= value <= high and value != 0:
                raise Refused(
                    f"the command {value:g} is outside of {low:g} … {high:g}, which the policy was trained for"
                )
        return np.array(values, dtype=float)

    def draw(self, rng: np.random.Generator) -> None:
        """Anything from the ranges."""
        self.value = np.array([rng.uniform(*ends) for ends in self.ranges])


def directions(ranges: Sequence[Sequence[float]], slow: float = 0.2) -> dict[str, tuple[float, float, float]]:
    """The fastest command either way along each axis, a slow turn either way, and standing."""
    (back, forward), (right, left), (clockwise, counter) = ranges
    wanted = {
        "forward": (max(forward, 0.0), 0.0, 0.0),
        "backward": (min(back, 0.0), 0.0, 0.0),
        "left": (0.0, max(left, 0.0), 0.0),
        "right": (0.0, min(right, 0.0), 0.0),
        "turn left": (0.0, 0.0, max(counter, 0.0)),
        "turn right": (0.0, 0.0, min(clockwise, 0.0)),
        "slow turn left": (0.0, 0.0, slow if counter > slow else 0.0),
        "slow turn right": (0.0, 0.0, -slow if clockwise < -slow else 0.0),
    }
    return {name: command for name, command in wanted.items() if any(command)} | {"stand": (0.0, 0.0, 0.0)}


class Fixed:
    """A generator without chance: a recorded start must not depend on the version of NumPy."""

    def uniform(self, low: float, high: float) -> float:
        """Return the number at three quarters of the range."""
        return low + 0.75 * (high - low)


def rollout(
    robot: Simulation, policy: Policy, about: dict[str, Any], recorded: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Make control steps from the same start and under the same command on every machine.

    Args:
        robot: The simulation that is stepped.
        policy: The network.
        about: The metadata.
        recorded: A rollout of before. Each control step then begins in the state that it was recorded from, so that
            differences of rounding do not grow from contact to contact.

    Returns:
        The command, and by control step: state before, observations, actions, controls, state after.
    """
    controller, steering, data = Controller(robot, policy, about), Steering(about), robot.data
    fixed: Any = Fixed()
    if steering.name is not None and not steering.is_motion:
        steering.draw(fixed)
    robot.reset(fixed)
    controller.reset()
    made: dict[str, list[list[float]]] = {key: [] for key in ROLLOUT_TOLERANCES if key != "command"}
    for step in range(ROLLOUT_STEPS):
        before = data.qpos.tolist(), data.qvel.tolist()
        if recorded is not None:
            data.qpos[:], data.qvel[:] = recorded["positions"][step], recorded["velocities"][step]
            robot.look()
            before = before if step == 0 else (data.qpos.tolist(), data.qvel.tolist())
        controller.step(steering.command)
        now = controller.seen, controller.last, data.ctrl, data.qpos, data.qvel
        told = [[float(f"{value:.9g}") for value in values] for values in now]
        for key, values in zip(made, (*before, *told), strict=True):
            made[key].append(values)
    return {"mujoco": robot.mj.__version__, "command": steering.value.tolist(), **made}


def check_rollout(robot: Simulation, policy: Policy, about: dict[str, Any], recorded: dict[str, Any]) -> None:
    """Refuse an export whose loop is not the recorded one: scales, gains, masses, gravity, order of joints."""
    if len(recorded["positions"]) != ROLLOUT_STEPS:
        raise Refused(f"the recorded rollout has not {ROLLOUT_STEPS} control steps: export it again")
    try:
        made = rollout(robot, policy, about, recorded)
    except Stopped as error:
        raise Refused(f"the export does not repeat its recorded rollout: {error}") from error
    there, here = recorded["mujoco"], made["mujoco"]
    other = "" if here == there else f" (recorded with MuJoCo {there}, this is {here})"
    for key, tolerance in ROLLOUT_TOLERANCES.items():
        wanted, found = np.array(recorded[key], dtype=float), np.array(made[key])
        if wanted.shape != found.shape:
            raise Refused(f"the rollout's {key} are of shape {wanted.shape}, here {found.shape}: export it again")
        apart = np.abs(found - wanted) / np.maximum(1.0, np.abs(wanted))
        if not (apart <= tolerance).all():
            raise Refused(
                f"the export does not repeat its recorded rollout: {key.replace('_', ' ')} differ by "
                f"{apart.max():.3g}, more than {tolerance:g}. Its metadata or its world were changed{other}: export it "
                "again"
            )


class Runner:
    """Episodes of a policy, and what is measured in them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.manifest = check_manifest(folder)
        self.about = read_metadata(folder)
        self.policy = Policy(folder / POLICY, self.about)
        self.tables = read_tables(folder, self.about)
        self.model = load_world(folder / WORLD)
        if "rollout" in self.about:
            simulation = Simulation(self.model, self.about, self.tables)
            check_rollout(simulation, self.policy, self.about, self.about["rollout"])
        self.robot = Robot(self.model, self.about, self.tables)
        self.controller = Controller(self.robot, self.policy, self.about)
        self.steering = Steering(self.about)
        self.rng = np.random.default_rng(seed)
        self.log: dict[str, list[Array]] = {
            key: [] for key in ("qpos", "qvel", "observation", "action", "command", "start")
        }
        self.logs = False
        for name in self.begin():
            print(f"note: the event {name!r} is not known here, and left out", file=sys.stderr)

    def begin(self) -> list[str]:
        """An episode begins."""
        unknown = self.robot.reset(self.rng)
        self.controller.reset()
        return unknown

    def steps(self, seconds: float) -> Iterator[tuple[int, str | None]]:
        """Control steps, each with the end that it came to, if it did; time out is one of them."""
        for step in range(round(seconds / self.about["step_dt"])):
            self.controller.step(self.steering.command)
            if self.logs:
                now = self.robot.data.qpos, self.robot.data.qvel, self.controller.seen, self.controller.last
                for key, value in zip(self.log, (*now, self.steering.value, np.array(step == 0)), strict=True):
                    self.log[key].append(np.array(value))
            yield step, self.robot.ended()

    def velocity(self) -> Array:
        """Forward and left, m/s, and turning, rad/s, of the robot that the command is for."""
        entity = self.about["commands"][self.steering.name]["entity"]
        root = self.robot._root(entity)
        body = self.robot.model.jnt_bodyid[self.robot.model.jnt_qposadr == root][0]
        source = {"body": self.robot.model.body(body).name}
        moving, turning = (self.robot.read_sensors({"kind": kind, **source}) for kind in ("lin_vel", "ang_vel"))
        return np.array([moving[0], moving[1], turning[2]])

    def drive(self, seconds: float, settle: float = 1.0, cell: Array | None = None) -> tuple[Array, bool]:
        """Return the mean of `velocities`, and whether the robot fell."""
        made, fell = self.velocities(seconds, settle, cell)
        return made.mean(axis=0), fell

    def velocities(self, seconds: float, settle: float = 1.0, cell: Array | None = None) -> tuple[Array, bool]:
        """Return the velocity at each control step, `(T, 3)`, and whether the robot fell.

        They are taken after the first second, until it falls, leaves its cell or the time is over.
        """
        made: list[Array] = []
        for step, end in self.steps(seconds):
            if end is not None:
                return np.array(made or [self.velocity()]), True
            if cell is not None and not self.is_over(cell):
                break  # the next one is of another kind or level
            if (step + 1) * self.about["step_dt"] > settle:
                made.append(self.velocity())
        return np.array(made or [self.velocity()]), False

    def is_over(self, cell: Array) -> bool:
        """Whether the robot is over a cell of rough ground, by the cell's middle."""
        command = self.about["commands"][self.steering.name]
        root = self.robot._root(command["entity"])
        away = np.abs(self.robot.data.qpos[root : root + 2] - cell[:2])
        return bool((away <= command["ground"]["cell_size"] / 2).all())


# -- what users see


def follow_script(runner: Runner, script: Sequence[tuple[Sequence[float], float]]) -> None:
    """One command after the other in one go, and how each was followed."""
    for values, _ in script:
        runner.steering.checked(values)
    falls = 0
    print(f"{'command':24} {'achieved':24} {'seconds':>8}  falls")
    for values, seconds in script:
        runner.steering.set(values)
        made, fell = runner.drive(seconds, settle=min(1.0, seconds / 2))
        falls += fell
        print(f"{_numbers(values):24} {_numbers(made):24} {seconds:8g}  {int(fell)}")
        if fell:
            runner.begin()
    print(f"{falls} falls")


def all_directions(runner: Runner, robots: int, seconds: float) -> dict[str, Any]:
    """Each direction by itself, as `genelab eval` probes it: the median of some robots' mean velocity along the
    command, and standing, of their mean speed.

    On rough ground they start where the probe's start, as many on each kind and level as there are.
    """
    about = runner.about["commands"][runner.steering.name]
    table = f"commands.{runner.steering.name}.start_"
    starts = {key.removeprefix(table): rows for key, rows in runner.tables.items() if key.startswith(table)}
    ground = about.get("ground") if starts else None
    rows = picked(robots, len(ground["kinds"]), ground["levels"], len(starts["cell"])) if ground else [0] * robots
    kinds = [ground["kinds"][starts["kind"][row]] for row in rows] if ground else [""] * robots
    report: dict[str, Any] = {"directions": {}}
    print(f"{'direction':16} {'asked':>7} {'achieved':>9} {'share':>7}  falls")
    for number, (name, values) in enumerate(directions(runner.steering.ranges).items()):
        runner.steering.set(values)
        wanted, length, made, fallen = np.array(values), float(np.linalg.norm(values)), [], []
        for row in rows:
            runner.begin()
            if ground:
                runner.robot.put(about["entity"], starts["pose"][number, row])
            velocities, fell = runner.velocities(seconds, cell=starts["cell"][row] if ground else None)
            made.append(velocities.mean(axis=0) @ wanted / length if length else standing(velocities))
            fallen.append(fell)
        for kind in ("", *dict.fromkeys(kinds)) if ground else ("",):
            chosen = [i for i in range(robots) if kind in ("", kinds[i])]
            achieved = float(np.median([made[i] for i in chosen]))
            one = {"command": list(values), "achieved": achieved, "fraction": achieved / length if length else None}
            one |= {"falls": sum(fallen[i] for i in chosen), "robots": len(chosen)}
            (report.setdefault("kinds", {}).setdefault(kind, {}) if kind else report["directions"])[name] = one
        total = report["directions"][name]
        text = f"{total['fraction']:7.1%}" if length else ""
        print(f"{name:16} {length:7.2f} {total['achieved']:9.3f} {text:>7}  {total['falls']} of {robots}", flush=True)
    for kind, found in report.get("kinds", {}).items():
        shares = [one["fraction"] for one in found.values() if one["fraction"] is not None]
        falls, asked = (sum(one[key] for one in found.values()) for key in ("falls", "robots"))
        print(f"on {kind}: {min(shares):.1%} to {max(shares):.1%} of the command, {falls} of {asked} fell")
    return report


def standing(velocities: Array) -> float:
    """Return the mean speed of a robot that is to stand, of `(T, 3)`: movement to and fro does not cancel out."""
    return float(np.linalg.norm(velocities, axis=1).mean())


def picked(count: int, kinds: int, levels: int, rows: int) -> list[int]:
    """Which of the rows to start on, that come as whole sets of kinds and their levels: set by set, or if there are
    fewer robots than that, kind by kind and on levels that are spread evenly."""
    if count >= kinds * levels:
        return [i % rows for i in range(count)]
    golden = (math.sqrt(5) - 1) / 2
    return [i % kinds * levels + int(i * golden % 1 * levels) for i in range(count)]


def follow_motions(runner: Runner, robots: int) -> dict[str, Any]:
    """Motions from their first frame to the last, by robots that start a little off, as `genelab eval` probes it.

    `mpkpe` is the mean distance of the followed bodies from where the motion has them, m, while a robot is on its way;
    `mpkpe_root` the same with both roots in one place.
    """
    motion = runner.robot.motions[runner.steering.name or ""]
    root = runner.robot._root(motion.about["entity"])
    report: dict[str, Any] = {}
    for number, clip in enumerate(motion.about["clips"]):
        errors: list[list[float]] = []
        reached = 0
        for robot in range(robots):
            motion.choose(number)
            runner.begin()
            runner.robot.put_on(motion, motion.about["starts_off"], runner.rng)
            end: str | None = None
            for _, end in runner.steps((motion.last - motion.first) * runner.about["step_dt"]):
                if end is not None:
                    break
                asked, (done, _) = motion.now("body_pos"), runner.robot.places(motion.bodies)
                apart = motion.now("root_state")[:3] - runner.robot.data.qpos[root : root + 3]
                errors.append([float(np.linalg.norm(asked - done - x, axis=1).mean()) for x in (0.0, apart)])
            took = (motion.frame - motion.first) * runner.about["step_dt"]
            reached += end == MOTION_ENDED
            print(f"{clip['name']}, robot {robot + 1}: {took:.2f} s, {end}", flush=True)
        mean, without_root = np.mean(errors, axis=0) if errors else (math.nan, math.nan)
        report[clip["name"]] = {
            "robots": robots,
            "reached_end": reached,
            "success": reached / robots,
            "mpkpe": float(mean),
            "mpkpe_root": float(without_root),
        }
        print(f"{clip['name']}: {reached} of {robots} to the end, bodies {100 * mean:.2f} cm from the motion (MPKPE)")
    return {"clips": report}


def episodes(runner: Runner, count: int) -> dict[str, Any]:
    """Whole episodes: how long they last, why they end, and whether goals are reached."""
    lengths: list[float] = []
    reached: list[bool] = []
    ends: dict[str, int] = {}
    for number in range(count):
        if runner.steering.name is not None:
            runner.steering.draw(runner.rng)
        runner.begin()
        why, took = "time_out", 0
        for step, end in runner.steps(runner.about["episode_length_s"]):
            took = step + 1
            if end is not None:
                why = end
                break
        lengths.append(took * runner.about["step_dt"])
        ends[why] = ends.get(why, 0) + 1
        text = ""
        if runner.steering.is_goal:
            away = goal_distance(runner)
            reached.append(away < runner.about["commands"][runner.steering.name]["goal_radius"])
            text = f", {away:.3f} m from the goal"
        print(f"episode {number + 1}: {lengths[-1]:g} s, {why}{text}", flush=True)
    report: dict[str, Any] = {"episodes": count, "length_s": float(np.mean(lengths)), "ends": ends}
    if reached:
        report["success_rate"] = float(np.mean(reached))
        print(f"success {np.mean(reached):.1%}")
    print(
        f"{count} episodes of {np.mean(lengths):.2f} s; ends: {', '.join(f'{n} × {name}' for name, n in ends.items())}"
    )
    return report


def goal_distance(runner: Runner) -> float:
    """From what was achieved to what was desired, of a task with goals."""
    groups = runner.about["obs_groups"]
    here, there = (
        np.concatenate([runner.controller.reading(t["source"], runner.steering.command) for t in groups[name]["terms"]])
        for name in ("achieved_goal", "desired_goal")
    )
    return float(np.linalg.norm(here - there))


def window(runner: Runner, seconds: float) -> None:
    """Steer with keys: up and down the first column of the command, left and right the last, page keys the second."""
    import glfw
    import mujoco.viewer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # glfw's own words for it
        if not glfw.init():
            raise Refused("a window needs a display, and there is none here")
    pairs = {265: (0, 1), 264: (0, -1), 263: (-1, 1), 262: (-1, -1), 266: (1, 1), 267: (1, -1)}  # GLFW's numbers
    steering = runner.steering
    asked = steering.value.copy()

    def press(key: int) -> None:
        if key == 32:
            asked[:] = 0.0
        if key in pairs and len(asked):
            column, sign = pairs[key]
            low, high = steering.ranges[column]
            asked[column] = np.clip(asked[column] + sign * (high - low) / 10, low, high)
        steering.value = asked
        print(f"\rcommand {_numbers(asked)}   ", end="", flush=True)

    print("arrow keys and page up and down steer, space stands; close the window to end")
    with mujoco.viewer.launch_passive(runner.robot.model, runner.robot.data, key_callback=press) as view:
        due = time.monotonic()
        for _, end in runner.steps(seconds):
            if not view.is_running():
                return
            view.sync()
            due += runner.about["step_dt"]
            time.sleep(max(0.0, due - time.monotonic()))
            if end is not None:
                print(f"\n{end}: begins again")
                runner.begin()


def _numbers(values: Sequence[float] | Array) -> str:
    return " ".join(f"{value:.2f}" for value in values)


def parse_script(text: str) -> list[tuple[list[float], float]]:
    """`0.5 0 0: 5, 0 0 1: 5` are commands with their seconds."""
    try:
        parts = [part.split(":") for part in text.split(",")]
        return [([float(word) for word in values.split()], duration(seconds)) for values, seconds in parts]
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise Refused(f"the script {text!r} is not like '0.5 0 0: 5, 0 0 1: 5'") from error


def duration(text: str) -> float:
    """Seconds of a command line, from a control step to days."""
    value = float(text)
    if not 0.0 < value <= 1e6:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1e6 s, got {text}")
    return value


def count(text: str) -> int:
    """A number of episodes."""
    value = int(text)
    if not 1 <= value <= 10**6:
        raise argparse.ArgumentTypeError(f"must be from 1 to 1000000, got {text}")
    return value


def seed(text: str) -> int:
    """A seed of NumPy's generators."""
    value = int(text)
    if not 0 <= value < 2**63:
        raise argparse.ArgumentTypeError(f"must be from 0 to 2**63 - 1, got {text}")
    return value


class Parser(argparse.ArgumentParser):
    """Says in one line what it does not understand."""

    def error(self, message: str) -> NoReturn:
        raise Refused(f"{message}; {self.prog} --help tells more")


def main(args: Sequence[str] | None = None, prog: str = "run.py") -> int:
    """Parse, run, print; return the exit code."""
    parser = Parser(prog=prog, description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).resolve().parent)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--command", type=float, nargs="+", metavar="NUMBER", help="ask for this")
    what.add_argument("--script", metavar="TEXT", help="commands with seconds: '0.5 0 0: 5, 0 0 1: 5'")
    what.add_argument("--directions", action="store_true", help="each direction of a velocity command by itself")
    what.add_argument("--window", action="store_true", help="show it, and steer with the keyboard")
    what.add_argument("--check", action="store_true", help="check the export, and no more")
    parser.add_argument("--seconds", type=duration, default=10.0, help="how long each command lasts [10]")
    parser.add_argument(
        "--episodes", type=count, default=8, help="episodes, or robots in each direction or on each motion [8]"
    )
    parser.add_argument("--seed", type=seed, default=0)
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="positions, velocities, actions of every step, as .npz"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="what was measured, as .json")
    try:
        options = parser.parse_args(args)
        for path in filter(None, (options.log, options.report)):
            checked_place(path)
        report = run(options)
        if options.report is not None:
            write_whole(options.report, (json.dumps(report, indent=2, allow_nan=False) + "\n").encode())
        return 0
    except Exception as error:
        text, code = explained(error)
        print(f"{parser.prog}: {CONTROL.sub('?', ' '.join(text.split()))[:600]}", file=sys.stderr)
        return code


def explained(error: Exception) -> tuple[str, int]:
    """Return one line for the user and the exit code.

    An export comes from anywhere, and there is no end of the ways in which its metadata can be of another shape than
    ours. What no check has named is told by its kind and place.
    """
    if isinstance(error, Refused):
        return str(error), 2
    if isinstance(error, Stopped):
        return str(error), 1
    if isinstance(error, MemoryError):
        return "not enough memory", 1
    if isinstance(error, OSError):
        return ": ".join(str(part) for part in (error.filename, error.strerror or error) if part), 2
    if isinstance(error, KeyError):
        return f"not in the metadata: {error}", 2
    place = traceback.extract_tb(error.__traceback__)[-1]
    words = str(error)[:300] or "no reason given"
    return f"this export cannot be run: {type(error).__name__}: {words} ({Path(place.filename).name}:{place.lineno})", 2


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Do what was asked for; the report."""
    runner = Runner(options.folder, options.seed)
    runner.logs = options.log is not None
    about, steering = runner.about, runner.steering
    rows = len(about["golden"]["actions"])
    print(
        f"{about['task']}: {about['obs_dim']} observations, {about['action_dim']} actions every {about['step_dt']:g} s"
    )
    print(f"golden rows: {rows} of {rows} agree")
    if "rollout" in about:
        steps = len(about["rollout"]["positions"])
        print(f"rollout: {steps} of {steps} control steps agree")
    else:
        print(
            "note: this export has no recorded rollout, so that scales, gains, masses and the order of joints are not "
            "checked: export it again",
            file=sys.stderr,
        )
    if runner.manifest is not None:
        print(runner.manifest)
    report: dict[str, Any] = {"task": about["task"], "seed": options.seed}
    if options.check:
        return report
    if options.window:
        window(runner, 1e9)
    elif options.directions:
        if not steering.is_velocity:
            raise Refused("there is no velocity to command: leave --directions away")
        report |= all_directions(runner, options.episodes, options.seconds)
    elif steering.is_velocity:
        asked = options.command or [
            0.5 * max(high, 0.0) if i == 0 else 0.0 for i, (_, high) in enumerate(steering.ranges)
        ]
        follow_script(runner, parse_script(options.script) if options.script else [(asked, options.seconds)])
    else:
        if options.command or options.script:
            raise Refused("there is no velocity to command")
        report |= (follow_motions if steering.is_motion else episodes)(runner, options.episodes)
    if options.log is not None:
        arrays: dict[str, Any] = {key: np.array(values) for key, values in runner.log.items()}
        packed = io.BytesIO()
        np.savez_compressed(packed, **arrays)
        write_whole(options.log, packed.getvalue())
    return report


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("run.py: interrupted", file=sys.stderr)
        sys.exit(130)
