"""A folder for a hub has all that a stranger needs, and its manifest says what each file is."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import yaml

from genelab.cli.main import run
from genelab.rl.targets.run import Runner

TASK = "GeneLab-Inverted-Pendulum-v0"


def test_it_is_whole(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "folder"
    words = ["--out", str(out), "--with", "episodes=2", "--with", "film_steps=4", "--with", "license=mit"]
    assert run(["export", TASK, "pretrained", "--for", "hub", *words]) == 0
    assert f"to share it: hf upload OWNER/NAME {out}" in capfd.readouterr().out
    manifest = json.loads((out / "manifest.json").read_text())
    found = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert set(found) == {
        "README.md",
        "eval.json",
        "film.mp4",
        "manifest.json",
        "policy.onnx",
        "policy.onnx.metadata.json",
        "run.py",
        "world.xml",
    }
    del found["manifest.json"]
    assert manifest["files"] == {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in found.items()
    }
    assert found["film.mp4"][4:8] == b"ftyp"
    assert json.loads(found["eval.json"])["num_episodes"] == 2
    _, header, card = found["README.md"].decode().split("---\n", 2)
    assert yaml.safe_load(header)["license"] == "mit"
    assert "2 episodes, seed 0: return 40.00" in card
    assert "| pole_ang_vel | 3 | rad/s | tip |" in card
    assert Runner(out, seed=0).about["task"] == TASK


def test_what_makes_no_sense_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--for", "hub", "--out", str(tmp_path / "folder"), "--with", "episodes=-1"]
    assert run(["export", TASK, "pretrained", *words]) == 2
    assert capfd.readouterr().err == "genelab: episodes of hub: must not be negative, got -1\n"
    assert not list(tmp_path.iterdir())
