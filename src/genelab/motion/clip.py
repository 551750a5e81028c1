"""Motions on disk: where the root is and how the joints are bent, so many times per second.

Two forms are read. A CSV file, as motion capture is handed around, has a row per frame: root x y z, root quaternion
x y z w, one column per joint in the order of the robot's model; a first line may name the columns, and then the joints
may come in any order. It does not tell its rate. An NPZ file has `fps`, `joint_pos` and the root: either as `root_pos`
and `root_quat` (w x y z), or as the first of the bodies in `body_pos_w` and `body_quat_w`.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from genelab.config.archive import check_zip
from genelab.errors import UsageError, did_you_mean

ROOT_COLUMNS = ("root x", "root y", "root z", "root qx", "root qy", "root qz", "root qw")
_MAX_BYTES = 2**30
"""No motion is larger than this, unpacked."""
_UNIT = 0.01
"""How far from 1 the length of a quaternion may be; what is nearer is rounding."""


@dataclass(frozen=True, kw_only=True)
class Clip:
    """What a file tells of a motion."""

    fps: float
    """Frames per second."""
    root_pos: np.ndarray
    """`(T, 3)`, m."""
    root_quat: np.ndarray
    """`(T, 4)`, w x y z."""
    joint_pos: np.ndarray
    """`(T, J)`, rad, in the order of the robot's joints."""
    bodies: tuple[np.ndarray, np.ndarray] | None = None
    """Positions `(T, B, 3)` and orientations `(T, B, 4)` of the bodies as the file has them, to be compared."""

    def __len__(self) -> int:
        return len(self.joint_pos)

    @property
    def seconds(self) -> float:
        """From the first frame to the last."""
        return (len(self) - 1) / self.fps


def find_motion(name: str, package: str) -> Path:
    """The file of this name, or the motion that comes with a package, in its directory `clips`, for a word alone."""
    if not name:
        raise UsageError("which motion? Give a file .npz, or the name of one that comes with the robot")
    if Path(name).suffix or Path(name).name != name:
        return Path(name)
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    folders = [] if spec is None else [Path(place) / "clips" for place in spec.submodule_search_locations or ()]
    shipped = {path.stem: path for folder in folders for path in sorted(folder.glob("*.npz"))}
    if name not in shipped:
        among = f", or one that comes with {package}: {', '.join(shipped)}" if shipped else ""
        raise UsageError(f"no motion is called {name!r}.{did_you_mean(name, shipped)} Give a file .npz{among}")
    return shipped[name]


def read_clip(path: Path, joints: Sequence[str], fps: float | None = None) -> Clip:
    """The motion in a file, for a robot with these joints. `fps` is that of a CSV file, which does not tell it."""
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    form = path.suffix.lower()
    if form not in (".csv", ".npz"):
        raise UsageError(f"{path}: a motion is a file .csv or .npz")
    try:
        if form == ".npz":
            clip = _read_npz(path, joints)
            if fps is not None:
                raise UsageError(f"{path}: an NPZ file tells its own rate, {clip.fps:g} Hz: leave out `fps`")
        elif fps is None:
            raise UsageError(
                f"{path}: a CSV file does not tell its rate: make an NPZ file of it with `genelab motion convert`"
            )
        else:
            clip = _read_csv(path, joints, fps)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    return _checked(path, clip, joints)


def npz_bytes(**arrays: np.ndarray | float) -> bytes:
    """An NPZ file, the same bytes for the same arrays whenever it is made."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, values in arrays.items():
            array = io.BytesIO()
            np.lib.format.write_array(array, np.asarray(values), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, array.getvalue())
    return out.getvalue()


# -- CSV


def _read_csv(path: Path, joints: Sequence[str], fps: float) -> Clip:
    if path.stat().st_size > _MAX_BYTES:
        raise UsageError(f"{path}: a file of more than a gigabyte is no motion")
    try:
        lines = [line for line in csv.reader(path.read_text(encoding="utf-8-sig").splitlines()) if any(line)]
    except (ValueError, csv.Error) as error:
        raise UsageError(f"{path}: this is no CSV file: {error}") from error
    order = list(range(len(joints)))
    if lines and not _is_number(lines[0][0]):
        order = _order_of(path, [cell.strip() for cell in lines.pop(0)][len(ROOT_COLUMNS) :], joints)
    names = [*ROOT_COLUMNS, *joints]
    rows = np.empty((len(lines), len(names)))
    for i, line in enumerate(lines):
        if len(line) != len(names):
            raise UsageError(
                f"{path}: row {i + 1} has {len(line)} columns, a motion of this robot has {len(names)}: root x y z, "
                f"root quaternion x y z w, {len(joints)} joints"
            )
        for j, cell in enumerate(line):
            if not _is_number(cell):
                raise UsageError(f"{path}: row {i + 1}, column {j + 1}: {cell!r} is no number")
            rows[i, j] = float(cell)
    quat = rows[:, [6, 3, 4, 5]]
    return Clip(fps=fps, root_pos=rows[:, :3], root_quat=quat, joint_pos=rows[:, 7:][:, order])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _order_of(path: Path, names: Sequence[str], joints: Sequence[str]) -> list[int]:
    """Where in the file each of the robot's joints is."""
    for name in names:
        if name not in joints:
            raise UsageError(f"{path}: {name!r} is no joint of this robot.{did_you_mean(name, joints)}")
    missing = [joint for joint in joints if joint not in names]
    if missing or len(names) != len(joints):
        what = f"there is no column for {missing[0]!r}" if missing else "a joint comes twice"
        raise UsageError(f"{path}: {what}; a motion of this robot has each of its {len(joints)} joints once")
    return [names.index(joint) for joint in joints]


