"""What is asked of a walking robot, and what it does, as arrows above it."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv
from genelab.mdp import VelocityCommand
from genelab.viewer.offscreen import Arrow

ASKED = (0.16, 0.62, 0.35, 1.0)
"""Colour of the commanded velocity."""
DONE = (0.13, 0.42, 0.75, 1.0)
"""Colour of the robot's velocity."""
_GAP = 0.1
"""How far above the robot they start, m."""
_LENGTH = 0.5
"""Length of an arrow of 1 m/s, m."""


def velocity_arrows(env: ManagerBasedEnv, i: int, top: float) -> list[Arrow]:
    """The velocity that environment `i` asks for, green, and below it the one it has, blue.

    They start above the robot, which reaches `top` metres above its root.
    """
    if not isinstance(env, ManagerBasedRlEnv):
        return []
    arrows = []
    for term in env.command_manager.terms.values():
        if isinstance(term, VelocityCommand):
            robot = term.robot
            place = _numpy(robot.root_pos_w[i]) + np.array([0.0, 0.0, top + _GAP])
            heading = float(robot.heading_w[i])
            forward = np.array([np.cos(heading), np.sin(heading), 0.0])
            left = np.array([-forward[1], forward[0], 0.0])
            for values, rgba, drop in (
                (_numpy(term.command[i, :2]), ASKED, 0.0),
                (_numpy(robot.root_lin_vel_b[i, :2]), DONE, 0.05),
            ):
                vector = _LENGTH * (values[0] * forward + values[1] * left)
                arrows.append(Arrow(place - np.array([0.0, 0.0, drop]), vector, rgba))
    return arrows


def _numpy(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy().astype(np.float64)
