"""A number that is none stops the run, is named, and can be seen again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from genelab import TASKS, TaskCfg
from genelab.cli.main import run
from genelab.envs import ManagerBasedRlEnv
from genelab.managers import EventTermCfg, RewardTermCfg

BAD_ENV = 5


def reward_of_nothing(env: ManagerBasedRlEnv) -> Tensor:
    """NaN in one environment after a hundred steps."""
    value = torch.zeros(env.num_envs)
    if env.common_step_counter > 100:
        value[BAD_ENV] = float("nan")
    return value


def explode(env: ManagerBasedRlEnv, env_ids: Tensor) -> None:
    """Physics that has diverged, in one environment."""
    if BAD_ENV in env_ids.tolist() and env.common_step_counter > 50:
        env.robot.write_joint_state(None, torch.full((1, 2), float("nan")), torch.tensor([BAD_ENV]))


def bad_reward_task() -> TaskCfg:
    cfg = TASKS.get("GeneLab-Inverted-Pendulum-v0")
    for env in (cfg.env, cfg.play_env):
        env.rewards["nothing"] = RewardTermCfg(func=reward_of_nothing, weight=1.0)
    return cfg


def bad_physics_task() -> TaskCfg:
    cfg = TASKS.get("GeneLab-Inverted-Pendulum-v0")
    cfg.env.events["explode"] = EventTermCfg(func=explode, mode="interval", interval_range_s=(0.3, 0.3))
    return cfg


TASKS.register("Test-Bad-Reward-v0", bad_reward_task)
TASKS.register("Test-Bad-Physics-v0", bad_physics_task)


@pytest.mark.parametrize(
    ("task", "source"),
    [
        ("Test-Bad-Reward-v0", "reward 'nothing'"),
        ("Test-Bad-Physics-v0", "the physics, observation 'policy/joint_vel'"),
    ],
)
def test_training_stops_names_the_source_and_leaves_a_dump_that_plays(
    task: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["train", task, "--num-envs", "8", "--max-iterations", "50", "--log-dir", "run", "--quiet", "--seed", "1"]
    assert run(command) == 1
    captured = capfd.readouterr()
    assert len(captured.err.splitlines()) == 1
    assert f"not a finite number in environment {BAD_ENV}: {source}" in captured.err
    assert f"genelab play {task} --replay run/nan_dump.pt" in captured.err
    assert json.loads(Path("run/run.json").read_text())["status"] == "failed"

    assert run(["play", task, "--replay", "run/nan_dump.pt"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert source in lines[0]
    assert "nan" in lines[-1]
    assert all("nan" not in line for line in lines[1:-1])


def test_another_file_is_not_a_dump(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch.save({"weights": torch.ones(1)}, tmp_path / "model.pt")
    assert run(["play", "GeneLab-Inverted-Pendulum-v0", "--replay", str(tmp_path / "model.pt")]) == 2
    assert "not a dump of the NaN guard" in capfd.readouterr().err


def test_playing_stops_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["play", "Test-Bad-Reward-v0", "--num-envs", "8", "--headless"]) == 1
    assert f"not a finite number in environment {BAD_ENV}: reward 'nothing'" in capfd.readouterr().err
    assert run(["play", "Test-Bad-Reward-v0", "--replay", "logs/play/nan_dump.pt"]) == 0
