"""Unitree G1: a humanoid of 33 kg with 29 motors.

Source of its data and of those of its motors: docs/sources.md.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import mujoco

from genelab.scene import ActuatorCfg, ArticulationCfg, ImplicitPdActuatorCfg, InitialStateCfg, mjcf_file
from genelab_unitree.robots.motors import Motor

_5020 = Motor(rotor_inertias=(1.39e-5, 1.7e-6, 1.69e-5), gears=(1 + 46 / 18, 1 + 56 / 16), effort=25.0)

MOTORS: dict[str, tuple[Motor, tuple[str, ...]]] = {
    "5020": (
        _5020,
        (".*_elbow_joint", ".*_shoulder_.*_joint", ".*_wrist_roll_joint"),
    ),
    "7520_14": (
        Motor(rotor_inertias=(4.89e-5, 9.8e-6, 5.33e-5), gears=(4.5, 1 + 48 / 22), effort=88.0),
        (".*_hip_pitch_joint", ".*_hip_yaw_joint", "waist_yaw_joint"),
    ),
    "7520_22": (
        Motor(rotor_inertias=(4.89e-5, 1.09e-5, 7.38e-5), gears=(4.5, 5.0), effort=139.0),
        (".*_hip_roll_joint", ".*_knee_joint"),
    ),
    "4010": (
        Motor(rotor_inertias=(6.8e-6, 0.0, 0.0), gears=(5.0, 5.0), effort=5.0),
        (".*_wrist_pitch_joint", ".*_wrist_yaw_joint"),
    ),
    "2x5020": (
        dataclasses.replace(_5020, effort=50.0, count=2),
        (".*_ankle_.*_joint", "waist_pitch_joint", "waist_roll_joint"),
    ),
}
"""Motors by type, and the joints they drive. Ankles and the waist's pitch and roll are moved by two together."""

ACTION_SCALE = {pattern: motor.action_scale for motor, joints in MOTORS.values() for pattern in joints}
"""Angle of a unit action by joint, rad."""

FOOT = (0.04, 0.0, -0.037)
"""The middle of the sole in its ankle's link, m."""


SOLE = (1, 2, 3, 4, 5, 6, 7)
"""The capsules of a sole, from the right edge to the left."""
COARSE_SOLE = (2, 6)
"""Two of them: eight contacts when both feet stand instead of twenty-eight, which is what a physics step costs."""
_EDGES = (1, 7)
_FOOT = 2
"""The bit of contacts between the feet; the ground and all else have the first."""


def g1_spec(sole: tuple[int, ...] = SOLE) -> mujoco.MjSpec:
    """The model, without actuators, that stands on these capsules of its soles.

    Edges that do not stand still touch the other foot: who learns without them treads on its own feet later.
    """
    spec = mjcf_file(str(Path(__file__).with_name("g1.xml")))
    for number in SOLE:
        for side in ("left", "right"):
            geom = spec.geom(f"{side}_foot_{number}_collision")
            if number in sole:
                geom.contype |= _FOOT
                geom.conaffinity |= _FOOT
            elif number in _EDGES:
                geom.contype = geom.conaffinity = _FOOT
            else:
                spec.delete(geom)
    return spec


def g1_cfg() -> ArticulationCfg:
    """Standing with bent knees, with position servos at all joints."""
    actuators: dict[str, ActuatorCfg] = {
        name: ImplicitPdActuatorCfg(
            joint_names=joints,
            stiffness=motor.stiffness,
            damping=motor.damping,
            effort_limit=motor.effort,
            armature=motor.armature,
        )
        for name, (motor, joints) in MOTORS.items()
    }
    pose = {
        ".*_hip_pitch_joint": -0.312,
        ".*_knee_joint": 0.669,
        ".*_ankle_pitch_joint": -0.363,
        ".*_elbow_joint": 0.6,
        ".*_shoulder_pitch_joint": 0.2,
        "left_shoulder_roll_joint": 0.2,
        "right_shoulder_roll_joint": -0.2,
    }
    return ArticulationCfg(
        spec=g1_spec,
        init_state=InitialStateCfg(pos=(0.0, 0.0, 0.76), joint_pos=pose),
        actuators=actuators,
    )