# -- NPZ


def _read_npz(path: Path, joints: Sequence[str]) -> Clip:
    try:
        check_zip(path, str(path), most_bytes=_MAX_BYTES)
        with np.load(path, allow_pickle=False) as file:
            found = {name: np.asarray(file[name]) for name in file.files}
    except (ValueError, TypeError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path}: this is no NPZ file of numbers: {' '.join(str(error).split())}") from error
    whole = {"body_pos_w", "body_quat_w"} <= found.keys()
    for name in ("fps", "joint_pos", *(() if whole else ("root_pos", "root_quat"))):
        if name not in found:
            there = ", ".join(found) or "nothing"
            raise UsageError(f"{path}: there is no {name!r}; it has {there}")
    fps, joint_pos = _numbers(path, "fps", found), _numbers(path, "joint_pos", found)
    if fps.size != 1:
        raise UsageError(f"{path}: fps is one number, this is {_shape(fps)}")
    if joint_pos.ndim != 2:
        raise UsageError(f"{path}: joint_pos is frames × joints, this is {_shape(joint_pos)}")
    if "joint_names" in found:
        order = _order_of(path, [str(name) for name in found["joint_names"].ravel()], joints)
        joint_pos = joint_pos[:, order]
    bodies = None
    if whole:
        bodies = _numbers(path, "body_pos_w", found), _numbers(path, "body_quat_w", found)
        for name, values, width in (("body_pos_w", bodies[0], 3), ("body_quat_w", bodies[1], 4)):
            if values.ndim != 3 or values.shape[2] != width or not values.shape[1] or len(values) != len(joint_pos):
                raise UsageError(
                    f"{path}: {name} is {len(joint_pos)} frames × bodies × {width}, this is {_shape(values)}"
                )
        root = bodies[0][:, 0], bodies[1][:, 0]
    else:
        root = _numbers(path, "root_pos", found), _numbers(path, "root_quat", found)
        for name, values, width in (("root_pos", root[0], 3), ("root_quat", root[1], 4)):
            if values.shape != (len(joint_pos), width):
                raise UsageError(f"{path}: {name} is {len(joint_pos)} frames × {width}, this is {_shape(values)}")
    return Clip(fps=float(fps.item()), root_pos=root[0], root_quat=root[1], joint_pos=joint_pos, bodies=bodies)


def _numbers(path: Path, name: str, found: dict[str, np.ndarray]) -> np.ndarray:
    if not np.issubdtype(found[name].dtype, np.number) or np.iscomplexobj(found[name]):
        raise UsageError(f"{path}: {name} is no array of numbers but of {found[name].dtype}")
    return found[name].astype(np.float64)


def _shape(values: np.ndarray) -> str:
    return " × ".join(map(str, values.shape)) or "a single number"


# -- both


def _checked(path: Path, clip: Clip, joints: Sequence[str]) -> Clip:
    if not (math.isfinite(clip.fps) and 0 < clip.fps <= 10_000):
        raise UsageError(f"{path}: {clip.fps:g} frames per second are no rate")
    if clip.joint_pos.shape[1] != len(joints):
        raise UsageError(f"{path}: there are {clip.joint_pos.shape[1]} joints, this robot has {len(joints)}")
    if len(clip) < 2:
        count = "is one frame" if len(clip) else "is no frame"
        raise UsageError(f"{path}: there {count}, a motion has two at least")
    parts = (("root position", "xyz", clip.root_pos), ("root quaternion", "wxyz", clip.root_quat))
    for what, names, values in (*parts, ("joint", joints, clip.joint_pos)):
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            frame, column = bad[0]
            raise UsageError(f"{path}: frame {frame + 1}, {what} {names[column]} is {values[frame, column]}")
    length = np.linalg.norm(clip.root_quat, axis=1)
    off = np.flatnonzero(np.abs(length - 1.0) > _UNIT)
    if len(off):
        raise UsageError(
            f"{path}: frame {off[0] + 1}, the root's quaternion has the length {length[off[0]]:.3g}, a rotation has 1"
        )
    return clip
