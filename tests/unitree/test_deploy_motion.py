"""A policy that follows a motion does so in plain MuJoCo, by `run.py` and the tables of its export."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks.deployed import alone
from genelab.rl import export_for, train_task
from genelab.rl.exportable import exportable
from genelab.rl.locate import pretrained_policy
from genelab.rl.targets.run import MOTION_ENDED, Policy, Refused, Runner
from tests.narrow import present

pytestmark = pytest.mark.xdist_group("deploy")

TASK = "Genelab-Tracking-Flat-Unitree-G1-v0"
BLIND = "Genelab-Tracking-Flat-Unitree-G1-No-State-Estimation-v0"


class Nothing(Policy):
    """A policy that corrects nothing."""

    def __init__(self, width: int) -> None:
        self.width = width

    def reset(self) -> None:
        pass

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        return np.zeros(self.width)


@pytest.fixture(scope="module")
def dance(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_for("mujoco", TASK, "pretrained", out=tmp_path_factory.mktemp("deploy") / "dance").out


def test_it_dances_to_the_end_where_neither_genelab_nor_torch_is(dance: Path, tmp_path: Path) -> None:
    answer = alone(dance, "--episodes", "1", "--report", str(tmp_path / "report.json"))
    assert (answer.returncode, answer.stderr) == (0, "")
    clip = json.loads((tmp_path / "report.json").read_text())["clips"]["dance"]
    lab = json.loads((present(pretrained_policy(TASK)).parent / "eval.json").read_text())
    assert (clip["robots"], clip["reached_end"]) == (1, 1)
    assert clip["mpkpe"] == pytest.approx(lab["motion_probe"]["clips"]["dance"]["mpkpe"], abs=0.015)
    assert clip["mpkpe_root"] == pytest.approx(lab["motion_probe"]["clips"]["dance"]["mpkpe_root"], abs=0.01)


def test_it_sees_what_it_sees_in_the_lab(dance: Path) -> None:
    """Both begin exactly on the motion; physics of a second amplifies what rounding leaves."""
    with exportable(TASK, present(pretrained_policy(TASK))) as policy:
        seen, done = policy.experience.raw[:, 0].numpy(), policy.experience.actions[:, 0].numpy()
    runner = Runner(dance, seed=0)
    for step, end in runner.steps(1.0):
        assert end is None
        apart = 1e-5 if step == 0 else 1e-3
        assert runner.controller.seen == pytest.approx(seen[step], abs=apart)
        assert runner.controller.last == pytest.approx(done[step], abs=apart)


def test_a_motion_that_is_left_ends_with_the_name_of_the_end(dance: Path) -> None:
    """A robot that is lifted by more than 0.25 m is not where the motion has it."""
    runner = Runner(dance, seed=0)
    assert runner.robot.ended() is None
    for lift, end in ((0.24, None), (0.26, "anchor_height")):
        runner.begin()
        runner.robot.motions["motion"].frame -= 1  # the frame that it is on
        runner.robot.data.qpos[2] += lift
        runner.robot.look()
        assert runner.robot.ended() == end
    runner.begin()
    motion = runner.robot.motions["motion"]
    motion.first = motion.last
    runner.begin()
    assert runner.robot.ended() == MOTION_ENDED


def test_without_state_estimation_zero_action_does_the_motion(tmp_path: Path) -> None:
    """Torques, lead and joints of the tables carry a robot through the start of a squat; without torques it sinks."""
    overrides = {"env.commands.motion.file": "squat"}
    run = train_task(BLIND, num_envs=4, max_iterations=1, seed=1, log_dir=tmp_path / "run", overrides=overrides)
    out = export_for("mujoco", BLIND, run.checkpoint, out=tmp_path / "squat", overrides=overrides).out
    runner = Runner(out, seed=0)
    runner.controller.policy = Nothing(29)
    names = [term["name"] for term in runner.about["obs_groups"]["policy"]["terms"]]
    assert "motion_anchor_pos" not in names
    assert "base_lin_vel" not in names
    lowest = {}
    for share in (1.0, 0.0):
        runner.about["actions"][0]["feed_forward"] = share
        runner.begin()
        motion = runner.robot.motions["motion"]
        apart = []
        for _, end in runner.steps(1.2):
            assert share == 0.0 or end is None
            apart.append(runner.robot.data.qpos[2] - motion.now("root_state")[2])
        lowest[share] = min(apart)
    assert lowest[1.0] > -0.02
    assert lowest[0.0] < 2 * lowest[1.0] - 0.01


def test_tables_that_are_missing_or_of_another_shape_are_refused(dance: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dance"
    shutil.copytree(dance, folder)
    (folder / "manifest.json").unlink()
    with np.load(dance / "tables.npz") as file:
        tables = {name: file[name] for name in file.files}
    tables["commands.motion.joint_pos"] = tables["commands.motion.joint_pos"][:, 1:]
    np.savez(folder / "tables.npz", **tables)
    with pytest.raises(
        Refused, match=r"the table commands\.motion\.joint_pos is of shape \[1286, 28\], its metadata say"
    ):
        Runner(folder, seed=0)
    (folder / "tables.npz").unlink()
    with pytest.raises(Refused, match=r"has no tables\.npz, which its metadata speak of: export it again"):
        Runner(folder, seed=0)
