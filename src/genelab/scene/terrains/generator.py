"""A grid of cells: rows of rising difficulty, columns of kinds, one height field for all."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from genelab.errors import ConfigError, did_you_mean
from genelab.scene.terrains.ground import HeightField, TerrainCfg
from genelab.scene.terrains.kinds import SubTerrainCfg
from genelab.sim import EnvIds
from genelab.state import keep_attributes, load_attributes


@dataclass(kw_only=True)
class TerrainGeneratorCfg(TerrainCfg):
    """A grid of square cells, centred on the origin: rows along x get harder, columns along y are of one kind each."""

    sub_terrains: dict[str, SubTerrainCfg] = field(default_factory=dict)
    """The kinds of ground, by name."""
    rows: int = 10
    """Levels of difficulty, from 0 in the first row to 1 in the last."""
    columns: int | tuple[str, ...] = 10
    """How many columns, shared among the kinds by their `proportion`; or the kind of each column, by name."""
    cell_size: float = 8.0
    """Side of a cell, m."""
    horizontal_scale: float = 0.1
    """Distance between grid points, m. Memory goes with its inverse square."""
    vertical_scale: float = 0.005
    """Heights are rounded to multiples of this, m."""
    border_width: float = 5.0
    """Width of the level rim around the grid, at height 0, m."""
    footprint: float = 1.6
    """Side of the square about an origin in which robots start, m; the origin is as high as its highest point."""
    seed: int = 0
    """Decides everything random about the ground, whatever the seed of the environment."""
    max_init_level: int | None = 0
    """Hardest row in which environments begin; None: they begin in all rows."""

    @property
    def init_levels(self) -> int:
        """In how many rows environments begin, from the easiest."""
        return self.rows if self.max_init_level is None else self.max_init_level + 1

    def build(self) -> GeneratedTerrain:
        return GeneratedTerrain(self)

    def column_kinds(self) -> list[str]:
        """The kind of each column."""
        if not isinstance(self.columns, int):
            return list(self.columns)
        names, shares = list(self.sub_terrains), [kind.proportion for kind in self.sub_terrains.values()]
        ends = np.cumsum(shares) / sum(shares)
        return [names[int(np.searchsorted(ends, (i + 0.5) / self.columns))] for i in range(self.columns)]

    def validate(self) -> None:
        """Refuse what cannot be generated."""
        where = "env.scene.terrain"
        if not self.sub_terrains:
            raise ConfigError(f"{where}.sub_terrains: name at least one kind of ground")
        if min(kind.proportion for kind in self.sub_terrains.values()) < 0:
            raise ConfigError(f"{where}.sub_terrains: a proportion must not be negative")
        if sum(kind.proportion for kind in self.sub_terrains.values()) <= 0:
            raise ConfigError(f"{where}.sub_terrains: one proportion at least must be positive")
        count = self.columns if isinstance(self.columns, int) else len(self.columns)
        if self.rows < 1 or count < 1:
            raise ConfigError(f"{where}: needs at least one row and one column, got {self.rows} and {count}")
        for name in self.column_kinds():
            if name not in self.sub_terrains:
                hint = did_you_mean(name, self.sub_terrains)
                raise ConfigError(f"{where}.columns: no kind of ground is called {name!r}.{hint}")
        for name in ("cell_size", "horizontal_scale", "vertical_scale"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{where}.{name}: must be positive, got {getattr(self, name)}")
        cells = self.cell_size / self.horizontal_scale
        if abs(cells - round(cells)) > 1e-6:
            raise ConfigError(
                f"{where}.cell_size: {self.cell_size:g} m is no multiple of the horizontal_scale, "
                f"{self.horizontal_scale:g} m"
            )
        if self.border_width < 0:
            raise ConfigError(f"{where}.border_width: must not be negative, got {self.border_width}")
        if self.max_init_level is not None and not 0 <= self.max_init_level < self.rows:
            raise ConfigError(
                f"{where}.max_init_level: must be from 0 to {self.rows - 1}, or none, got {self.max_init_level}"
            )


def generate(cfg: TerrainGeneratorCfg) -> np.ndarray:
    """The heights of the whole field, m."""
    cells, border = round(cfg.cell_size / cfg.horizontal_scale), _border_points(cfg)
    kinds = cfg.column_kinds()
    heights = np.zeros((cfg.rows * cells + 2 * border + 1, len(kinds) * cells + 2 * border + 1))
    for row, column in itertools.product(range(cfg.rows), range(len(kinds))):
        # A generator per cell: to change one kind leaves the others as they are.
        rng = np.random.default_rng((cfg.seed, row, column))
        kind = cfg.sub_terrains[kinds[column]]
        cell = kind.heights(row / max(cfg.rows - 1, 1), rng, cfg.cell_size, cfg.horizontal_scale)
        if cell.shape != (cells + 1, cells + 1):
            raise ConfigError(
                f"env.scene.terrain.sub_terrains.{kinds[column]}: heights must be of shape {(cells + 1, cells + 1)}, "
                f"got {cell.shape}"
            )
        x, y = border + row * cells, border + column * cells
        heights[x : x + cells + 1, y : y + cells + 1] = cell  # neighbours share the points of their edge
    return np.round(heights / cfg.vertical_scale) * cfg.vertical_scale


def _border_points(cfg: TerrainGeneratorCfg) -> int:
    return math.ceil(cfg.border_width / cfg.horizontal_scale - 1e-6)


class GeneratedTerrain(HeightField):
    """A generated grid, and where in it each environment is.

    `levels (N,)` are rows and `kinds (N,)` columns; `env_origins (N, 3)` follows them.
    """

    cfg: TerrainGeneratorCfg
    origins: Tensor
    """Where robots start: the middle of each cell, `(rows, columns, 3)`."""
    levels: Tensor
    kinds: Tensor

    def __init__(self, cfg: TerrainGeneratorCfg) -> None:
        cfg.validate()
        super().__init__(cfg, generate(cfg), cfg.horizontal_scale)
        self.kind_names = cfg.column_kinds()
        self.origins = self._find_origins()

    def _find_origins(self) -> Tensor:
        cfg, half = self.cfg, self.cfg.footprint / 2
        origins = torch.zeros(cfg.rows, len(self.kind_names), 3, dtype=torch.float64)
        for row, column in itertools.product(range(cfg.rows), range(len(self.kind_names))):
            x = cfg.cell_size * (row + 0.5 - cfg.rows / 2)
            y = cfg.cell_size * (column + 0.5 - len(self.kind_names) / 2)
            # Between grid points the ground is no higher than at them: those around the footprint bound it.
            patch = self.heights[self._span(x - half, x + half, 0), self._span(y - half, y + half, 1)]
            origins[row, column] = torch.tensor((x, y, float(patch.max())))
        return origins

    def _span(self, low: float, high: float, axis: int) -> slice:
        """The grid points along an axis from the last one before `low` to the first after `high`."""
        first, last = ((value + self.size[axis] / 2) / self.resolution for value in (low, high))
        return slice(max(0, math.floor(first + 1e-6)), math.ceil(last - 1e-6) + 1)

    def initialize(self, num_envs: int, device: torch.device, dtype: torch.dtype) -> None:
        super().initialize(num_envs, device, dtype)
        self.origins = self.origins.to(device, dtype)
        every = torch.arange(num_envs, device=device)
        self.kinds = every * len(self.kind_names) // num_envs
        self.levels = torch.zeros_like(every)
        self.restart()

    def restart(self) -> None:
        """Every environment back to the level it began on."""
        self.levels[:] = torch.arange(len(self.levels), device=self.levels.device) % self.cfg.init_levels
        self._follow(None)

    def place(self, levels: Tensor, kinds: Tensor, env_ids: EnvIds = None) -> None:
        """Choose the row and the column of environments, `(len(env_ids),)`; takes effect at their next reset."""
        rows = slice(None) if env_ids is None else env_ids
        self.levels[rows] = levels.to(self.levels)
        self.kinds[rows] = kinds.to(self.kinds)
        self._follow(env_ids)

    def in_own_cell(self, points: Tensor) -> Tensor:
        """Which points, one for each environment, `(N, 2 or 3)`, are over the cell that the environment begins in."""
        away = (points[:, :2] - self.env_origins[:, :2]).abs()
        return (away <= self.cfg.cell_size / 2).all(dim=1)

    def move(self, env_ids: EnvIds, up: Tensor, down: Tensor, rng: torch.Generator) -> None:
        """Change the level of environments, by masks `(len(env_ids),)`; takes effect at their next reset.

        Who passes the hardest row goes to one drawn from `rng`; who fails in the easiest stays there.
        """
        rows = slice(None) if env_ids is None else env_ids
        levels = self.levels[rows] + up.long() - down.long()
        anywhere = torch.randint(0, self.cfg.rows, levels.shape, generator=rng, device=rng.device)
        self.levels[rows] = torch.where(levels < self.cfg.rows, levels.clamp(min=0), anywhere.to(levels.device))
        self._follow(env_ids)

    def _follow(self, env_ids: EnvIds) -> None:
        rows = slice(None) if env_ids is None else env_ids
        self.env_origins[rows] = self.origins[self.levels[rows], self.kinds[rows]]

    def state_dict(self) -> dict[str, Any]:
        return keep_attributes(self, ("levels", "kinds"))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        load_attributes(self, state, ("levels", "kinds"))
        self._follow(None)
