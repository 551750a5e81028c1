"""The first view shows the robot, whatever it is."""

from __future__ import annotations

import pytest

from genelab.scene import ArticulationCfg, PlaneCfg, Scene, SceneCfg, mjcf_text
from genelab.sim import SimulationCfg
from genelab.viewer.camera import Camera
from genelab.viewer.puppet import Puppet

ROBOT = """
<mujoco>
  <worldbody>
    <light name="own" pos="0 0 3" diffuse="1 1 1"/>
    <body name="torso" pos="0 0 1">
      <light name="spot" pos="0 0 1" diffuse="1 1 1" mode="trackcom"/>
      {joints}
      <geom type="capsule" size=".1 .3"/>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.mark.parametrize(
    ("joints", "camera"),
    [
        ("<freejoint/>", "track"),
        ('<joint name="x" type="slide" axis="1 0 0"/><joint name="turn" axis="0 1 0"/>', "track"),
        ('<joint name="x" type="slide" axis="1 0 0" range="-1 1"/>', "fixed"),
        ('<joint name="turn" axis="0 1 0"/>', "fixed"),
        ("", "fixed"),
    ],
)
def test_a_robot_that_can_leave_is_followed_and_lit_by_the_sun_alone(joints: str, camera: str) -> None:
    robot = ArticulationCfg(spec=mjcf_text, spec_args={"xml": ROBOT.format(joints=joints)})
    scene = Scene(SceneCfg(entities={"robot": robot}, terrain=PlaneCfg()), SimulationCfg())
    puppet = Puppet(scene)
    assert Camera(puppet, None).name == camera
    assert [puppet.model.light(i).name for i in range(puppet.model.nlight)] == ["drawn_sun"]
    scene.engine.close()
