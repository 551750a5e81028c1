"""What a Go2-W's policy is exported with is enough to run it in plain MuJoCo."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from genelab.rl import ExportResult, export_for, export_task, train_task
from genelab.rl.targets.run import Policy, Runner

TASK = "Genelab-Velocity-Flat-Unitree-Go2W-v0"
STAGE_1 = "Genelab-Velocity-Flat-Unitree-Go2W-CrabStage1-v0"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ExportResult]:
    """An iteration of each stage, the second from the weights of the first."""
    home = tmp_path_factory.mktemp("go2w")
    first = train_task(STAGE_1, num_envs=4, max_iterations=1, seed=1, log_dir=home / "stage_1").checkpoint
    second = train_task(TASK, num_envs=4, max_iterations=1, seed=1, log_dir=home / "stage_2", checkpoint=first)
    return {
        name: export_task(TASK, second.checkpoint, out=home / f"policy.{suffix}")
        for name, suffix in (("torchscript", "ts"), ("onnx", "onnx"))
    }


@pytest.fixture(scope="module")
def folder(exported: dict[str, ExportResult], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same policy with its world and `run.py`."""
    return export_for("mujoco", TASK, exported["torchscript"].path, out=tmp_path_factory.mktemp("folder")).out


def test_it_is_exported_whole(exported: dict[str, ExportResult]) -> None:
    for result in exported.values():
        about = result.metadata
        (group,) = about["obs_groups"].values()
        assert (about["obs_dim"], about["action_dim"]) == (285, 16)
        assert (group["history_length"], group["frame_dim"]) == (5, 57)
        assert "oldest" in about["obs_layout"]
        legs, wheels = about["actions"]
        assert (legs["target"], wheels["target"]) == ("position", "velocity")
        joints = about["entities"]["robot"]
        kv = dict(zip(joints["joint_names"], joints["damping"], strict=True))
        assert {kv[name] for name in wheels["joint_names"]} == {5.0}
        assert result.parity_error is not None
        assert result.parity_error < 1e-4


class Nothing(Policy):
    """A policy that corrects nothing, and remembers what it saw."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.seen: list[np.ndarray] = []

    def reset(self) -> None:
        pass

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        self.seen.append(obs)
        return np.zeros(self.width)


@pytest.mark.parametrize(
    ("command", "least"),
    [((0.5, 0.0, 0.0), 0.9), ((-0.5, 0.0, 0.0), 0.9), ((0.0, 0.5, 0.0), 0.6), ((0.0, 0.0, -0.8), 0.6)],
    ids=["ahead", "back", "left", "turn"],
)
def test_script_and_wheels_are_rebuilt_from_the_metadata(
    folder: Path, command: tuple[float, float, float], least: float
) -> None:
    """A policy that does nothing goes as it does in the environment."""
    runner, wanted = Runner(folder, seed=0), np.array(command)
    runner.controller.policy = Nothing(16)
    runner.steering.set(command)
    made, _ = runner.drive(4.0, settle=2.0)
    assert made @ wanted / (wanted @ wanted) > least


def test_torchscript_and_onnx_are_the_same_policy_on_a_rebuilt_observation(
    folder: Path, exported: dict[str, ExportResult]
) -> None:
    runner, nothing = Runner(folder, seed=0), Nothing(16)
    policy, runner.controller.policy = runner.policy, nothing
    runner.steering.set((0.3, 0.2, 0.1))
    runner.drive(0.2, settle=0.0)
    other = torch.jit.load(exported["torchscript"].path).eval()
    assert {observation.shape for observation in nothing.seen} == {(285,)}
    assert len(nothing.seen) == 10
    for observation in nothing.seen:
        with torch.inference_mode():
            wanted = other(torch.tensor(observation, dtype=torch.float32)[None])[0].numpy()
        np.testing.assert_allclose(policy(observation), wanted, atol=1e-5)
