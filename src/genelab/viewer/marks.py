"""What is asked of a robot, and what it does, as marks in the picture."""

from __future__ import annotations

from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv
from genelab.managers.marks import Mark


def marks_of(env: ManagerBasedEnv, i: int, top: float) -> list[Mark]:
    """What the commands of environment `i` ask for; the robot reaches `top` metres above its root."""
    if not isinstance(env, ManagerBasedRlEnv):
        return []
    return [mark for term in env.command_manager.terms.values() for mark in term.marks(i, top)]
