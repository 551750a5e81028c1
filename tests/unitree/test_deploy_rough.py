"""A policy of rough ground walks over it in plain MuJoCo, from where the lab's probe starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from genelab.envs import ManagerBasedRlEnv
from genelab.rl import export_for
from genelab.rl.locate import pretrained_policy
from genelab.rl.targets.run import Runner, directions, picked
from genelab.rl.world import policy_on_task
from tests.narrow import present

pytestmark = pytest.mark.xdist_group("deploy")

TASK = "Genelab-Velocity-Rough-Unitree-Go1-v0"
LEVELS = {"env.scene.terrain.max_init_level": 2}


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    folder: Path = export_for("mujoco", TASK, "pretrained", out=tmp_path_factory.mktemp("rough"), overrides=LEVELS).out
    return Runner(folder, seed=0)


@pytest.fixture(scope="module")
def env(runner: Runner) -> Iterator[ManagerBasedRlEnv]:
    with policy_on_task(TASK, present(pretrained_policy(TASK)), num_envs=4, overrides=LEVELS) as (env, _):
        yield env


def test_starts_are_of_every_kind_and_level_in_each_direction(runner: Runner) -> None:
    """Six kinds, three levels, and with about 64 robots four copies of them: the first set comes first."""
    tables = {key.removeprefix("commands.twist.start_"): table for key, table in runner.tables.items()}
    assert tables["pose"].shape == (9, 72, 7)
    assert tables["kind"][:18].tolist() == [kind for kind in range(6) for _ in range(3)]
    assert tables["level"][:18].tolist() == [0, 1, 2] * 6
    assert (tables["kind"][18:36] == tables["kind"][:18]).all()
    assert picked(18, 6, 3, 72) == list(range(18))
    assert picked(80, 6, 3, 72)[70:] == [70, 71, *range(8)]
    few = picked(12, 6, 3, 72)
    assert sorted(row // 3 for row in few) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert [sum(row % 3 == level for row in few) for level in range(3)] == [5, 3, 4]
    ground = runner.robot.ground(tables["pose"][..., :2])
    above = tables["pose"][..., 2] - ground
    assert above.min() > 0.3
    assert above.max() < 0.8
    # going ahead leads to the middle of the cell
    heading = 2 * np.arctan2(tables["pose"][0, :, 6], tables["pose"][0, :, 3])
    inwards = tables["cell"][:, :2] - tables["pose"][0, :, :2]
    ahead = np.stack((np.cos(heading), np.sin(heading)), axis=1)
    assert ((ahead * inwards).sum(axis=1) > 0.8 * np.linalg.norm(inwards, axis=1)).all()


def test_it_sees_the_ground_as_in_the_lab(runner: Runner, env: ManagerBasedRlEnv) -> None:
    poses = runner.tables["commands.twist.start_pose"][0, [0, 7, 20, 50]]
    (term,) = (t for t in runner.about["obs_groups"]["policy"]["terms"] if t["name"] == "height_scan")
    env.robot.write_root_pose(torch.as_tensor(poses, dtype=env.dtype), None)
    env.scene.engine.refresh()
    env.scene.reset_sensors(None)
    env.observation_manager.leave_raw(["policy"])
    seen = env.observation_manager.compute()["policy"][:, term["start"] : term["start"] + term["dim"]]
    for i, pose in enumerate(poses):
        runner.begin()
        runner.robot.put("robot", pose)
        scan = runner.robot.read_sensors(term["source"])
        assert scan == pytest.approx(seen[i].numpy(), abs=1e-4)
        assert scan.std() > 0.0 or i == 0


def test_it_walks_over_each_kind_of_ground(runner: Runner) -> None:
    ways = list(directions(runner.steering.ranges))
    runner.steering.set((1.0, 0.0, 0.0))
    rows = picked(6, 6, 3, 72)
    made = []
    for row in rows:
        runner.begin()
        runner.robot.put("robot", runner.tables["commands.twist.start_pose"][ways.index("forward"), row])
        velocity, fell = runner.drive(3.0, cell=runner.tables["commands.twist.start_cell"][row])
        assert not fell
        made.append(velocity[0])
    assert np.median(made) == pytest.approx(0.98, abs=0.06)  # the lab's probe: 0.98 on levels 0 to 5


def test_who_leaves_the_cell_is_judged_no_longer(runner: Runner) -> None:
    cell = runner.tables["commands.twist.start_cell"][0]
    runner.begin()
    runner.robot.put("robot", np.array([cell[0] + 3.9, cell[1], cell[2] + 0.5, 1.0, 0.0, 0.0, 0.0]))
    assert runner.is_over(cell)
    runner.robot.put("robot", np.array([cell[0] + 4.1, cell[1], cell[2] + 0.5, 1.0, 0.0, 0.0, 0.0]))
    assert not runner.is_over(cell)
