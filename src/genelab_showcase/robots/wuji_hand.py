"""Wuji Hand: five fingers of four joints.

Source of its data and of what is called published: docs/sources.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import mujoco

from genelab.scene import ArticulationCfg, ImplicitPdActuatorCfg, InitialStateCfg, mjcf_file

Side = Literal["right", "left"]

FINGERS = ("thumb", "index_finger", "middle_finger", "ring_finger", "pinky")
JOINTS = tuple(
    f"{finger}_{joint}"
    for finger in FINGERS
    for joint in (("cmc_flex", "cmc_abd", "mcp", "ip") if finger == "thumb" else ("mcp_flex", "mcp_abd", "pip", "dip"))
)
"""In the order of the model and of the columns of a trajectory."""


def wuji_hand_spec(side: Side = "right") -> mujoco.MjSpec:
    """The model, without actuators; the left hand is the right one in a mirror."""
    spec = mjcf_file(str(Path(__file__).with_name("wuji_hand.xml")))
    if side == "left":
        _mirror(spec)
    return spec


def _mirror(spec: mujoco.MjSpec) -> None:
    """Reflect x. Rotations and axes keep their x and turn their y and z: the same angles make the mirrored pose."""
    for part in (*spec.bodies, *spec.geoms, *spec.sites):
        x, y, z = part.pos
        part.pos = [-x, y, z]
        w, x, y, z = part.quat
        part.quat = [w, x, -y, -z]
    for joint in spec.joints:
        x, y, z = joint.axis
        joint.axis = [x, -y, -z]


def wuji_hand_cfg(side: Side = "right") -> ArticulationCfg:
    """Upright on its forearm, palm to the camera; servos of the published playback, limits of effort of the model."""
    servos = ImplicitPdActuatorCfg(joint_names=JOINTS, stiffness=0.8, damping=0.04)
    return ArticulationCfg(
        spec=wuji_hand_spec,
        spec_args={"side": side},
        init_state=InitialStateCfg(pos=(0.0, 0.0, 0.15), rot=(0.0, 0.954, 0.301, 0.0)),
        actuators={"servos": servos},
    )
