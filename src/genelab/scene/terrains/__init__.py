"""The ground: a plane, a height field, or a generated grid of kinds and difficulties."""

from genelab.scene.terrains.dealing import cell_order
from genelab.scene.terrains.generator import GeneratedTerrain, TerrainGeneratorCfg
from genelab.scene.terrains.ground import HeightField, HeightFieldCfg, PlaneCfg, Terrain, TerrainCfg
from genelab.scene.terrains.kinds import (
    BoxesCfg,
    FlatCfg,
    PyramidStairsCfg,
    RandomRoughCfg,
    SlopeCfg,
    SteppingStonesCfg,
    SubTerrainCfg,
    WaveCfg,
)
from genelab.scene.terrains.relief import draw_relief

__all__ = [
    "BoxesCfg",
    "FlatCfg",
    "GeneratedTerrain",
    "HeightField",
    "HeightFieldCfg",
    "PlaneCfg",
    "PyramidStairsCfg",
    "RandomRoughCfg",
    "SlopeCfg",
    "SteppingStonesCfg",
    "SubTerrainCfg",
    "Terrain",
    "TerrainCfg",
    "TerrainGeneratorCfg",
    "WaveCfg",
    "cell_order",
    "draw_relief",
]
