"""Joint trajectories from files: a row per control step, a column per joint, rad."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from genelab.config.archive import check_zip
from genelab.errors import UsageError

SHIPPED = Path(__file__).parent / "trajectories"
_MAX_BYTES = 2**30


def load_trajectory(name: str, joints: Sequence[str]) -> np.ndarray:
    """The rows of a CSV or NPZ file, `(T, len(joints))`; a name without ending is a trajectory that comes with genelab.

    A CSV file may begin with a line of the joints' names, in any order. An NPZ file has a single array, or one called
    `joint_pos`.
    """
    path = Path(name) if Path(name).suffix else SHIPPED / f"{name}.csv"
    if not path.is_file():
        shipped = ", ".join(sorted(file.stem for file in SHIPPED.glob("*.csv")))
        raise UsageError(f"no trajectory {name!r}; give a file .csv or .npz, or one that comes with genelab: {shipped}")
    readers = {".csv": _read_csv, ".npz": _read_npz}
    if path.suffix.lower() not in readers:
        raise UsageError(f"{path}: a trajectory is a file .csv or .npz")
    try:
        rows = readers[path.suffix.lower()](path, joints)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    if rows.ndim != 2 or rows.shape[1] != len(joints):
        shape = " × ".join(map(str, rows.shape))
        raise UsageError(f"{path}: a trajectory has a column for each of {len(joints)} joints, this is {shape}")
    if not len(rows):
        raise UsageError(f"{path}: there is no row")
    bad = np.argwhere(~np.isfinite(rows))
    if len(bad):
        row, column = bad[0]
        raise UsageError(f"{path}: row {row + 1}, {joints[column]} is {rows[row, column]}, which is no angle")
    return rows


def _read_csv(path: Path, joints: Sequence[str]) -> np.ndarray:
    try:
        lines = [line for line in csv.reader(path.read_text(encoding="utf-8").splitlines()) if line]
    except (ValueError, csv.Error) as error:
        raise UsageError(f"{path}: this is no CSV file: {error}") from error
    header = [cell.strip() for cell in lines.pop(0)] if lines and not _is_number(lines[0][0]) else list(joints)
    if sorted(header) != sorted(joints):
        wrong = [name for name in header if name not in joints] or [name for name in joints if name not in header]
        raise UsageError(f"{path}: the first line names the {len(joints)} joints; {(wrong or header)[0]!r} is wrong")
    rows = []
    for i, line in enumerate(lines, start=1):
        if len(line) != len(joints):
            raise UsageError(f"{path}: row {i} has {len(line)} columns, a trajectory has {len(joints)}, one per joint")
        wrong = [cell for cell in line if not _is_number(cell)]
        if wrong:
            raise UsageError(f"{path}: row {i}: {wrong[0]!r} is no number")
        rows.append([float(cell) for cell in line])
    return np.array(rows).reshape(-1, len(joints))[:, [header.index(joint) for joint in joints]]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_npz(path: Path, joints: Sequence[str]) -> np.ndarray:
    try:
        check_zip(path, str(path), most_bytes=_MAX_BYTES)
        with np.load(path, allow_pickle=False) as file:
            names = file.files
            if len(names) != 1 and "joint_pos" not in names:
                raise UsageError(f"{path}: which array is it? Call it joint_pos; there are {', '.join(names)}")
            return np.asarray(file["joint_pos" if "joint_pos" in names else names[0]], dtype=float)
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path}: this is no NPZ file of numbers: {' '.join(str(error).split())}") from error
