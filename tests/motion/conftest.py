"""A robot of two links that can go anywhere."""

from __future__ import annotations

from pathlib import Path

import mujoco
import pytest

from genelab.motion import Kinematics

ARM = """
<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <body name="base" pos="0 0 1">
      <freejoint/>
      <geom type="sphere" size="0.1" mass="2"/>
      <body name="upper" pos="0 0 0.1">
        <joint name="shoulder" axis="0 1 0" range="-2 2"/>
        <geom type="capsule" fromto="0 0 0 1 0 0" size="0.02" mass="1"/>
        <body name="lower" pos="1 0 0">
          <joint name="elbow" axis="0 0 1" range="-1 1"/>
          <geom type="capsule" fromto="0 0 0 0.5 0 0" size="0.02" mass="0.5"/>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.fixture
def arm_file(tmp_path: Path) -> Path:
    path = tmp_path / "arm.xml"
    path.write_text(ARM)
    return path


@pytest.fixture
def arm() -> Kinematics:
    return Kinematics(mujoco.MjSpec.from_string(ARM).compile())
