"""What an installed copy has besides the code."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

from tools.pins import with_pins
from tools.urls import PUBLISHED, Urls, of_remote

ROOT = Path(__file__).parent.parent


def test_uv_installs_the_versions_of_constraints_txt() -> None:
    text, constraints = (ROOT / "pyproject.toml").read_text(), (ROOT / "constraints.txt").read_text()
    assert text == with_pins(text, constraints), "run: python tools/pins.py"
    pinned = tomllib.loads(text)["tool"]["uv"]["constraint-dependencies"]
    assert pinned == [line for line in constraints.splitlines() if not line.startswith("#")]


def test_uv_sync_installs_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["uv"]["default-groups"] == ["dev"]
    assert project["dependency-groups"] == {"dev": ["genelab[all,dev]"]}
    extras = project["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    assert set(everything.removeprefix("genelab[").removesuffix("]").split(",")) == extras.keys() - {"all", "dev"}


def test_torch_is_not_older_than_its_safe_reader() -> None:
    """`torch.load(weights_only=True)` can run code before 2.10 (CVE-2026-24747), and all checkpoints use it."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (torch,) = [one for one in map(Requirement, needed) if one.name == "torch"]
    assert "2.9.1" not in torch.specifier
    assert "2.10.0" in torch.specifier


def test_every_package_of_the_wheel_tells_type_checkers_that_it_is_typed() -> None:
    shipped = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    packages = {path.partition("/")[0] for path in shipped}
    assert packages == {"genelab", "genelab_franka", "genelab_pendulum", "genelab_showcase", "genelab_unitree"}
    assert {f"{package}/py.typed" for package in packages} <= shipped


@pytest.mark.parametrize(
    "remote",
    [
        "https://github.com/owner/genelab.git",
        "https://github.com/owner/genelab",
        "https://name:secret@github.com/owner/genelab.git",
        "git@github.com:owner/genelab.git",
        "ssh://git@github.com/owner/genelab",
    ],
)
def test_a_wheel_names_the_repository_that_it_is_built_from_and_no_secret(remote: str) -> None:
    assert of_remote(remote) == {
        "Repository": "https://github.com/owner/genelab",
        "Issues": "https://github.com/owner/genelab/issues",
        "Changelog": "https://github.com/owner/genelab/blob/main/CHANGELOG.md",
    }


@pytest.mark.parametrize("remote", ["", "/home/somebody/genelab", "../genelab", "file:///home/somebody/genelab.git"])
def test_it_names_no_folder(remote: str) -> None:
    assert of_remote(remote) == {}


def test_without_a_repository_a_wheel_says_where_the_published_numbers_are_from(tmp_path: Path) -> None:
    metadata: dict[str, object] = {}
    Urls(str(tmp_path), {}).update(metadata)
    assert metadata == {"urls": PUBLISHED}


def test_the_build_asks_for_them() -> None:
    assert PUBLISHED.items() <= WheelBuilder(str(ROOT)).metadata.core.urls.items()
