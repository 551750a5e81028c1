"""What an installed copy has besides the code."""

from __future__ import annotations

from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parent.parent


def test_every_package_of_the_wheel_tells_type_checkers_that_it_is_typed() -> None:
    shipped = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    packages = {path.partition("/")[0] for path in shipped}
    assert packages == {"genelab", "genelab_franka", "genelab_pendulum", "genelab_showcase", "genelab_unitree"}
    assert {f"{package}/py.typed" for package in packages} <= shipped
