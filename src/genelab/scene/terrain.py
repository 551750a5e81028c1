"""The ground."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from genelab.errors import ConfigError

_BASE_THICKNESS = 0.1
"""How far a height field reaches below its lowest point, m."""


@dataclass(kw_only=True)
class TerrainCfg:
    """What all grounds have."""

    friction: float = 1.0
    """Sliding friction. Of two touching geoms the larger counts."""


@dataclass(kw_only=True)
class PlaneCfg(TerrainCfg):
    """An endless flat floor at z = 0."""


@dataclass(kw_only=True)
class HeightFieldCfg(TerrainCfg):
    """Ground from a grid of heights, centred on the origin."""

    heights: Callable[..., np.ndarray]
    """Makes the heights, m: an array whose first axis is x and whose second is y."""
    heights_args: dict[str, Any] = field(default_factory=dict)
    """Arguments for `heights`."""
    resolution: float = 0.1
    """Distance between grid points, m."""


class Terrain:
    """The ground of the scene, the same in all environments."""

    def __init__(self, cfg: TerrainCfg) -> None:
        self.cfg = cfg
        self.heights: Tensor | None = None
        if isinstance(cfg, HeightFieldCfg):
            heights = np.asarray(cfg.heights(**cfg.heights_args), dtype=np.float64)
            if heights.ndim != 2 or min(heights.shape) < 2:
                raise ConfigError(f"env.scene.terrain: heights must be a grid, got an array of shape {heights.shape}")
            self.heights = torch.from_numpy(heights)
            self._half = cfg.resolution * (torch.tensor(heights.shape) - 1) / 2

    def attach_to(self, world: mujoco.MjSpec) -> None:
        """Put the ground into the world's MJCF."""
        geom = world.worldbody.add_geom(name="terrain", friction=[self.cfg.friction, 0.005, 0.0001])
        if self.heights is None:
            geom.type = mujoco.mjtGeom.mjGEOM_PLANE
            geom.size = [0.0, 0.0, 0.1]
            return
        low, high = float(self.heights.min()), float(self.heights.max())
        span = max(high - low, 1e-6)
        rows = ((self.heights - low) / span).T.contiguous()  # MJCF has x along a row
        world.add_hfield(
            name="terrain",
            nrow=rows.shape[0],
            ncol=rows.shape[1],
            size=[float(self._half[0]), float(self._half[1]), span, _BASE_THICKNESS],
            userdata=rows.flatten().tolist(),
        )
        geom.type = mujoco.mjtGeom.mjGEOM_HFIELD
        geom.hfieldname = "terrain"
        geom.pos = [0.0, 0.0, low]

    def initialize(self, device: torch.device, dtype: torch.dtype) -> None:
        """Move the heights to where they are looked up."""
        if self.heights is not None:
            self.heights = self.heights.to(device, dtype)
            self._half = self._half.to(device, dtype)

    def height_at(self, points: Tensor) -> Tensor:
        """Height of the ground under points `(..., 2 or 3)`; beyond the edge, that of the nearest edge point."""
        if self.heights is None:
            return torch.zeros_like(points[..., 0])
        assert isinstance(self.cfg, HeightFieldCfg)
        grid = (points[..., :2] + self._half) / self.cfg.resolution
        last = torch.tensor(self.heights.shape, device=grid.device) - 1
        grid = torch.minimum(grid.clamp(min=0.0), last.to(grid.dtype))
        low = torch.minimum(grid.long(), last - 1)
        fx, fy = (grid - low).unbind(-1)
        x, y = low.unbind(-1)
        near = torch.lerp(self.heights[x, y], self.heights[x + 1, y], fx)
        far = torch.lerp(self.heights[x, y + 1], self.heights[x + 1, y + 1], fx)
        return torch.lerp(near, far, fy)
