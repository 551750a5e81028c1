"""A plane, and ground from a grid of heights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from genelab.errors import ConfigError
from genelab.state import Stateful

_BASE_THICKNESS = 0.1
"""How far a height field reaches below its lowest point, m."""


@dataclass(kw_only=True)
class TerrainCfg:
    """What all grounds have."""

    friction: float = 1.0
    """Sliding friction. Of two touching geoms the larger counts."""

    def build(self) -> Terrain:
        """The ground itself."""
        raise NotImplementedError


@dataclass(kw_only=True)
class PlaneCfg(TerrainCfg):
    """An endless flat floor at z = 0."""

    def build(self) -> Terrain:
        return Terrain(self)


@dataclass(kw_only=True)
class HeightFieldCfg(TerrainCfg):
    """Ground from a grid of heights, centred on the origin."""

    heights: Callable[..., np.ndarray]
    """Makes the heights, m: an array whose first axis is x and whose second is y."""
    heights_args: dict[str, Any] = field(default_factory=dict)
    """Arguments for `heights`."""
    resolution: float = 0.1
    """Distance between grid points, m."""

    def build(self) -> HeightField:
        return HeightField(self, self.heights(**self.heights_args), self.resolution)


class Terrain(Stateful):
    """The ground of the scene, the same in all environments; this one is an endless plane at z = 0.

    `env_origins (N, 3)` says where each environment starts. It is one live tensor that everything shares: it is changed
    in place, never replaced.
    """

    env_origins: Tensor
    size: tuple[float, float] = (math.inf, math.inf)
    """Extent along x and y, centred on the origin, m."""

    def __init__(self, cfg: TerrainCfg) -> None:
        self.cfg = cfg

    def attach_to(self, world: mujoco.MjSpec) -> None:
        """Put the ground into the world's MJCF."""
        geom = self._add_geom(world)
        geom.type = mujoco.mjtGeom.mjGEOM_PLANE
        geom.size = [0.0, 0.0, 0.1]

    def _add_geom(self, world: mujoco.MjSpec) -> mujoco.MjsGeom:
        return world.worldbody.add_geom(name="terrain", friction=[self.cfg.friction, 0.005, 0.0001])

    def initialize(self, num_envs: int, device: torch.device, dtype: torch.dtype) -> None:
        """Make what is kept per environment, and move what is looked up to where it is looked up."""
        self.env_origins = torch.zeros(num_envs, 3, device=device, dtype=dtype)
        self.env_origins[:, 2] = self.height_at(self.env_origins)

    @property
    def is_plane(self) -> bool:
        """Whether it is at z = 0 everywhere, and nothing need be looked up."""
        return type(self).height_at is Terrain.height_at

    def height_at(self, points: Tensor) -> Tensor:
        """Height of the ground under points `(..., 2 or 3)`; beyond the edge, that of the nearest edge point."""
        return torch.zeros_like(points[..., 0])

    def height_of(self, points: Tensor) -> Tensor:
        """How high points `(..., 3)` are above the ground under them."""
        return points[..., 2] if self.is_plane else points[..., 2] - self.height_at(points)

    def contains(self, points: Tensor, margin: float = 0.0) -> Tensor:
        """Which points `(..., 2 or 3)` lie over the ground, at least `margin` metres inside its edge."""
        x, y = points[..., 0], points[..., 1]
        return (x.abs() <= self.size[0] / 2 - margin) & (y.abs() <= self.size[1] / 2 - margin)

    def restart(self) -> None:
        """Forget what past episodes changed."""

    def state_dict(self) -> dict[str, Any]:
        """What past episodes changed."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to what `state_dict` gave."""


class HeightField(Terrain):
    """Ground from a grid of heights. Between its points it is bilinear; engines split each square into triangles."""

    def __init__(self, cfg: TerrainCfg, heights: np.ndarray, resolution: float) -> None:
        super().__init__(cfg)
        heights = np.asarray(heights, dtype=np.float64)
        if heights.ndim != 2 or min(heights.shape) < 2:
            raise ConfigError(f"env.scene.terrain: heights must be a grid, got an array of shape {heights.shape}")
        self.resolution = resolution
        self.size = (resolution * (heights.shape[0] - 1), resolution * (heights.shape[1] - 1))
        self._half = torch.tensor(self.size, dtype=torch.float64) / 2
        # As an image: `grid_sample`, like MJCF, has x along a row.
        self._image = torch.from_numpy(heights).T.contiguous()[None, None]

    @property
    def heights(self) -> Tensor:
        """The heights, m: x along the first axis, y along the second."""
        return self._image[0, 0].T

    def attach_to(self, world: mujoco.MjSpec) -> None:
        rows = self._image[0, 0]
        low, high = float(rows.min()), float(rows.max())
        span = max(high - low, 1e-6)
        world.add_hfield(
            name="terrain",
            nrow=rows.shape[0],
            ncol=rows.shape[1],
            size=[self.size[0] / 2, self.size[1] / 2, span, _BASE_THICKNESS],
            userdata=((rows - low) / span).flatten().tolist(),
        )
        geom = self._add_geom(world)
        geom.type = mujoco.mjtGeom.mjGEOM_HFIELD
        geom.hfieldname = "terrain"
        geom.pos = [0.0, 0.0, low]

    def initialize(self, num_envs: int, device: torch.device, dtype: torch.dtype) -> None:
        self._image = self._image.to(device, dtype)
        self._half = self._half.to(device, dtype)
        super().initialize(num_envs, device, dtype)

    def height_at(self, points: Tensor) -> Tensor:
        count = points.shape[-2] if points.ndim > 1 else 1
        # In long rows: torch broadcasts over a last axis of two eight times slower.
        grid = points[..., :2].reshape(-1, 2 * count) / self._half.repeat(count)
        found = torch.nn.functional.grid_sample(
            self._image, grid.view(1, 1, -1, 2), padding_mode="border", align_corners=True
        )
        return found.view(points.shape[:-1])
