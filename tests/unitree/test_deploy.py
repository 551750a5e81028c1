"""A shipped policy walks in plain MuJoCo as it does here, by `run.py` that knows its metadata and its world alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from genelab.mdp import VelocityCommand
from genelab.rl import export_for
from genelab.rl.locate import pretrained_policy
from genelab.rl.rollout import rollout
from genelab.rl.targets.run import Runner
from genelab.rl.world import policy_on_task
from tests.narrow import present

pytestmark = pytest.mark.xdist_group("deploy")

TASKS = ["Genelab-Velocity-Flat-Unitree-Go1-v0", "Genelab-Velocity-Flat-Unitree-G1-v0"]


def velocity_here(task: str, policy: Path, command: tuple[float, float, float]) -> np.ndarray:
    """Forward, left and turning, as the environment has it: the mean of eight robots after the first two seconds."""
    made = []
    with policy_on_task(task, policy, num_envs=8) as (env, setup):
        twist = env.commands.term("twist")
        assert isinstance(twist, VelocityCommand)
        twist.fix(torch.tensor([command], dtype=env.dtype).repeat(8, 1))
        for step, _ in enumerate(rollout(env, setup, steps=300, seed=0)):
            if step >= 100:
                turning = env.robot.root_ang_vel_b[:, 2:]
                made.append(torch.cat((env.robot.root_lin_vel_b[:, :2], turning), dim=1).mean(dim=0))
    return torch.stack(made).mean(dim=0).numpy()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("deploy")
    return {task: export_for("mujoco", task, "pretrained", out=home / task).out for task in TASKS}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("command", [(0.8, 0.0, 0.0), (0.0, 0.5, 0.0), (0.0, 0.0, 0.5)], ids=["ahead", "left", "turn"])
def test_it_walks_as_here_by_its_metadata_alone(
    task: str, command: tuple[float, float, float], folders: dict[str, Path]
) -> None:
    runner, wanted = Runner(folders[task], seed=0), np.array(command)
    runner.steering.set(command)
    made, fell = runner.drive(6.0, settle=2.0)
    assert not fell
    here = velocity_here(task, present(pretrained_policy(task)), command)
    assert here @ wanted > 0.75 * wanted @ wanted
    assert made == pytest.approx(here, abs=0.08)
