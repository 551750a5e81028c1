"""Franka's Panda: an arm that picks and places. Source of the published settings: docs/sources.md."""

from genelab.config import TASKS

TASKS.register(
    "GeneLab-Franka-Pick-And-Place-v0",
    "genelab_franka.pick_place:task",
    description="An arm takes a cube to a place on the ground or in the air.",
    robot="Franka Panda",
    backend="sb3 SAC + HER",
    published="genelab_franka.pick_place:published_task",
)
