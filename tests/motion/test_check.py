"""What a motion asks of a robot, by numbers that can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from genelab.motion import Clip, Finding, MotionCheck
from genelab.scene import ArticulationCfg, ImplicitPdActuatorCfg, mjcf_text

BOX = """
<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <body name="box">
      <freejoint/>
      <geom type="box" size="0.2 0.2 0.1" mass="10"/>
      <body name="arm" pos="0 0 0.1">
        <joint name="lift" axis="0 -1 0" range="-1 1"/>
        <geom type="sphere" pos="0.5 0 0" size="0.01" mass="1"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.fixture(scope="module")
def box() -> MotionCheck:
    servo = ImplicitPdActuatorCfg(joint_names=("lift",), stiffness=10.0, damping=1.0, effort_limit=10.0)
    return MotionCheck(ArticulationCfg(spec=mjcf_text, spec_args={"xml": BOX}, actuators={"lift": servo}))


def found(check: MotionCheck, place: np.ndarray, lift: float = 0.0, fps: float = 10.0) -> dict[str, Finding]:
    """A box that goes through these places `(T, 3)` with its arm held somewhere."""
    count = len(place)
    quat = np.tile([1.0, 0.0, 0.0, 0.0], (count, 1))
    clip = Clip(fps=fps, root_pos=place, root_quat=quat, joint_pos=np.full((count, 1), lift))
    return {one.what: one for one in check.findings(clip)}


STANDS = np.tile([0.0, 0.0, 0.1], (5, 1))


def test_a_box_that_stands_needs_what_the_ground_gives(box: MotionCheck) -> None:
    report = found(box, STANDS)
    assert all(one.is_good for one in report.values())
    assert report["force that no ground gives"].value == pytest.approx(0.0, abs=0.05)
    assert report["torque"].value == pytest.approx(0.5 * 9.81, rel=1e-3)  # 1 kg half a metre out
    assert report["of a joint's peak torque"].value == pytest.approx(0.4905, rel=1e-3)  # of 10 N·m


def test_a_box_in_the_air_needs_its_weight_from_nowhere(box: MotionCheck) -> None:
    report = found(box, STANDS + np.array([0.0, 0.0, 1.0]))
    force = report["force that no ground gives"]
    assert force.value == pytest.approx(11 * 9.81, rel=1e-3)
    assert not force.is_good


def test_frames_on_the_ground_and_in_the_air_are_told_apart(box: MotionCheck) -> None:
    """Lifted by a metre and left there: the frame between has the largest acceleration."""
    lifted = np.concatenate((STANDS, STANDS + np.array([0.0, 0.0, 1.0])))
    report = found(box, lifted, fps=1.0)
    assert report["force that no ground gives"].frame >= 4
    assert report["into the ground"].value == pytest.approx(0.0, abs=1e-9)


def test_a_box_that_slides_slips_all_the_way(box: MotionCheck) -> None:
    slides = STANDS + np.array([0.0, 0.05, 0.0]) * np.arange(5)[:, None]
    slip = found(box, slides)["slips while it stands"]
    assert slip.value == pytest.approx(5 * 0.05, rel=1e-6)  # a frame each
    assert (slip.frame, slip.where, slip.is_good) == (4, "box", False)


def test_sinking_in_and_bending_too_far_are_found_where_they_are_worst(box: MotionCheck) -> None:
    sinks = STANDS.copy()
    sinks[2, 2] = 0.07
    depth = found(box, sinks)["into the ground"]
    assert (depth.value, depth.frame, depth.where) == (pytest.approx(0.03), 2, "box")
    bent = found(box, STANDS, lift=1.25)["beyond a joint limit"]
    assert (bent.value, bent.where, bent.is_good) == (pytest.approx(0.25), "lift", False)


def test_speeds_are_told(box: MotionCheck) -> None:
    report = found(box, STANDS + np.array([0.3, 0.0, 0.0]) * np.arange(5)[:, None])
    assert report["root speed"].value == pytest.approx(3.0)
    assert report["joint speed"].value == 0.0
