"""Kinds of ground, cell by cell."""

from __future__ import annotations

import numpy as np
import pytest

from genelab.scene.terrains import (
    BoxesCfg,
    FlatCfg,
    PyramidStairsCfg,
    RandomRoughCfg,
    SlopeCfg,
    SteppingStonesCfg,
    SubTerrainCfg,
    WaveCfg,
)

KINDS: dict[str, tuple[SubTerrainCfg, float, float]] = {
    "flat": (FlatCfg(), 0.0, 0.0),
    "stairs_up": (PyramidStairsCfg(step_height=(0.05, 0.23)), 0.0, 2.3),
    "stairs_down": (PyramidStairsCfg(step_height=(-0.05, -0.23)), -2.3, 0.0),
    "boxes": (BoxesCfg(height=(0.05, 0.2)), -0.2, 0.2),
    "rough": (RandomRoughCfg(amplitude=(0.02, 0.1)), -0.1, 0.1),
    "slope_up": (SlopeCfg(slope=(0.0, 0.4)), 0.0, 1.2),
    "slope_down": (SlopeCfg(slope=(0.0, -0.4)), -1.2, 0.0),
    "waves": (WaveCfg(amplitude=(0.05, 0.3)), -0.3, 0.3),
    "stones": (SteppingStonesCfg(gap=(0.1, 0.4), hole_depth=0.7), -0.7, 0.0),
}
"""Each kind with its lowest and highest point at difficulty 1 in a cell of 8 m."""

every_kind = pytest.mark.parametrize("name", KINDS)


def cell(kind: SubTerrainCfg, difficulty: float, *, seed: int = 0, size: float = 8.0, scale: float = 0.1) -> np.ndarray:
    return kind.heights(difficulty, np.random.default_rng(seed), size, scale)


def platform(heights: np.ndarray, width: float = 2.0, scale: float = 0.1) -> np.ndarray:
    middle, half = len(heights) // 2, round(width / 2 / scale)
    return heights[middle - half : middle + half + 1, middle - half : middle + half + 1]


@every_kind
@pytest.mark.parametrize(("size", "scale", "points"), [(8.0, 0.1, 81), (8.0, 0.25, 33), (6.0, 0.05, 121)])
def test_points_a_side(name: str, size: float, scale: float, points: int) -> None:
    assert cell(KINDS[name][0], 0.5, size=size, scale=scale).shape == (points, points)


@every_kind
def test_range_at_full_difficulty(name: str) -> None:
    kind, low, high = KINDS[name]
    heights = cell(kind, 1.0)
    assert (heights.min(), heights.max()) == pytest.approx((low, high), abs=0.02 if name == "waves" else 1e-9)


@every_kind
@pytest.mark.parametrize("difficulty", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("scale", [0.1, 0.2])
def test_the_platform_is_level(name: str, difficulty: float, scale: float) -> None:
    assert np.ptp(platform(cell(KINDS[name][0], difficulty, scale=scale), scale=scale)) == 0.0


@every_kind
def test_the_platform_is_as_wide_as_asked(name: str) -> None:
    kind = type(KINDS[name][0])(**{**vars(KINDS[name][0]), "platform_width": 4.0})
    assert np.ptp(platform(cell(kind, 1.0), width=4.0)) == 0.0


@pytest.mark.parametrize("name", sorted(KINDS.keys() - {"flat"}))
def test_it_gets_harder(name: str) -> None:
    """Relief grows from level to level; of the stones, the hole does."""
    cells = [cell(KINDS[name][0], row / 9) for row in range(10)]
    relief = [float(np.mean(c < 0)) if name == "stones" else float(np.ptp(c)) for c in cells]
    assert relief == sorted(relief)
    assert relief[-1] > 1.5 * relief[0]


@every_kind
def test_the_seed_decides(name: str) -> None:
    kind = KINDS[name][0]
    assert np.array_equal(cell(kind, 0.7, seed=5), cell(kind, 0.7, seed=5))
    random = name in ("boxes", "rough", "stones")
    assert np.array_equal(cell(kind, 0.7, seed=5), cell(kind, 0.7, seed=6)) != random


def test_stairs_have_ten_steps_of_the_height_and_width_asked_for() -> None:
    kind = PyramidStairsCfg(step_height=(0.05, 0.23), step_width=0.3)
    heights = cell(kind, 2 / 9)  # 0.05 + 0.18 · 2/9 = 0.09
    profile = heights[:41, 40]  # from the edge to the middle
    risers = np.flatnonzero(np.diff(profile))
    assert risers.tolist() == [3 * i + 2 for i in range(10)]
    assert np.diff(profile)[risers] == pytest.approx([0.09] * 10, abs=1e-12)
    for side in (heights[40, :41], heights[:39:-1, 40], heights[40, :39:-1]):
        assert np.array_equal(side, profile)


def test_stairs_narrower_than_the_grid_are_one_point_wide() -> None:
    heights = cell(PyramidStairsCfg(step_height=(0.1, 0.1), step_width=0.3), 0.0, scale=0.5)
    assert heights[:9, 8] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.6, 0.6])


def test_a_slope_rises_evenly() -> None:
    heights = cell(SlopeCfg(slope=(0.0, 0.4)), 0.5)
    assert np.diff(heights[:31, 40]) == pytest.approx([0.02] * 30)
    assert heights[40, 40] == pytest.approx(0.6)


def test_boxes_are_rectangles_of_four_heights() -> None:
    heights = cell(BoxesCfg(height=(0.05, 0.2), count=1, side=(0.4, 1.0)), 1.0, seed=1)
    x, y = np.nonzero(heights)
    assert np.count_nonzero(heights) == (np.ptp(x) + 1) * (np.ptp(y) + 1)
    assert 4 <= np.ptp(x) + 1 <= 10
    assert 4 <= np.ptp(y) + 1 <= 10
    assert np.unique(cell(BoxesCfg(height=(0.05, 0.2)), 1.0)) == pytest.approx([-0.2, -0.1, 0.0, 0.1, 0.2])


def test_rough_ground_is_of_multiples_joined_by_slopes() -> None:
    heights = cell(RandomRoughCfg(amplitude=(0.02, 0.1), step=0.02, downsample=0.2), 1.0)
    coarse = heights[::2, ::2] / 0.02
    assert coarse == pytest.approx(np.round(coarse), abs=1e-9)
    assert np.unique(np.round(coarse)).tolist() == list(range(-5, 6))
    assert heights[1:20:2, 0] == pytest.approx((heights[0:19:2, 0] + heights[2:21:2, 0]) / 2)


def test_stones_and_gaps_have_the_size_asked_for() -> None:
    heights = cell(SteppingStonesCfg(gap=(0.1, 0.4), stone_size=0.6), 1.0)
    beside = heights[:, :30]  # of the platform
    assert (beside == 0.0).any(axis=1).tolist() == [i % 10 < 6 for i in range(81)]  # six points of stone, four of hole
    across = [np.flatnonzero(np.diff(row)) for row in heights[:6]]
    assert set(np.concatenate([np.diff(edges) for edges in across]).tolist()) == {4, 6}
    assert np.unique(heights).tolist() == [-1.0, 0.0]
    assert np.all(cell(SteppingStonesCfg(gap=(0.0, 0.4)), 0.0) == 0.0)


def test_waves_are_level_at_the_edge() -> None:
    heights = cell(WaveCfg(amplitude=(0.05, 0.3)), 1.0)
    edges = np.concatenate((heights[0], heights[-1], heights[:, 0], heights[:, -1]))
    assert np.abs(edges).max() < 1e-12
