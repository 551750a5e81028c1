"""Files of motions: what is read, and what is refused in one line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genelab.errors import UsageError
from genelab.motion import Clip, Kinematics, find_motion, npz_bytes, read_clip

JOINTS = ("shoulder", "elbow")
STILL = "0,0,1, 0,0,0,1, 0.5,-0.25\n"


def refused(path: Path, fps: float | None = None) -> str:
    with pytest.raises(UsageError) as error:
        read_clip(path, JOINTS, fps)
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


def write(path: Path, content: str | dict[str, Any]) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else npz_bytes(**content))
    return path


def npz(**changes: Any) -> dict[str, Any]:
    arrays: dict[str, Any] = {
        "fps": np.array([50.0]),
        "joint_pos": np.zeros((3, 2)),
        "root_pos": np.zeros((3, 3)),
        "root_quat": np.tile([1.0, 0.0, 0.0, 0.0], (3, 1)),
    }
    arrays |= changes
    return {name: value for name, value in arrays.items() if value is not None}


def test_a_csv_file_has_its_quaternion_w_last(tmp_path: Path) -> None:
    half = math.sqrt(0.5)
    clip = read_clip(write(tmp_path / "a.csv", f"1,2,3,0,0,{half},{half},0.5,-0.25\n{STILL}"), JOINTS, 30.0)
    assert clip.root_pos[0].tolist() == [1.0, 2.0, 3.0]
    assert clip.root_quat[0].tolist() == [half, 0.0, 0.0, half]  # a quarter turn about z, w first
    assert clip.joint_pos[0].tolist() == [0.5, -0.25]
    assert (clip.fps, len(clip), clip.seconds) == (30.0, 2, pytest.approx(1 / 30))


def test_a_first_line_of_names_orders_the_joints(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"x,y,z,qx,qy,qz,qw,elbow,shoulder\n{STILL}{STILL}")
    assert read_clip(path, JOINTS, 30.0).joint_pos[0].tolist() == [-0.25, 0.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,0,1,0,0,0,1,0.5\n" * 2, "row 1 has 8 columns, a motion of this robot has 9: root x y z"),
        (STILL + "0,0,1,0,0,0,1,0.5,nan\n", "frame 2, joint elbow is nan"),
        (STILL + "0,0,inf,0,0,0,1,0.5,0\n", "frame 2, root position z is inf"),
        (STILL + "0,0,1,0,0,0,1,0.5,high\n", "row 2, column 9: 'high' is no number"),
        (STILL + "0,0,1,0,0,0.9,0.9,0.5,0\n", "frame 2, the root's quaternion has the length 1.27, a rotation has 1"),
        (STILL, "there is one frame, a motion has two at least"),
        ("", "there is no frame, a motion has two at least"),
        (f"x,y,z,qx,qy,qz,qw,elbow,sholder\n{STILL}", "'sholder' is no joint of this robot. Did you mean 'shoulder'?"),
        (f"x,y,z,qx,qy,qz,qw,elbow\n{STILL}", "there is no column for 'shoulder'; a motion of this robot has each"),
    ],
)
def test_what_a_csv_file_must_not_be(tmp_path: Path, text: str, message: str) -> None:
    assert refused(write(tmp_path / "a.csv", text), 30.0).startswith(message)


def test_a_csv_file_does_not_tell_its_rate_and_an_npz_file_does(tmp_path: Path) -> None:
    assert "does not tell its rate" in refused(write(tmp_path / "a.csv", STILL * 2))
    assert "tells its own rate, 50 Hz" in refused(write(tmp_path / "a.npz", npz()), 30.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fps": None}, "there is no 'fps'; it has joint_pos, root_pos, root_quat"),
        ({"root_quat": None}, "there is no 'root_quat'"),
        ({"fps": np.array([0.0])}, "0 frames per second are no rate"),
        ({"fps": np.array([50.0, 50.0])}, "fps is one number, this is 2"),
        ({"joint_pos": np.zeros((3, 5))}, "there are 5 joints, this robot has 2"),
        ({"joint_pos": np.zeros(3)}, "joint_pos is frames × joints, this is 3"),
        ({"joint_pos": np.array([["a"]])}, "joint_pos is no array of numbers but of <U1"),
        ({"root_pos": np.zeros((2, 3))}, "root_pos is 3 frames × 3, this is 2 × 3"),
        ({"body_pos_w": np.zeros((3, 3, 3)), "body_quat_w": np.zeros((3, 3))}, "body_quat_w is 3 frames × bodies × 4"),
    ],
)
def test_what_an_npz_file_must_not_be(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    assert refused(write(tmp_path / "a.npz", npz(**changes))).startswith(message)


def test_other_files_are_no_motions(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.npz") == "there is no such file"
    assert refused(write(tmp_path / "a.txt", STILL)) == "a motion is a file .csv or .npz"
    assert refused(write(tmp_path / "a.npz", "text")).startswith("this is no NPZ file of numbers")
    np.savez(tmp_path / "b.npz", fps=np.array([{}]))  # pickled objects are never unpacked
    assert refused(tmp_path / "b.npz").startswith("this is no NPZ file of numbers")


def test_bodies_elsewhere_than_the_joints_put_them_are_refused(arm: Kinematics, tmp_path: Path) -> None:
    arrays = npz(joint_pos=np.tile([0.0, 0.5], (3, 1)))
    motion = arm.motion(read_clip(write(tmp_path / "a.npz", arrays), JOINTS))
    whole = {"body_pos_w": motion.body_pos_w, "body_quat_w": motion.body_quat_w}
    kept = arm.read(write(tmp_path / "b.npz", npz(joint_pos=arrays["joint_pos"], **whole)))
    assert np.array_equal(kept.joint_pos, arrays["joint_pos"])
    with pytest.raises(UsageError, match="joints or bodies are in another order"):
        arm.read(write(tmp_path / "c.npz", npz(joint_pos=arrays["joint_pos"][:, ::-1], **whole)))
    fewer = {name: values[:, :2] for name, values in whole.items()}
    with pytest.raises(UsageError, match="there are 2 bodies, this robot has 3"):
        arm.read(write(tmp_path / "d.npz", npz(joint_pos=arrays["joint_pos"], **fewer)))


def test_a_written_motion_is_read_again_and_always_the_same_bytes(arm: Kinematics, tmp_path: Path) -> None:
    motion = arm.motion(read_clip(write(tmp_path / "a.npz", npz(joint_pos=np.arange(6.0).reshape(3, 2))), JOINTS))
    motion.write(tmp_path / "b.npz")
    motion.write(tmp_path / "c.npz")
    assert (tmp_path / "b.npz").read_bytes() == (tmp_path / "c.npz").read_bytes()
    assert np.array_equal(arm.read(tmp_path / "b.npz").joint_pos, motion.joint_pos)
    with np.load(tmp_path / "b.npz") as file:
        assert {"fps", "joint_pos", "joint_vel", "body_pos_w", "body_quat_w"} <= set(file.files)
        assert file["body_names"].tolist() == ["base", "upper", "lower"]


def test_a_word_alone_is_a_motion_that_comes_with_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine" / "clips").mkdir(parents=True)
    (tmp_path / "mine" / "__init__.py").touch()
    file = write(tmp_path / "mine" / "clips" / "jump.npz", npz())
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_motion("jump", "mine") == file
    assert find_motion("jump.npz", "mine") == Path("jump.npz")
    with pytest.raises(UsageError, match=r"no motion is called 'jmp'. Did you mean 'jump'\? .* comes with mine: jump"):
        find_motion("jmp", "mine")


def test_a_clip_counts_its_frames_and_the_time_between_them() -> None:
    clip = Clip(fps=10.0, root_pos=np.zeros((11, 3)), root_quat=np.zeros((11, 4)), joint_pos=np.zeros((11, 0)))
    assert (len(clip), clip.seconds) == (11, 1.0)
