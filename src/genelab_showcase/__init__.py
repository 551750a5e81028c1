"""Scenes to look at: they play by themselves, and nothing learns."""

from genelab.config import TASKS

TASKS.register(
    "GeneLab-Rubiks-Play-v0",
    "genelab_showcase.rubiks:task",
    description="A cube of 26 cubies is scrambled and solved, again and again.",
    robot="Rubik's cube",
    backend=None,
)
TASKS.register(
    "GeneLab-Wuji-Hand-Playback-v0",
    "genelab_showcase.wuji_hand:task",
    description="A hand of 20 joints plays a trajectory from a file.",
    robot="Wuji Hand",
    backend=None,
)
