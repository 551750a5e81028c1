"""The whole generated field: layout, spawn points, levels, physics."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from genelab.config import apply_override
from genelab.config.serialize import from_dict, to_dict
from genelab.errors import ConfigError
from genelab.scene import (
    GeneratedTerrain,
    HeightScan,
    HeightScanCfg,
    RigidObjectCfg,
    Scene,
    SceneCfg,
    TerrainGeneratorCfg,
    mjcf_text,
)
from genelab.scene.terrains import (
    BoxesCfg,
    FlatCfg,
    PyramidStairsCfg,
    RandomRoughCfg,
    SlopeCfg,
    SteppingStonesCfg,
    SubTerrainCfg,
    WaveCfg,
    cell_order,
)
from genelab.state import snapshot

RADIUS = 0.05
BALL = f"""
<mujoco><worldbody><body name="ball"><freejoint/><geom size="{RADIUS}" mass=".1"/></body></worldbody></mujoco>
"""
LAYOUT = ("stairs_up",) * 2 + ("stairs_down",) * 2 + ("boxes",) * 2 + ("rough",) * 2 + ("slope_up", "slope_down")


def kinds(
    *, step: tuple[float, float], box: tuple[float, float], rough: tuple[float, float], slope: float
) -> dict[str, SubTerrainCfg]:
    down = (-step[0], -step[1])
    return {
        "stairs_up": PyramidStairsCfg(step_height=step, step_width=0.3, proportion=0.2),
        "stairs_down": PyramidStairsCfg(step_height=down, step_width=0.3, proportion=0.2),
        "boxes": BoxesCfg(height=box, side=(0.4, 1.0), count=20, proportion=0.2),
        "rough": RandomRoughCfg(amplitude=rough, step=0.02, downsample=0.2, proportion=0.2),
        "slope_up": SlopeCfg(slope=(0.0, slope), proportion=0.1),
        "slope_down": SlopeCfg(slope=(0.0, -slope), proportion=0.1),
    }


G1 = kinds(step=(0.05, 0.23), box=(0.05, 0.20), rough=(0.02, 0.10), slope=0.4)
GO1 = kinds(step=(0.03, 0.13), box=(0.03, 0.11), rough=(0.02, 0.07), slope=0.3)
OTHERS: dict[str, SubTerrainCfg] = {
    "flat": FlatCfg(),
    "waves": WaveCfg(amplitude=(0.02, 0.3)),
    "stones": SteppingStonesCfg(gap=(0.1, 0.4)),
}


def built(num_envs: int = 4, **settings: Any) -> GeneratedTerrain:
    terrain = TerrainGeneratorCfg(**{"sub_terrains": G1, **settings}).build()
    terrain.initialize(num_envs, torch.device("cpu"), torch.float64)
    return terrain


def small(num_envs: int = 4, **settings: Any) -> GeneratedTerrain:
    """Three rows of two columns."""
    cells: dict[str, Any] = {"sub_terrains": {"up": SlopeCfg(slope=(0.0, 0.4)), "flat": FlatCfg()}}
    return built(num_envs, **{**cells, "rows": 3, "columns": ("up", "flat"), "horizontal_scale": 0.5, **settings})


def masks(*bits: int) -> torch.Tensor:
    return torch.tensor(bits, dtype=torch.bool)


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


# -- layout


def test_the_published_grid() -> None:
    terrain = built(sub_terrains=G1, columns=LAYOUT)
    assert terrain.heights.shape == (901, 901)
    assert terrain.size == pytest.approx((90.0, 90.0))
    assert terrain.origins.shape == (10, 10, 3)
    assert terrain.origins[0, 0, :2].tolist() == [-36.0, -36.0]
    assert terrain.origins[9, 3, :2].tolist() == [36.0, -12.0]
    # Ten steps of 0.05 + 0.02 · row, up and down; slopes of 3 m of 0.4 · row / 9, rounded to 5 mm.
    assert terrain.origins[:, 1, 2].tolist() == pytest.approx([10 * (0.05 + 0.02 * row) for row in range(10)])
    assert terrain.origins[:, 2, 2].tolist() == pytest.approx([-10 * (0.05 + 0.02 * row) for row in range(10)])
    assert terrain.origins[:, 4:8, 2].unique().tolist() == [0.0]
    assert terrain.origins[:, 9, 2].tolist() == pytest.approx([-1.2 * row / 9 for row in range(10)], abs=0.0026)


def test_the_guide_shows_the_published_grid() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "write-a-task.md").read_text()
    shown: dict[str, Any] = {}
    (block,) = (text for text in re.findall(r"```python\n(.*?)```", guide, re.DOTALL) if "ground = " in text)
    exec(block, shown)
    assert shown["ground"] == TerrainGeneratorCfg(sub_terrains=G1)


def test_proportions_lay_out_the_columns() -> None:
    assert TerrainGeneratorCfg(sub_terrains=G1, columns=10).column_kinds() == list(LAYOUT)
    shares: dict[str, SubTerrainCfg] = {"a": FlatCfg(proportion=3.0), "b": FlatCfg(), "none": FlatCfg(proportion=0.0)}
    assert TerrainGeneratorCfg(sub_terrains=shares, columns=4).column_kinds() == ["a", "a", "a", "b"]


def test_a_row_is_a_difficulty_and_a_column_a_kind() -> None:
    terrain = built(columns=LAYOUT)
    x, y = 50 + 80 * 4, 50 + 80 * 0  # the cell of row 4, column 0
    expected = G1["stairs_up"].heights(4 / 9, np.random.default_rng(0), 8.0, 0.1)
    assert terrain.heights[x : x + 80, y : y + 80].numpy() == pytest.approx(expected[:80, :80], abs=1e-9)
    assert np.unique(np.diff(terrain.heights[x : x + 41, y + 40].numpy()).round(9)).tolist() == [0.0, 0.13]


def test_heights_are_multiples_of_the_vertical_scale() -> None:
    quanta = built(sub_terrains=GO1).heights / 0.005
    assert torch.equal(quanta.round().mul(0.005), quanta.mul(0.005))


def test_the_rim_is_level() -> None:
    terrain = built(sub_terrains=OTHERS, columns=3, rows=2, border_width=3.0)
    assert terrain.size == pytest.approx((2 * 8 + 6.0, 3 * 8 + 6.0))
    for rim in (terrain.heights[:30], terrain.heights[-30:], terrain.heights[:, :30], terrain.heights[:, -30:]):
        assert rim.abs().max() == 0.0
    assert terrain.contains(torch.tensor([(10.9, 0.0), (11.1, 0.0), (0.0, -14.9)])).tolist() == [True, False, True]


def test_a_coarser_grid_is_the_same_ground_with_less_memory() -> None:
    fine, coarse = built(), built(horizontal_scale=0.2)
    assert coarse.heights.shape == (451, 451)
    assert coarse.size == pytest.approx(fine.size)
    assert coarse.origins[..., :2].tolist() == fine.origins[..., :2].tolist()
    slopes = slice(8, 10)
    assert (coarse.origins[:, slopes, 2] - fine.origins[:, slopes, 2]).abs().max() < 1e-9


def test_the_seed_decides_and_cells_do_not_depend_on_each_other() -> None:
    assert torch.equal(built(seed=3).heights, built(seed=3).heights)
    assert not torch.equal(built(seed=3).heights, built(seed=4).heights)
    other = {**G1, "boxes": FlatCfg(proportion=0.2)}
    same = built(seed=3).heights == built(seed=3, sub_terrains=other).heights
    assert bool(same[:, 50 + 80 * 6 + 1 :].all())
    assert not bool(same.all())


# -- spawn points


@pytest.mark.parametrize("scale", [0.1, 0.2])
@pytest.mark.parametrize("sub_terrains", [G1, GO1, OTHERS], ids=["g1", "go1", "others"])
def test_origins_are_on_safe_ground(sub_terrains: dict[str, SubTerrainCfg], scale: float) -> None:
    terrain = built(sub_terrains=sub_terrains, horizontal_scale=scale)
    axis = torch.linspace(-0.8, 0.8, 33, dtype=torch.float64)
    around = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1).view(-1, 2)
    heights = terrain.height_at(terrain.origins[..., None, :2] + around)
    assert (terrain.origins[..., 2:] - heights).abs().max() < 0.01


def test_an_origin_is_as_high_as_the_highest_point_of_its_footprint() -> None:
    """With a platform of 1 m, the footprint of 1.6 m reaches down to one step, or up to it."""
    stairs = {"up": PyramidStairsCfg(step_height=(0.1, 0.1), platform_width=1.0)}
    pit = {"down": PyramidStairsCfg(step_height=(-0.1, -0.1), platform_width=1.0)}
    assert built(sub_terrains=stairs, rows=1, columns=1).origins.flatten().tolist() == pytest.approx([0.0, 0.0, 1.1])
    assert built(sub_terrains=pit, rows=1, columns=1).origins.flatten().tolist() == pytest.approx([0.0, 0.0, -1.0])
    narrow = built(sub_terrains=pit, rows=1, columns=1, footprint=0.8)
    assert narrow.origins[0, 0, 2].item() == pytest.approx(-1.1)


# -- levels


def test_environments_are_spread_over_columns_and_begin_on_the_easiest_level() -> None:
    terrain = built(1000)
    assert torch.bincount(terrain.kinds).tolist() == [100] * 10
    assert terrain.levels.unique().tolist() == [0]
    assert torch.equal(terrain.env_origins, terrain.origins[0, terrain.kinds])
    assert built(5).kinds.tolist() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(("most", "counts"), [(4, [20] * 5), (None, [10] * 10)])
def test_environments_begin_up_to_a_level(most: int | None, counts: list[int]) -> None:
    terrain = built(100, max_init_level=most)
    assert torch.bincount(terrain.levels).tolist() == counts
    assert len(terrain.env_origins.unique(dim=0)) == 10 * len(counts)


def test_cells_are_dealt_evenly_to_any_number_of_episodes() -> None:
    """Two columns of four kinds and one of two, ten levels: shares within one episode, levels within two."""
    cfg = TerrainGeneratorCfg(sub_terrains=GO1, columns=LAYOUT, max_init_level=None)
    order, names = cell_order(cfg), cfg.column_kinds()
    assert len(order.unique(dim=0)) == len(order) == 100
    for count in range(1, 101):
        levels, columns = order[:count].unbind(dim=1)
        dealt = torch.bincount(columns, minlength=10)
        assert dealt.max() - dealt.min() <= 1
        dealt = torch.bincount(levels, minlength=10)
        assert dealt.max() - dealt.min() <= 2
    for count in (10, 64):
        of_kind = {name: [level for level, column in order[:count].tolist() if names[column] == name] for name in names}
        assert {name: len(each) for name, each in of_kind.items()} == {
            10: {**dict.fromkeys(GO1, 2), "slope_up": 1, "slope_down": 1},
            64: {**dict.fromkeys(GO1, 13), "boxes": 12, "slope_up": 6, "slope_down": 7},
        }[count]
        for each in of_kind.values():
            assert len(each) == 1 or (min(each) < 5 <= max(each))


@pytest.mark.parametrize(("rows", "columns", "most"), [(1, 1, None), (3, 2, 1), (4, 7, None), (10, 3, 5), (2, 20, 0)])
def test_a_full_round_is_one_episode_on_each_cell(rows: int, columns: int, most: int | None) -> None:
    cfg = TerrainGeneratorCfg(
        sub_terrains={"a": FlatCfg(), "b": FlatCfg()}, rows=rows, columns=columns, max_init_level=most
    )
    order = cell_order(cfg)
    assert len(order) == cfg.init_levels * columns == len(order.unique(dim=0))
    assert order.amax(dim=0).tolist() == [cfg.init_levels - 1, columns - 1]


def test_moves_change_levels_and_origins_in_place() -> None:
    terrain = small()
    origins = terrain.env_origins
    assert terrain.kinds.tolist() == [0, 0, 1, 1]
    terrain.move(torch.tensor([0, 1, 3]), masks(1, 0, 1), masks(0, 1, 0), rng())
    assert terrain.levels.tolist() == [1, 0, 0, 1]
    terrain.move(None, masks(1, 0, 1, 0), masks(0, 0, 1, 1), rng())
    assert terrain.levels.tolist() == [2, 0, 0, 0]
    assert origins is terrain.env_origins
    assert origins.tolist() == [[8.0, -4.0, pytest.approx(1.2)], [-8.0, -4.0, 0.0], [-8.0, 4.0, 0.0], [-8.0, 4.0, 0.0]]
    terrain.restart()
    assert origins[:, 0].tolist() == [-8.0] * 4


def test_who_passes_the_hardest_row_goes_to_a_random_one() -> None:
    terrain, again = (small(3000) for _ in range(2))
    for one in (terrain, again):
        one.levels[:] = 2
        one.move(None, torch.ones(3000, dtype=torch.bool), torch.zeros(3000, dtype=torch.bool), rng())
    assert min(torch.bincount(terrain.levels, minlength=3).tolist()) > 900
    assert torch.equal(terrain.levels, again.levels)
    assert torch.equal(terrain.env_origins, terrain.origins[terrain.levels, terrain.kinds])


def test_state_is_levels_and_origins_follow() -> None:
    terrain = small()
    terrain.move(None, masks(1, 0, 0, 1), masks(0, 0, 0, 0), rng())
    state, origins = snapshot(terrain.state_dict()), terrain.env_origins.clone()
    terrain.restart()
    live = terrain.env_origins
    terrain.load_state_dict(state)
    assert live is terrain.env_origins
    assert torch.equal(live, origins)
    assert terrain.levels.tolist() == [1, 0, 0, 1]


# -- config


def test_it_is_written_and_read_and_overridden() -> None:
    scene = SceneCfg(terrain=TerrainGeneratorCfg(sub_terrains=GO1, columns=LAYOUT))
    again = from_dict(to_dict(scene), SceneCfg)
    assert again == scene
    for path, value in {
        "env.terrain.sub_terrains.boxes.height": "(0.1, 0.2)",
        "env.terrain.columns": "boxes,rough",
        "env.terrain.max_init_level": "none",
    }.items():
        apply_override({"env": again}, path, value)
    assert again.terrain.sub_terrains["boxes"].height == (0.1, 0.2)
    assert again.terrain.columns == ("boxes", "rough")
    assert again.terrain.max_init_level is None
    apply_override({"env": again}, "env.terrain.columns", "6")
    assert again.terrain.columns == 6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sub_terrains": {}}, r"\.sub_terrains: name at least one kind of ground"),
        ({"columns": ("boxes", "ruogh")}, r"\.columns: no kind of ground is called 'ruogh'\. Did you mean 'rough'\?"),
        ({"rows": 0}, ": needs at least one row and one column, got 0 and 10"),
        ({"cell_size": 8.05}, r"\.cell_size: 8\.05 m is no multiple of the horizontal_scale, 0\.1 m"),
        ({"vertical_scale": 0.0}, r"\.vertical_scale: must be positive, got 0\.0"),
        ({"border_width": -1.0}, r"\.border_width: must not be negative, got -1\.0"),
        ({"max_init_level": 10}, r"\.max_init_level: must be from 0 to 9, or none, got 10"),
        ({"sub_terrains": {"a": FlatCfg(proportion=0.0)}}, r"\.sub_terrains: one proportion at least must be positive"),
    ],
)
def test_what_cannot_be_generated(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^env\.scene\.terrain{message}$"):
        built(**settings)


@dataclasses.dataclass(kw_only=True)
class Stub(SubTerrainCfg):
    """A kind that forgets the points of one edge."""

    def heights(self, difficulty: float, rng: np.random.Generator, size_m: float, resolution: float) -> np.ndarray:
        return np.zeros((80, 80))


def test_a_kind_of_the_wrong_shape_is_named() -> None:
    message = r"^env\.scene\.terrain\.sub_terrains\.stub: heights must be of shape \(81, 81\), got \(80, 80\)$"
    with pytest.raises(ConfigError, match=message):
        built(sub_terrains={"stub": Stub()})


# -- physics


def test_balls_rest_on_every_kind_where_it_is_level(make_scene: Callable[..., Scene]) -> None:
    cfg = TerrainGeneratorCfg(sub_terrains={**G1, **OTHERS}, columns=(*LAYOUT[::2], "slope_down", *OTHERS), rows=3)
    cfg.max_init_level = None
    num_envs = 27
    ball = RigidObjectCfg(spec=mjcf_text, spec_args={"xml": BALL})
    scene = make_scene({"ball": ball}, terrain=cfg, num_envs=num_envs, dt=0.002)
    assert isinstance(scene.terrain, GeneratedTerrain)
    assert scene.env_origins is scene.terrain.env_origins
    assert len(scene.env_origins.unique(dim=0)) == num_envs
    pose = torch.zeros(num_envs, 7, dtype=torch.float64)
    pose[:, :3], pose[:, 3] = scene.env_origins, 1.0
    pose[:, :2] += torch.linspace(-0.7, 0.7, num_envs, dtype=torch.float64)[:, None]
    pose[:, 2] += RADIUS + 0.02
    scene["ball"].write_root_pose(pose, None)
    scene.step(700)
    resting = scene["ball"].root_pos_w
    assert (resting[:, 2] - scene.terrain.height_at(resting) - RADIUS).abs().max() < 1e-3
    assert (resting - pose[:, :3])[:, :2].abs().max() < 1e-2


def test_a_ball_rests_on_a_step_of_the_stairs(make_scene: Callable[..., Scene]) -> None:
    """0.3 m steps are level for 0.2 m: points 0, 1 and 2 of the third step are 0.6, 0.7 and 0.8 m from the edge."""
    cfg = TerrainGeneratorCfg(sub_terrains={"up": PyramidStairsCfg(step_height=(0.1, 0.1))}, rows=1, columns=1)
    ball = RigidObjectCfg(spec=mjcf_text, spec_args={"xml": BALL})
    scene = make_scene({"ball": ball}, terrain=cfg, dt=0.002)
    pose = torch.zeros(4, 7, dtype=torch.float64)
    pose[:, 0] = -4.0 + torch.tensor([0.66, 0.73, 0.96, 1.04], dtype=torch.float64)
    pose[:, 2], pose[:, 3] = 0.4, 1.0
    scene["ball"].write_root_pose(pose, None)
    scene.step(1000)
    assert scene["ball"].root_pos_w[:, 2].tolist() == pytest.approx([0.2 + RADIUS] * 2 + [0.3 + RADIUS] * 2, abs=1e-3)


def test_a_scan_of_the_stairs_and_beyond_the_edge(make_scene: Callable[..., Scene]) -> None:
    """Over the rim, over the stairs, half over the edge at x = 9, far away: always the height of the nearest ground."""
    cfg = TerrainGeneratorCfg(sub_terrains={"up": PyramidStairsCfg(step_height=(0.1, 0.1))}, rows=1, columns=1)
    ball = RigidObjectCfg(spec=mjcf_text, spec_args={"xml": BALL})
    sensors = {"scan": HeightScanCfg(entity="ball", body="ball", max_distance=2.0)}
    scene = make_scene({"ball": ball}, terrain=cfg, sensors=sensors, precision=32)
    scan = scene.sensor("scan")
    assert isinstance(scan, HeightScan)
    pose = torch.zeros(4, 7)
    pose[:, 0], pose[:, 2], pose[:, 3] = torch.tensor([-6.0, -3.0, 9.0, 1e6]), 1.5, 1.0
    scene["ball"].write_root_pose(pose, None)
    scene.engine.refresh()
    distance = scan.distance
    assert distance.dtype == torch.float32
    assert distance is scan.distance  # looked up once per state
    assert (distance[0] - 1.5).abs().max() < 1e-4
    heights = [0.1 * ((2 + i) // 3) for i in range(17)]  # from 0.2 m inside the cell to 1.8 m
    assert (1.5 - distance[1, 5 * 17 : 6 * 17]).tolist() == pytest.approx(heights, abs=1e-4)
    assert (distance[2:] - 1.5).abs().max() < 1e-4
    pose[:, 2] = torch.tensor([-9.0, 2.0, 9.0, 2.0])
    scene["ball"].write_root_pose(pose, None)
    scene.engine.refresh()
    assert scan.distance[0].unique().tolist() == [-2.0]
    assert scan.distance[2].unique().tolist() == [2.0]


def test_the_published_field_takes_three_megabytes_for_all_environments(make_scene: Callable[..., Scene]) -> None:
    ball = RigidObjectCfg(spec=mjcf_text, spec_args={"xml": BALL})
    scene = make_scene({"ball": ball}, terrain=TerrainGeneratorCfg(sub_terrains=G1), num_envs=64)
    data = scene.engine.model.hfield_data
    assert data.nbytes == 901 * 901 * 4 == 3_247_204
    assert scene.engine.model.nhfield == 1
