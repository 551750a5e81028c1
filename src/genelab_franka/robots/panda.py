"""Franka Panda: an arm of seven joints with a hand of two fingers.

Source of its data and of what is called published: docs/sources.md.
"""

from __future__ import annotations

from pathlib import Path

import mujoco

from genelab.scene import ArticulationCfg, ImplicitPdActuatorCfg, InitialStateCfg, mjcf_file

ARM = ("joint[1-7]",)
FINGERS = ("finger_joint[12]",)
HAND = "hand"

GRASP = (0.0, 0.0, 0.1034)
"""The middle between the finger pads, in the hand, m."""

NEUTRAL = {
    "joint1": 0.0,
    "joint2": 0.41,
    "joint3": 0.0,
    "joint4": -1.85,
    "joint5": 0.0,
    "joint6": 2.26,
    "joint7": 0.79,
    "finger_joint[12]": 0.04,
}
"""The hand points down, open."""


def panda_spec() -> mujoco.MjSpec:
    """The model, without actuators."""
    return mjcf_file(str(Path(__file__).with_name("panda.xml")))


def panda_cfg() -> ArticulationCfg:
    """In its neutral pose, with position servos at all joints.

    All joints of the arm follow with the time constant of the published servos, 200/2000 = 0.1 s, own damping included,
    so that the hand goes straight; but with less of both. MuJoCo solves contacts as if servos did not damp, and damps
    the result: with 200 N·m·s/rad on wrists of 0.1 kg·m² the pads make a tenth of the movement that holds a cube.
    """
    arm = ImplicitPdActuatorCfg(
        joint_names=ARM,
        stiffness={"joint[12]": 1000.0, "joint[34]": 600.0, "joint[5-7]": 80.0},
        damping={"joint[12]": 60.0, "joint[34]": 20.0, "joint[5-7]": 6.0},
        effort_limit={"joint[1-4]": 100.0, "joint[5-7]": 12.0},
    )
    # Two servos with the same target stand for the one motor of the hand; the joints' own damping is enough.
    hand = ImplicitPdActuatorCfg(joint_names=FINGERS, stiffness=800.0, damping=0.0, effort_limit=100.0)
    return ArticulationCfg(
        spec=panda_spec,
        init_state=InitialStateCfg(joint_pos=dict(NEUTRAL)),
        actuators={"arm": arm, "hand": hand},
    )
