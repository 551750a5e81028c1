"""The ground's height as it is looked up and as things rest on it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from genelab.errors import ConfigError
from genelab.scene import HeightFieldCfg, InitialStateCfg, PlaneCfg, RigidObjectCfg, Scene, Terrain, mjcf_text

RADIUS = 0.05
BALL = f"""
<mujoco><worldbody><body name="ball"><freejoint/><geom size="{RADIUS}" mass=".1"/></body></worldbody></mujoco>
"""


def ramp(x_points: int, y_points: int, resolution: float) -> np.ndarray:
    """Rises by 0.5 per metre of x and falls by 0.2 per metre of y, zero in the middle."""
    x = resolution * (np.arange(x_points) - (x_points - 1) / 2)
    y = resolution * (np.arange(y_points) - (y_points - 1) / 2)
    return 0.5 * x[:, None] - 0.2 * y[None, :]


def saddle() -> np.ndarray:
    return np.array([[0.0, 1.0], [2.0, 5.0]])


def steps() -> np.ndarray:
    """Four plateaus of different heights: 3 m long in x, 2 m wide in y, 0.1 m between points."""
    heights = np.empty((31, 21))
    heights[:16, :11], heights[:16, 11:], heights[16:, :11], heights[16:, 11:] = -0.3, 0.1, 0.25, 0.6
    return heights


def line(points: int) -> np.ndarray:
    return np.zeros(points)


def lookup(cfg: HeightFieldCfg | PlaneCfg, *points: tuple[float, float]) -> list[float]:
    terrain = cfg.build()
    terrain.initialize(1, torch.device("cpu"), torch.float64)
    return terrain.height_at(torch.tensor(points, dtype=torch.float64)).tolist()


def test_a_plane_is_at_zero() -> None:
    assert lookup(PlaneCfg(), (0.0, 0.0), (100.0, -3.0)) == [0.0, 0.0]


def test_height_above_the_ground_follows_whoever_says_where_the_ground_is() -> None:
    class Step(Terrain):
        def height_at(self, points: torch.Tensor) -> torch.Tensor:
            return 0.5 * (points[..., 0] > 0).to(points.dtype)

    points = torch.tensor([[-1.0, 0.0, 2.0], [1.0, 0.0, 2.0]])
    assert PlaneCfg().build().height_of(points).tolist() == [2.0, 2.0]
    assert Step(PlaneCfg()).height_of(points).tolist() == [2.0, 1.5]


def test_a_ramp_is_exact_between_its_points() -> None:
    cfg = HeightFieldCfg(heights=ramp, heights_args={"x_points": 21, "y_points": 11, "resolution": 0.1}, resolution=0.1)
    points = ((0.0, 0.0), (0.3, 0.0), (0.0, 0.3), (-0.77, 0.123), (0.999, -0.499))
    assert lookup(cfg, *points) == pytest.approx([0.5 * x - 0.2 * y for x, y in points])


def test_between_four_points_it_is_bilinear() -> None:
    cfg = HeightFieldCfg(heights=saddle, resolution=2.0)
    assert lookup(cfg, (-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0), (1.0, 1.0)) == [0.0, 1.0, 2.0, 5.0]
    assert lookup(cfg, (0.0, -1.0), (-1.0, 0.0), (0.0, 0.0)) == [1.0, 0.5, 2.0]
    assert lookup(cfg, (0.5, -0.5)) == pytest.approx([0.75 * (2 * 0.75 + 0 * 0.25) + 0.25 * (5 * 0.75 + 1 * 0.25)])


def test_beyond_the_edge_the_height_is_that_of_the_edge() -> None:
    cfg = HeightFieldCfg(heights=ramp, heights_args={"x_points": 21, "y_points": 11, "resolution": 0.1}, resolution=0.1)
    assert lookup(cfg, (7.0, 0.2), (-7.0, 0.2)) == pytest.approx([0.5 - 0.04, -0.5 - 0.04])
    assert lookup(cfg, (0.2, 9.0), (0.2, -9.0)) == pytest.approx([0.1 - 0.1, 0.1 + 0.1])
    assert lookup(cfg, (7.0, -9.0)) == pytest.approx([0.5 + 0.1])


def test_no_point_makes_the_look_up_fail() -> None:
    found = lookup(HeightFieldCfg(heights=saddle, resolution=2.0), (math.nan, 0.0), (math.inf, -math.inf), (1e30, 1e30))
    assert all(map(math.isfinite, found))
    assert found[1:] == [2.0, 5.0]


def test_points_may_have_any_leading_shape_and_a_third_coordinate() -> None:
    cfg = HeightFieldCfg(heights=saddle, resolution=2.0)
    terrain = cfg.build()
    terrain.initialize(1, torch.device("cpu"), torch.float64)
    points = torch.zeros(4, 5, 3, dtype=torch.float64)
    points[..., 2] = 99.0
    assert terrain.height_at(points).tolist() == [[2.0] * 5] * 4


def test_heights_must_be_a_grid() -> None:
    with pytest.raises(
        ConfigError, match=r"^env\.scene\.terrain: heights must be a grid, got an array of shape \(5,\)$"
    ):
        HeightFieldCfg(heights=line, heights_args={"points": 5}).build()


def test_points_inside_the_edge_by_a_margin() -> None:
    """`steps` reaches from −1.5 to 1.5 m in x and from −1 to 1 m in y."""
    terrain = HeightFieldCfg(heights=steps).build()
    assert terrain.size == pytest.approx((3.0, 2.0))
    points = torch.tensor([(1.3, 0.0, 9.0), (-1.45, 0.0, 9.0), (0.0, 0.85, 9.0), (0.0, -0.95, 9.0), (torch.nan, 0, 0)])
    assert terrain.contains(points).tolist() == [True, True, True, True, False]
    assert terrain.contains(points, margin=0.1).tolist() == [True, False, True, False, False]
    assert PlaneCfg().build().contains(torch.full((2, 3), 1e6), margin=5.0).tolist() == [True, True]


def test_balls_come_to_rest_on_the_height_that_is_looked_up(make_scene: Callable[..., Scene]) -> None:
    ball = RigidObjectCfg(spec=mjcf_text, spec_args={"xml": BALL})
    scene = make_scene({"ball": ball}, terrain=HeightFieldCfg(heights=steps), dt=0.002)
    # On a field that is transposed or mirrored, at least two of them would rest elsewhere.
    spots = torch.tensor([(-1.1, -0.4), (-1.2, 0.6), (0.6, -0.8), (1.3, 0.3)], dtype=torch.float64)
    heights = [-0.3, 0.1, 0.25, 0.6]
    assert scene.terrain is not None
    assert scene.terrain.height_at(spots).tolist() == pytest.approx(heights)
    pose = torch.zeros(4, 7, dtype=torch.float64)
    pose[:, :2], pose[:, 2], pose[:, 3] = spots, 1.0, 1.0
    scene["ball"].write_root_pose(pose, None)
    scene.step(1500)
    assert scene["ball"].root_pos_w[:, 2].tolist() == pytest.approx([h + RADIUS for h in heights], abs=1e-3)
    assert scene["ball"].root_lin_vel_w[:, 2].abs().max() < 1e-3


def test_a_field_without_relief_carries_too(make_scene: Callable[..., Scene]) -> None:
    ball = RigidObjectCfg(spec=mjcf_text, spec_args={"xml": BALL}, init_state=InitialStateCfg(pos=(0.3, 0.2, RADIUS)))
    terrain = HeightFieldCfg(heights=np.full, heights_args={"shape": (21, 11), "fill_value": -0.7})
    scene = make_scene({"ball": ball}, terrain=terrain)
    scene.step(200)
    assert scene["ball"].root_pos_w[:, 2].tolist() == pytest.approx([-0.7 + RADIUS] * 4, abs=1e-3)


@pytest.mark.parametrize(("friction", "slides"), [(0.5, True), (1.5, False)])
def test_the_grounds_friction_decides_whether_a_box_slides(
    make_scene: Callable[..., Scene], friction: float, slides: bool
) -> None:
    box = """
    <mujoco><worldbody><body name="box"><freejoint/>
      <geom type="box" size=".2 .2 .05" mass="1" friction=".1"/>
    </body></worldbody></mujoco>
    """
    cfg = RigidObjectCfg(spec=mjcf_text, spec_args={"xml": box}, init_state=InitialStateCfg(pos=(0.0, 0.0, 0.05)))
    # A horizontal pull as strong as the weight: it takes a friction of 1 to stand it.
    scene = make_scene({"box": cfg}, terrain=PlaneCfg(friction=friction), gravity=(10.0, 0.0, -10.0))
    scene.step(100)
    travelled = scene["box"].root_pos_w[0, 0].item()
    if slides:  # for half a second with (1 − 0.5) · 10 m/s²
        assert travelled == pytest.approx(0.5 * 5 * 0.5**2, rel=0.05)
    else:
        assert travelled < 0.01
