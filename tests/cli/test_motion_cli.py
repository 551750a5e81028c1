"""`genelab motion`, as a person would use it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from genelab.cli.main import run
from tests.motion.conftest import ARM

ROW = "0,0,{z},0,0,0,1,{angle},0\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A robot, and a motion of it: 31 rows at 30 Hz, a second, that lift an arm by 1 rad."""
    monkeypatch.chdir(tmp_path)
    Path("arm.xml").write_text(ARM)
    Path("lift.csv").write_text("".join(ROW.format(z=2, angle=i / 30) for i in range(31)))
    return tmp_path


def test_convert_makes_an_npz_file_at_50_hz(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["motion", "convert", "lift.csv", "--out", "lift.npz", "--model", "arm.xml"]) == 0
    assert "lift.npz: 51 frames at 50 Hz, 1.000 s, 2 joints, 3 bodies" in capfd.readouterr().out
    with np.load("lift.npz") as file:
        assert file["fps"].item() == 50.0
        np.testing.assert_allclose(file["joint_pos"][:, 0], np.arange(51) / 50, atol=1e-6)
        np.testing.assert_allclose(file["joint_vel"][:, 0], 1.0, atol=1e-5)
        np.testing.assert_allclose(file["body_pos_w"][0, 2], [1.0, 0.0, 2.1], atol=1e-6)


def test_convert_cuts_slows_and_smooths(files: Path) -> None:
    words = ["--fps", "15", "--to-fps", "10", "--start", "0.4", "--end", "1.2", "--smooth", "3", "--model", "arm.xml"]
    assert run(["motion", "convert", "lift.csv", "--out", "part.npz", *words]) == 0
    with np.load("part.npz") as file:
        # 15 rows a second: it lasts 2 s, and 0.4 s to 1.2 s lie between 0.2 and 0.6 rad.
        np.testing.assert_allclose(file["joint_pos"][:, 0], np.linspace(0.2, 0.6, 9), atol=1e-6)


def test_check_finds_what_is_wrong_and_fails(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["motion", "check", "lift.csv", "--model", "arm.xml"]) == 1  # it hovers
    text = capfd.readouterr().out
    assert "31 frames at 30 Hz, 1.000 s" in text
    assert "exceeded" in text


def test_play_counts_frames(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["motion", "play", "lift.csv", "--model", "arm.xml", "--headless"]) == 0
    assert "lift.csv: 31 frames" in capfd.readouterr().out


def test_play_films(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("av")
    words = ["--model", "arm.xml", "--video", "lift.png", "--video-size", "32x32", "--video-length", "3"]
    assert run(["motion", "play", "lift.csv", *words]) == 0
    assert "film in lift.png: 1 picture" in capfd.readouterr().out
    assert Path("lift.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["convert", "none.csv", "--out", "a.npz"], "none.csv: there is no such file"),
        (["convert", "lift.csv", "--out", "a.csv"], "--out: a.csv must end in .npz"),
        (["convert", "lift.csv", "--out", "no/a.npz"], "--out: there is no directory no"),
        (["convert", "lift.csv", "--out", "a.npz", "--start", "2"], "there is no motion from 2 to its end s"),
        (
            ["convert", "lift.csv", "--out", "a.npz", "--to-fps", "inf"],
            "Invalid value for '--to-fps': inf is no",
        ),
        (
            ["convert", "lift.csv", "--out", "a.npz", "--to-fps", "1e30"],
            "1 s at 1e+30 Hz are 1e+30 frames, and",
        ),
        (["check", "lift.npz"], "lift.npz: there is no such file"),
        (["check", "lift"], "no motion is called 'lift'. Give a file .npz"),
        (["play", "lift.csv", "--vis", "--headless"], "--vis and --headless exclude each other"),
        (["play", "lift.csv", "--camera", "track"], "--camera goes with --video FILE"),
        (["play", "lift.csv", "--model", "no.xml"], "no MJCF file at 'no.xml'"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    files: Path, capfd: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    given = words if "--model" in words else [*words, "--model", "arm.xml"]
    assert run(["motion", *given]) == 2
    errors = capfd.readouterr().err.splitlines()
    assert len(errors) == 1
    assert errors[0].startswith(f"genelab: {message}")
