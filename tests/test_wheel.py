"""What an installed copy has besides the code."""

from __future__ import annotations

from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tools.urls import PUBLISHED, Urls, of_remote

ROOT = Path(__file__).parent.parent


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
