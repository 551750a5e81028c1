"""Unitree Go2-W: a quadruped of 20 kg with three motors in each leg, and a driven wheel for a foot.

Source of its data and of what is called published: docs/sources.md.
"""

from __future__ import annotations

from pathlib import Path

import mujoco

from genelab.scene import (
    ActuatorCfg,
    ArticulationCfg,
    ImplicitPdActuatorCfg,
    ImplicitVelocityActuatorCfg,
    InitialStateCfg,
    mjcf_file,
)

LEGS = (".*_hip_joint", ".*_thigh_joint", ".*_calf_joint")
WHEELS = (".*_foot_joint",)

STIFFNESS = 25.0
DAMPING = 0.5
ACTION_SCALE = 0.25
"""Angle of a unit action, rad."""
WHEEL_SCALE = 2.0
"""Speed of a unit action, rad/s. The published policy does all the rolling; here it corrects, and the noise of a
beginner would shake the robot."""
PUBLISHED_WHEEL_SCALE = 20.0
"""The same in the published settings."""
WHEEL_DAMPING = 5.0
"""Torque for each rad/s that a wheel is off its speed, N·m·s/rad: a wheel that is to stand brakes."""
LOCKED_DAMPING = 20.0
"""The same, of wheels that are to be feet."""

PUBLISHED_WHEEL_EFFORT = 15.0
"""Torque limit of wheels that roll in the published settings, N·m."""
WHEEL_EFFORT = 50.0
"""Torque limit in both stages, N·m; published for locked wheels only. With 15 a wheel in the air, which has
0.0012 kg·m² and no rotor, is thrown from limit to limit as soon as it is 3 rad/s off. On the ground grip gives it no
more than 7 N·m."""

WHEEL_RADIUS = 0.086
WHEEL_TRACK = 0.202
"""How far a wheel is beside the middle, m."""


def go2w_spec() -> mujoco.MjSpec:
    """The model, without actuators. A wheel is a cylinder: two contacts where it stands upright, one where it leans."""
    return mjcf_file(str(Path(__file__).with_name("go2w.xml")))


def go2w_cfg(*, lock_wheels: bool = False, wheel_effort: float = WHEEL_EFFORT) -> ArticulationCfg:
    """Standing on bent legs, with position servos in the legs and velocity servos in the wheels.

    Wheels that are locked brake four times as hard.
    """
    actuators: dict[str, ActuatorCfg] = {
        "hips": ImplicitPdActuatorCfg(
            joint_names=(".*_hip_joint", ".*_thigh_joint"), stiffness=STIFFNESS, damping=DAMPING, effort_limit=23.7
        ),
        "knees": ImplicitPdActuatorCfg(
            joint_names=(".*_calf_joint",), stiffness=STIFFNESS, damping=DAMPING, effort_limit=45.43
        ),
        "wheels": ImplicitVelocityActuatorCfg(
            joint_names=WHEELS,
            damping=LOCKED_DAMPING if lock_wheels else WHEEL_DAMPING,
            effort_limit=wheel_effort,
        ),
    }
    pose = {".*_hip_joint": 0.0, ".*_thigh_joint": 0.9, ".*_calf_joint": -1.8}
    return ArticulationCfg(
        spec=go2w_spec,
        init_state=InitialStateCfg(pos=(0.0, 0.0, 0.45), joint_pos=pose),
        actuators=actuators,
    )
