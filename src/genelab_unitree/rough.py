"""Rough ground: a grid of stairs, boxes, rubble and slopes that gets harder row by row.

Source of the numbers: the published configuration of GeneLab's reference runs, `Genelab-Velocity-Rough-Unitree-*`
(docs/sources.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from genelab import mdp
from genelab.envs import ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import adapt, obs, symmetric, truncation
from genelab.scene import HeightScanCfg
from genelab.scene.terrains import (
    BoxesCfg,
    PyramidStairsCfg,
    RandomRoughCfg,
    SlopeCfg,
    TerrainGeneratorCfg,
)


@dataclass(frozen=True, kw_only=True)
class Roughness:
    """How hard the ground gets: values at difficulty 0 and 1."""

    stairs: tuple[float, float]
    """Height of a step, m."""
    boxes: tuple[float, float]
    """Height of the highest box, m."""
    rubble: tuple[float, float]
    """Amplitude, m."""
    slope: tuple[float, float]
    """Rise over run."""


def rough_terrain(roughness: Roughness) -> TerrainGeneratorCfg:
    """Ten levels of ten cells of 8 m."""
    return TerrainGeneratorCfg(
        sub_terrains={
            "stairs_up": PyramidStairsCfg(step_width=0.3, step_height=roughness.stairs),
            "stairs_down": PyramidStairsCfg(step_width=0.3, step_height=_negative(roughness.stairs)),
            "boxes": BoxesCfg(height=roughness.boxes, side=(0.4, 1.0), count=20),
            "rubble": RandomRoughCfg(amplitude=roughness.rubble, step=0.02, downsample=0.2),
            "slope_up": SlopeCfg(slope=roughness.slope),
            "slope_down": SlopeCfg(slope=_negative(roughness.slope)),
        },
        columns=(
            *(name for name in ("stairs_up", "stairs_down", "boxes", "rubble") for _ in range(2)),
            "slope_up",
            "slope_down",
        ),
        rows=10,
    )


def _negative(span: tuple[float, float]) -> tuple[float, float]:
    return (-span[0], -span[1])


def make_rough(cfg: ManagerBasedRlEnvCfg, roughness: Roughness, scan_body: str) -> None:
    """Put a flat task onto rough ground: it sees the ground around it, and goes to harder ground as it gets better."""
    cfg.scene.terrain = rough_terrain(roughness)
    cfg.scene.sensors["scan"] = HeightScanCfg(entity="robot", body=scan_body, size=(1.6, 1.0), resolution=0.1)
    for group in cfg.observations.values():
        group.terms["height_scan"] = obs(mdp.height_scan, sensor="scan").then(noise=symmetric(0.1), clip=(-1.0, 2.0))
    cfg.curriculum["terrain_levels"] = adapt(mdp.terrain_levels_vel, command="twist", promote_distance=4.0)
    cfg.terminations["out_of_terrain"] = truncation(mdp.out_of_terrain, margin=1.0)


def rough_play(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """To watch and to judge: robots on all levels, since nothing promotes them there."""
    cfg = play_cfg(cfg)
    assert isinstance(cfg.scene.terrain, TerrainGeneratorCfg)
    cfg.scene.terrain.max_init_level = None
    return cfg


def published_rough_play(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """Return the config that published policies are judged in: every episode starts on level 0.

    In the published evaluation a robot that gets far enough starts its next episode on level 1.
    """
    cfg = play_cfg(cfg)
    assert isinstance(cfg.scene.terrain, TerrainGeneratorCfg)
    cfg.scene.terrain.max_init_level = 0
    return cfg
