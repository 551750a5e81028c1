"""On generated ground every direction of a probe has the same robots on the same ground, on its relief."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from genelab import mdp
from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.mdp.probe_starts import Deal, deal, kinds_of, robots_per_direction, start_on_relief
from genelab.mdp.sensors import get_sensor
from genelab.mdp.velocity_probe import directions_of
from genelab.rl.world import eval_cfg
from genelab.scene import PointsSensor
from genelab.scene.terrains import (
    BoxesCfg,
    GeneratedTerrain,
    PyramidStairsCfg,
    SlopeCfg,
    SteppingStonesCfg,
    TerrainGeneratorCfg,
)
from tests.mdp.hopper import twist
from tests.narrow import as_kind, present

ROUGH = "Genelab-Velocity-Rough-Unitree-{}-v0"
COLUMNS = ("stairs", "stairs", "boxes", "slope")
GROUND = TerrainGeneratorCfg(
    sub_terrains={
        "stairs": PyramidStairsCfg(step_height=(0.05, 0.2)),
        "boxes": BoxesCfg(height=(0.05, 0.2)),
        "slope": SlopeCfg(slope=(0.0, 0.3)),
        "unused": SlopeCfg(slope=(0.0, 0.3)),
    },
    columns=COLUMNS,
    rows=5,
)


@pytest.mark.parametrize(
    ("max_init_level", "per_direction"),
    [(None, 60), (0, 63), (2, 63), (3, 60)],  # 3 kinds × 5, 1, 3 and 4 levels, near 64
)
def test_every_direction_has_as_many_robots_on_every_kind_and_level(
    max_init_level: int | None, per_direction: int
) -> None:
    cfg = TerrainGeneratorCfg(**{**vars(GROUND), "max_init_level": max_init_level})
    assert kinds_of(cfg) == ["stairs", "boxes", "slope"]
    assert robots_per_direction(cfg, 64) == per_direction
    dealt = deal(cfg, 9, 9 * per_direction)
    directions = torch.arange(9).repeat_interleave(per_direction)
    cells = Counter(zip(directions.tolist(), dealt.kinds.tolist(), dealt.levels.tolist(), strict=True))
    assert len(cells) == 9 * 3 * cfg.init_levels
    assert set(cells.values()) == {per_direction // (3 * cfg.init_levels)}
    assert [COLUMNS[column] for column in dealt.columns] == [kinds_of(cfg)[kind] for kind in dealt.kinds]
    columns = Counter(dealt.columns[dealt.kinds == 0].tolist())  # the stairs have two, which are used alike
    assert abs(columns[0] - columns[1]) <= 9 * cfg.init_levels


def test_what_cannot_be_dealt_evenly_is_refused() -> None:
    with pytest.raises(ValueError, match="13 robots cannot be dealt evenly to 15 of direction, kind and level"):
        deal(GROUND.__class__(**{**vars(GROUND), "max_init_level": None}), 1, 13)


def started(robot: str) -> tuple[ManagerBasedRlEnv, Deal, torch.Tensor]:
    """The rough task of a robot, easiest and hardest level, after its robots were put onto the relief."""
    cfg = rl_cfg(ROUGH.format(robot), play=True)
    as_kind(cfg.scene.terrain, TerrainGeneratorCfg).rows = 2
    env = ManagerBasedRlEnv(eval_cfg(cfg, 9 * 6 * 2))
    term = env.commands.term("twist")
    command = torch.tensor(list(directions_of(**term.ranges).values())).repeat_interleave(12, dim=0)
    term.fix(command)
    env.reset(seed=0)
    dealt = deal(as_kind(env.scene.terrain, GeneratedTerrain).cfg, 9, env.num_envs)
    observations = start_on_relief(env, env.robot, dealt, command)
    seen = mdp.height_scan(env, "scan").clamp(-1.0, 2.0)
    assert observations["policy"][:, -187:].allclose(seen, atol=1e-6)  # what is observed is from there
    return env, dealt, command


@pytest.mark.parametrize("robot", ["Go1", "G1"])
def test_robots_start_on_the_relief_not_inside_it_and_go_across_their_cell(robot: str) -> None:
    env, dealt, command = started(robot)
    terrain, at = env.scene.terrain, env.robot.root_pos_w
    assert isinstance(terrain, GeneratedTerrain)
    assert twist(env).probe().robots == 9 * 60
    assert terrain.levels.equal(dealt.levels)
    assert terrain.kinds.equal(dealt.columns)
    away = (at - terrain.env_origins)[:, :2]
    assert away.abs().amax(dim=1).min() > 2.0  # the platform ends at 1 m, the cell at 4 m
    assert away.abs().amax(dim=1).max() < 3.0
    assert terrain.in_own_cell(at).all()
    feet = get_sensor(env, "feet", PointsSensor).pos_w
    clearance = feet[..., 2] - terrain.height_at(feet)
    assert clearance.min() > 0.0
    assert clearance.amin(dim=1).max() < 0.3  # and none falls from a height
    heading = env.robot.heading_w + torch.atan2(command[:, 1], command[:, 0])
    walks = command[:, :2].norm(dim=1) > 0
    onwards = at[:, :2] + 4.0 * torch.stack((heading.cos(), heading.sin()), dim=1)
    assert terrain.in_own_cell(onwards)[walks].all()
    hard_slope = (dealt.kinds == kinds_of(terrain.cfg).index("slope_up")) & (dealt.levels == 1)
    tilt = torch.rad2deg(torch.acos(-env.robot.projected_gravity_b[hard_slope, 2]))
    expected = math.degrees(math.atan(0.3)) if robot == "Go1" else 0.0  # four legs lean with the slope, two do not
    assert tilt == pytest.approx(torch.full_like(tilt, expected), abs=0.5)
    env.close()


def test_nobody_starts_over_a_hole() -> None:
    cfg = rl_cfg(ROUGH.format("Go1"), play=True)
    stones = SteppingStonesCfg(gap=(0.2, 0.2), stone_size=0.8)
    ground = TerrainGeneratorCfg(sub_terrains={"stones": stones}, columns=2, rows=2, max_init_level=None)
    cfg.scene.terrain = ground
    env = ManagerBasedRlEnv(eval_cfg(cfg, 16))
    env.reset(seed=0)
    start_on_relief(env, env.robot, deal(ground, 1, 16), torch.zeros(16, 3))
    terrain = present(env.scene.terrain)
    assert terrain.height_at(env.robot.root_pos_w) == pytest.approx(torch.zeros(16))
    feet = get_sensor(env, "feet", PointsSensor).pos_w
    assert terrain.height_at(feet) == pytest.approx(torch.zeros(16, 4), abs=1e-6)
    env.close()
