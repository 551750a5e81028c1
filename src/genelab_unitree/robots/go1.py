"""Unitree Go1: a quadruped of 13 kg with three motors in each leg.

Source of its data and of those of its motors: docs/sources.md.
"""

from __future__ import annotations

from pathlib import Path

import mujoco

from genelab.scene import ArticulationCfg, ImplicitPdActuatorCfg, InitialStateCfg, mjcf_file
from genelab_unitree.robots.motors import Motor

_ROTOR = (1.11842e-4, 0.0, 0.0)
HIP = Motor(rotor_inertias=_ROTOR, gears=(6.0, 1.0), effort=23.7)
"""Hips and thighs."""
KNEE = Motor(rotor_inertias=_ROTOR, gears=(6.0, 1.5), effort=35.55)
"""Calves: the same motor behind a lever."""

STIFFNESS = 25.0
DAMPING = 0.5
ACTION_SCALE = 0.25

FOOT = (0.0, 0.0, -0.213)
"""The foot in its calf, m."""


def go1_spec() -> mujoco.MjSpec:
    """The model, without actuators."""
    return mjcf_file(str(Path(__file__).with_name("go1.xml")))


def go1_cfg() -> ArticulationCfg:
    """Standing on bent legs, with position servos at all joints."""
    legs = {
        "hips": ImplicitPdActuatorCfg(
            joint_names=(".*_hip_joint", ".*_thigh_joint"),
            stiffness=STIFFNESS,
            damping=DAMPING,
            effort_limit=HIP.effort,
            armature=HIP.armature,
        ),
        "knees": ImplicitPdActuatorCfg(
            joint_names=(".*_calf_joint",),
            stiffness=STIFFNESS,
            damping=DAMPING,
            effort_limit=KNEE.effort,
            armature=KNEE.armature,
        ),
    }
    pose = {".*_hip_joint": 0.0, ".*_thigh_joint": 0.9, ".*_calf_joint": -1.8}
    return ArticulationCfg(
        spec=go1_spec,
        init_state=InitialStateCfg(pos=(0.0, 0.0, 0.42), joint_pos=pose),
        actuators=dict(legs),
    )
