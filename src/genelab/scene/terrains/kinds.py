"""Kinds of ground for one square cell of a generated terrain.

A kind makes the heights of a cell, in metres, at `size / resolution + 1` points a side. A range `(lo, hi)` is a value
at difficulty 0 and at difficulty 1, linear between. In the middle of every cell is a level platform, where robots
start. Lengths along the ground are rounded to whole grid points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Range = tuple[float, float]


@dataclass(kw_only=True)
class SubTerrainCfg:
    """A kind of ground."""

    proportion: float = 1.0
    """Share of the columns, relative to the other kinds."""
    platform_width: float = 2.0
    """Side of the level platform in the middle, m."""

    def heights(self, difficulty: float, rng: np.random.Generator, size_m: float, resolution: float) -> np.ndarray:
        """Heights of a cell of `size_m` metres, `(points, points)`, m."""
        raise NotImplementedError


@dataclass(kw_only=True)
class FlatCfg(SubTerrainCfg):
    """Level ground."""

    def heights(self, difficulty: float, rng: np.random.Generator, size_m: float, resolution: float) -> np.ndarray:
        points = _points(size_m, resolution)
        return np.zeros((points, points))


@dataclass(kw_only=True)
class PyramidStairsCfg(SubTerrainCfg):
    """Stairs on all four sides, up to a platform, or down to it where heights are negative."""

    step_height: Range
    """Height of one step, m; negative: down to the platform."""
    step_width: float = 0.3
    """Depth of one step, m. The riser leans over the last grid distance of it."""

    def heights(self, difficulty: float, rng: np.random.Generator, size_m: float, resolution: float) -> np.ndarray:
        points = _points(size_m, resolution)
        width = max(1, round(self.step_width / resolution))
        steps = _slope_points(points, self.platform_width, resolution) // width
        return _at(self.step_height, difficulty) * np.minimum(_from_edge(points) // width, steps)


@dataclass(kw_only=True)
class BoxesCfg(SubTerrainCfg):
    """Blocks and pits, strewn at random; each is as high, or as deep, as `height` or half of it."""

    height: Range
    """Largest height and depth, m."""
    side: Range = (0.4, 1.0)
    """Shortest and longest side, m, the same at every difficulty."""
    count: int = 20
    """How many; later ones may cover earlier ones."""

    def heights(self, difficulty: float, rng: np.random.Generator, size_m: float, resolution: float) -> np.ndarray:
        points = _points(size_m, resolution)
        field = np.zeros((points, points))
        for _ in range(self.count):
            sides = np.round(rng.uniform(*self.side, size=2) / resolution).astype(int).clip(1, points)
            x, y = rng.integers(0, points - sides, endpoint=True)
            field[x : x + sides[0], y : y + sides[1]] = rng.choice((-1.0, -0.5, 0.5, 1.0))
        return _levelled(_at(self.height, difficulty) * field, self.platform_width, resolution)


@dataclass(kw_only=True)
class RandomRoughCfg(SubTerrainCfg):
    """Random heights on a coarse grid, joined by slopes."""

    amplitude: Range
    """Largest height and depth, m."""
    step: float = 0.02
    """Heights are multiples of this, m."""
    downsample: float = 0.2
    """Distance between the random heights, m."""

    def heights(self, difficulty: float, rng: np.random.Generator, size_m: float, resolution: float) -> np.ndarray:
        points = _points(size_m, resolution)
        coarse = max(2, round(size_m / self.downsample) + 1)
        most = int(_at(self.amplitude, difficulty) / self.step + 1e-6)
        levels = rng.integers(-most, most, size=(coarse, coarse), endpoint=True)
        where = np.linspace(0, coarse - 1, points)
        low = np.minimum(where.astype(int), coarse - 2)
        share = where - low
        along_x = levels[low] * (1 - share)[:, None] + levels[low + 1] * share[:, None]
        field = along_x[:, low] * (1 - share) + along_x[:, low + 1] * share
        return _levelled(self.step * field, self.platform_width, resolution)


@dataclass(kw_only=True)
class SlopeCfg(SubTerrainCfg):
    """A pyramid with a level top, or a pit with a level bottom where the slope is negative."""

    slope: Range
    """Rise per metre; negative: down to the platform."""

    def heights(self, difficulty: float, rng: np.random.Generator, size_m: float, resolution: float) -> np.ndarray:
        points = _points(size_m, resolution)
        ramp = np.minimum(_from_edge(points), _slope_points(points, self.platform_width, resolution))
        return _at(self.slope, difficulty) * resolution * ramp


@dataclass(kw_only=True)
class WaveCfg(SubTerrainCfg):
    """Hills and hollows like an egg carton, fading out towards the platform and level at the edge."""

    amplitude: Range
    """Height of a hill and depth of a hollow, m."""
    waves: int = 3
    """Wavelengths across the cell."""
    fade: float = 1.0
    """Distance over which they rise from the platform to full height, m."""

    def heights(self, difficulty: float, rng: np.random.Generator, size_m: float, resolution: float) -> np.ndarray:
        points = _points(size_m, resolution)
        wave = np.sin(np.linspace(0, 2 * np.pi * self.waves, points))
        beyond = resolution * _from_centre(points) - self.platform_width / 2
        return _at(self.amplitude, difficulty) * np.outer(wave, wave) * np.clip(beyond / self.fade, 0, 1)


@dataclass(kw_only=True)
class SteppingStonesCfg(SubTerrainCfg):
    """Stones in rows, each row shifted at random, over a hole."""

    gap: Range
    """Distance between stones, m."""
    stone_size: float = 0.6
    """Side of a stone, m."""
    hole_depth: float = 1.0
    """How far the bottom of the hole lies below the stones, m."""

    def heights(self, difficulty: float, rng: np.random.Generator, size_m: float, resolution: float) -> np.ndarray:
        points = _points(size_m, resolution)
        stone = max(1, round(self.stone_size / resolution))
        period = stone + round(_at(self.gap, difficulty) / resolution)
        places = np.arange(points)
        shifts = rng.integers(0, period, size=points)[places // period]  # one per row of stones
        on_stone = (places % period < stone)[:, None] & ((places + shifts[:, None]) % period < stone)
        return _levelled(np.where(on_stone, 0.0, -self.hole_depth), self.platform_width, resolution)


def _points(size_m: float, resolution: float) -> int:
    """Grid points along a side of a cell, both edges included."""
    return round(size_m / resolution) + 1


def _at(span: Range, difficulty: float) -> float:
    return span[0] + (span[1] - span[0]) * difficulty


def _from_edge(points: int) -> np.ndarray:
    """Grid distances to the nearest edge."""
    axis = np.minimum(np.arange(points), np.arange(points)[::-1])
    return np.minimum(axis[:, None], axis[None, :])


def _from_centre(points: int) -> np.ndarray:
    """Grid distances to the centre along the farther axis: squares, not circles, are equally far."""
    axis = np.abs(np.arange(points) - (points - 1) / 2)
    return np.maximum(axis[:, None], axis[None, :])


def _slope_points(points: int, platform_width: float, resolution: float) -> int:
    """Grid distances between the edge and the platform."""
    return max(0, int((points - 1) / 2 - platform_width / 2 / resolution + 1e-6))


def _levelled(field: np.ndarray, platform_width: float, resolution: float) -> np.ndarray:
    """The field with a platform at height 0 in its middle."""
    return np.where(_from_centre(len(field)) * resolution <= platform_width / 2 + 1e-6, 0.0, field)
