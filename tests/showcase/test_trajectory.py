"""Trajectories from files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genelab.errors import UsageError
from genelab_showcase.gestures import wave, write_csv
from genelab_showcase.robots.wuji_hand import JOINTS, wuji_hand_spec
from genelab_showcase.trajectory import SHIPPED, load_trajectory

ROWS = np.arange(60.0).reshape(3, 20) / 100
ROW = ",".join(["0.5"] * 20)


def test_csv_with_and_without_names(tmp_path: Path) -> None:
    write_csv(tmp_path / "named.csv", ROWS)
    np.testing.assert_allclose(load_trajectory(str(tmp_path / "named.csv"), JOINTS), ROWS)
    lines = (tmp_path / "named.csv").read_text().splitlines()
    (tmp_path / "plain.csv").write_text("\n".join(lines[1:]))
    np.testing.assert_allclose(load_trajectory(str(tmp_path / "plain.csv"), JOINTS), ROWS)
    mixed = [",".join(reversed(line.split(","))) for line in lines]
    (tmp_path / "mixed.csv").write_text("\n".join(mixed) + "\n\n")
    np.testing.assert_allclose(load_trajectory(str(tmp_path / "mixed.csv"), JOINTS), ROWS)


def test_npz_with_one_array_or_joint_pos(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", anything=ROWS)
    np.savez(tmp_path / "two.npz", fps=100, joint_pos=ROWS.astype(np.float32))
    for name in ("one.npz", "two.npz"):
        np.testing.assert_allclose(load_trajectory(str(tmp_path / name), JOINTS), ROWS, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "1,2,3\n", "row 1 has 3 columns, a trajectory has 20, one per joint"),
        ("a.csv", f"{ROW}\n{ROW},1\n", "row 2 has 21 columns, a trajectory has 20"),
        ("a.csv", f"{ROW}\n{ROW[:-3]}x\n", "row 2: 'x' is no number"),
        ("a.csv", f"{ROW}\n{ROW[:-3]}nan\n", "row 2, pinky_dip is nan, which is no angle"),
        ("a.csv", f"{ROW[:-3]}-inf\n", "row 1, pinky_dip is -inf, which is no angle"),
        ("a.csv", "", "there is no row"),
        ("a.csv", ",".join(JOINTS) + "\n", "there is no row"),
        ("a.csv", ",".join((*JOINTS[:-1], "toe")) + f"\n{ROW}\n", "names the 20 joints; 'toe' is wrong"),
        ("a.csv", ",".join(JOINTS[:-1]) + f"\n{ROW}\n", "names the 20 joints; 'pinky_dip' is wrong"),
        ("a.csv", ",".join((*JOINTS, JOINTS[0])) + f"\n{ROW}\n", "names the 20 joints; 'thumb_cmc_flex' is wrong"),
        ("a.npz", "no zip", "this is no NPZ file of numbers"),
        ("a.txt", ROW, "a trajectory is a file .csv or .npz"),
    ],
)
def test_a_wrong_file_is_one_clear_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        load_trajectory(str(tmp_path / name), JOINTS)
    assert str(tmp_path / name) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"q": np.zeros((5, 19))}, "a column for each of 20 joints, this is 5 × 19"),
        ({"q": np.zeros(20)}, "a column for each of 20 joints, this is 20"),
        ({"q": np.zeros((0, 20))}, "there is no row"),
        ({"q": np.array([["a"] * 20])}, "no NPZ file of numbers"),
        ({"q": np.array([{}], dtype=object)}, "no NPZ file of numbers"),
        ({"a": ROWS, "b": ROWS}, "Call it joint_pos; there are a, b"),
    ],
)
def test_a_wrong_array_is_one_clear_line(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(UsageError, match=re.escape(message)):
        load_trajectory(str(tmp_path / "a.npz"), JOINTS)


def test_a_missing_file_names_what_there_is(tmp_path: Path) -> None:
    for name in ("walk", str(tmp_path / "walk.csv"), str(tmp_path)):
        with pytest.raises(UsageError, match=r"no trajectory .*walk|no trajectory .*; .* comes with genelab: wave"):
            load_trajectory(name, JOINTS)


def test_bytes_that_are_no_text_are_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="this is no CSV file"):
        load_trajectory(str(tmp_path / "a.csv"), JOINTS)


def test_the_wave_that_is_shipped_is_the_one_that_is_written(tmp_path: Path) -> None:
    write_csv(tmp_path / "wave.csv", wave())
    assert (tmp_path / "wave.csv").read_text() == (SHIPPED / "wave.csv").read_text()


def test_the_wave_is_smooth_within_the_limits_and_ends_as_it_begins() -> None:
    rows = load_trajectory("wave", JOINTS)
    limits = wuji_hand_spec().compile().jnt_range
    assert rows.shape == (500, 20)
    assert (rows >= limits[:, 0]).all()
    assert (rows <= limits[:, 1]).all()
    assert np.abs(np.diff(rows, axis=0)).max() < 0.1
    assert np.abs(rows[-1] - rows[0]).max() < 1e-3
    assert (np.ptp(rows, axis=0) > 0.1).sum() >= 19  # all joints but the middle finger's sideways one
