"""Motions: files of them, at any rate, for any robot that can go anywhere."""

from genelab.motion.check import Finding, MotionCheck
from genelab.motion.clip import Clip, find_motion, npz_bytes, read_clip
from genelab.motion.dynamics import Dynamics
from genelab.motion.kinematics import Kinematics, Motion
from genelab.motion.resample import cut, resample, smooth

__all__ = [
    "Clip",
    "Dynamics",
    "Finding",
    "Kinematics",
    "Motion",
    "MotionCheck",
    "cut",
    "find_motion",
    "npz_bytes",
    "read_clip",
    "resample",
    "smooth",
]
