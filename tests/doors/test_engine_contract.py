"""The contract of engines, against one of point masses on rails from outside the package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from genelab import TASKS
from genelab.testing import EngineContract
from tests.doors.helpers import TOYS, doors_closed_again

RAILS = """
<mujoco>
  <worldbody>
    <body name="first" pos="0 0 1" quat="1 .1 .2 .3">
      <joint name="first" type="slide" axis="1 0 0"/>
      <geom size=".1" pos=".02 0 0" mass="1" contype="0" conaffinity="0"/>
    </body>
    <body name="second" pos="0 1 1">
      <joint name="second" type="slide" axis="0 0 1" ref=".2" armature=".1"/>
      <geom size=".1" mass=".5" contype="0" conaffinity="0"/>
    </body>
  </worldbody>
  <actuator>
    <motor joint="first" ctrlrange="-1 1"/>
    <position joint="second" kp="3" forcerange="-2 2"/>
  </actuator>
</mujoco>
"""
HINGE = '<mujoco><worldbody><body><joint/><geom size=".1"/></body></worldbody></mujoco>'


class TestToyEngine(EngineContract):
    engine = "toy"
    xml = RAILS
    carried: ClassVar = {}
    refused: ClassVar = {HINGE: "joints that turn"}

    @pytest.fixture(autouse=True, scope="class")
    def _imported(self) -> Iterator[None]:
        with doors_closed_again():
            TASKS.import_module(str(TOYS / "toy_engine.py"))
            yield
