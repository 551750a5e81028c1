"""The files of shipped policies tell today's metadata, inside and beside, and repeat their golden rows."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import pytest
import torch

from genelab.rl.export_metadata import as_text, describe_again
from genelab.rl.exportable import golden_error
from genelab.rl.exported import TorchScriptPolicy, read_metadata
from genelab.rl.world import policy_on_task

SHIPPED = {path.parent.name: path for path in (Path(__file__).parents[2] / "src").glob("*/pretrained/*/policy.ts")}
SAID_OF_EACH_TERM = {
    "name",
    "dim",
    "start",
    "scale",
    "clip",
    "delay",
    "function",
    "unit",
    "frame",
    "columns",
    "formula",
}


def test_there_are_eleven() -> None:
    assert len(SHIPPED) == 11


@pytest.mark.parametrize("task", SHIPPED)
def test_metadata_are_those_of_today(task: str) -> None:
    """If not: `genelab export TASK pretrained --out policy.ts`, and both files in the place of the old ones."""
    about = read_metadata(SHIPPED[task])
    told = {key: value for key, value in about.items() if key not in ("golden", "format", "parity")}
    with policy_on_task(task, SHIPPED[task], num_envs=1) as (env, _):
        now = json.loads(as_text(describe_again(env, about)))
    told["start"].pop("origin")  # on generated ground that of the first environment
    now["start"].pop("origin")
    assert now == told


@pytest.mark.parametrize("task", SHIPPED)
def test_every_number_is_defined(task: str) -> None:
    about = read_metadata(SHIPPED[task])
    for group in about["obs_groups"].values():
        for term in group["terms"]:
            assert term.keys() >= SAID_OF_EACH_TERM
            assert term["formula"]
            assert term["source"]["kind"]
            assert len(term["columns"]) == term["dim"]
    for action in about["actions"]:
        assert action["formula"]
    robot = about["entities"]["robot"]
    for key in ("stiffness", "damping", "effort_limit", "armature", "frictionloss", "default_joint_pos"):
        assert len(robot[key]) == len(robot["joint_names"])


@pytest.mark.parametrize("task", SHIPPED)
def test_they_are_in_the_file_and_its_golden_rows_hold(task: str) -> None:
    path = SHIPPED[task]
    about = read_metadata(path)
    with zipfile.ZipFile(path) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/extra/genelab.json")]
        assert json.loads(archive.read(name)) == about
    extra = {"genelab.json": ""}
    torch.jit.load(path, _extra_files=extra)
    assert json.loads(extra["genelab.json"]) == about
    assert len(about["golden"]["actions"]) == 16
    policy = TorchScriptPolicy(path.read_bytes(), recurrent=False, device=torch.device("cpu"))
    assert golden_error(policy, about["golden"]) < 1e-5


@pytest.mark.parametrize("task", SHIPPED)
def test_they_tell_of_no_machine(task: str) -> None:
    """Torch writes down which file each line came from, and that is somebody's home."""
    home = SHIPPED[task].parent
    with zipfile.ZipFile(SHIPPED[task]) as archive:
        parts = [archive.read(name) for name in archive.namelist()]
    for content in (*parts, *(file.read_bytes() for file in home.rglob("*.json"))):
        assert not re.search(rb"/(home|root|tmp|work|Users)/", content)
