"""Train coarse, judge fine: what `genelab eval`, `info` and `train` make of a task with two physics."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import genelab_pendulum
from genelab import TASKS, TaskCfg
from genelab.cli.main import run
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.errors import ConfigError, UsageError
from genelab.managers import MetricTermCfg
from genelab.rl import EvalSettings, evaluate_task, train_task
from genelab.rl.world import check_control_step, policy_on_task, world_of_run
from tests.narrow import as_kind

PENDULUM = "GeneLab-Inverted-Pendulum-v0"
TASK = "Test-Coarse-v0"
POLICY = Path(genelab_pendulum.__file__).parent / "pretrained" / PENDULUM / "policy.ts"


def physics_ms(env: ManagerBasedRlEnv) -> Tensor:
    return torch.full((env.num_envs,), 1000 * env.physics_dt)


def task() -> TaskCfg:
    """The pendulum, trained in one physics step of 0.01 s and judged in two of 0.005 s."""
    cfg = TASKS.get(PENDULUM)
    for each in (cfg.env, cfg.play_env):
        env = as_kind(each, ManagerBasedRlEnvCfg)
        env.episode_length_s = 0.1
        env.metrics = {"physics_ms": MetricTermCfg(func=physics_ms)}
    cfg.env.simulation.dt, cfg.env.decimation = 0.01, 1
    return cfg


@pytest.fixture(autouse=True)
def _task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(TASKS, "_entries", dict(TASKS._entries))
    TASKS.register(TASK, task)


def evaluate(*words: str) -> tuple[int, dict[str, Any]]:
    code = run(["eval", TASK, str(POLICY), "--episodes", "4", *words])
    return code, json.loads(Path("eval.json").read_text()) if code == 0 else {}


def test_both_stand_side_by_side(capfd: pytest.CaptureFixture[str]) -> None:
    code, report = evaluate("--physics", "both")
    assert code == 0
    text = capfd.readouterr().out
    assert f"{TASK}: 4 episodes on mujoco in fine and coarse physics, deterministic, seed 0\n" in text
    assert "\nfine: env.simulation.dt=0.005, env.decimation=2\n" in text
    assert "\ncoarse: env.simulation.dt=0.01, env.decimation=1\n" in text
    assert re.search(r"mean, 95 % interval\s+┃ fine\s+┃ coarse\s+┃ difference", text)
    assert re.search(r"physics_ms\s+│ 5.0000\s+│ 10.0000\s+│ \+5.0000", text)
    assert "return, coarse minus fine, over " in text
    assert (report["task"], report["checkpoint"], report["not_run"]) == (TASK, str(POLICY), [])
    assert report["changes"] == {
        "env.simulation.dt": {"fine": "0.005", "coarse": "0.01"},
        "env.decimation": {"fine": "2", "coarse": "1"},
    }
    fine, coarse = report["variants"]["fine"], report["variants"]["coarse"]
    assert (fine["physics"], fine["physics_dt"], fine["decimation"]) == ("fine", 0.005, 2)
    assert (coarse["physics"], coarse["physics_dt"], coarse["decimation"]) == ("coarse", 0.01, 1)
    means = [one["metrics"]["return_mean"] for one in (fine, coarse)]
    assert means[0] != means[1]
    assert report["difference"]["return_mean"] == pytest.approx(means[1] - means[0])
    assert report["difference"]["task_metrics"] == {"physics_ms": pytest.approx(5.0)}


def test_one_of_them_is_a_plain_report_and_fine_is_the_one_without_asking(capfd: pytest.CaptureFixture[str]) -> None:
    for words, name, dt in (([], "fine", 0.005), (["--physics", "fine"], "fine", 0.005)):
        report = evaluate(*words)[1]
        assert (report["physics"], report["physics_dt"]) == (name, dt)
        assert "4 episodes on mujoco, deterministic" in capfd.readouterr().out
    report = evaluate("--physics", "coarse")[1]
    assert (report["physics"], report["physics_dt"], report["decimation"]) == ("coarse", 0.01, 1)
    assert "4 episodes on mujoco in coarse physics, deterministic" in capfd.readouterr().out


def test_coarse_physics_come_without_what_else_is_for_training() -> None:
    with policy_on_task(TASK, POLICY, num_envs=2, physics="coarse") as (env, _):
        assert (env.physics_dt, env.step_dt) == (0.01, 0.01)
        assert not env.cfg.observations["policy"].enable_noise
        assert list(env.cfg.events) == ["reset_joints"]


def test_from_python(tmp_path: Path) -> None:
    report = evaluate_task(TASK, POLICY, EvalSettings(episodes=2), compare="physics", out=tmp_path / "both.json")
    assert list(report["variants"]) == ["fine", "coarse"]
    assert json.loads((tmp_path / "both.json").read_text())["changes"] == report["changes"]
    alone = evaluate_task(TASK, POLICY, EvalSettings(episodes=2, physics="coarse"))
    assert alone["metrics"]["return_mean"] == report["variants"]["coarse"]["metrics"]["return_mean"]


def test_what_cannot_be_compared_is_refused_in_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    same = f"{PENDULUM} is trained in the physics it is judged in: leave out --physics"
    decided = "the coarse physics decides this itself: leave it out, or pass --physics fine"
    for words, message in (
        ([PENDULUM, "pretrained", "--physics", "both"], same),
        ([PENDULUM, "pretrained", "--physics", "coarse", "--engine", "all"], same),
        ([TASK, str(POLICY), "--physics", "both", "--engine", "all"], "exclude each other: pass one of them"),
        ([TASK, str(POLICY), "--physics", "both", "--dt", "0.002"], f"env.simulation.dt: {decided}"),
        ([TASK, str(POLICY), "--physics", "coarse", "env.decimation=4"], f"env.decimation: {decided}"),
        ([TASK, str(POLICY), "--physics", "rough"], "'rough' is not one of 'fine', 'coarse', 'both'"),
    ):
        assert run(["eval", *words]) == 2
        err = capfd.readouterr().err
        assert message in err
        assert len(err.splitlines()) == 1
    assert not Path("eval.json").exists()
    with pytest.raises(UsageError, match="is trained in the physics it is judged in"):
        evaluate_task(PENDULUM, "pretrained", compare="physics")


def test_info_tells_the_other_physics(capfd: pytest.CaptureFixture[str]) -> None:
    def lines(*words: str) -> list[str]:
        assert run(["info", *words]) == 0
        return capfd.readouterr().out.splitlines()[:2]

    assert lines(TASK) == [
        f"{TASK}: 0.01 s × 1 per control step (100 Hz)",
        "judged with env.simulation.dt=0.005, env.decimation=2",
    ]
    assert lines(TASK, "--play")[1] == "trained with env.simulation.dt=0.01, env.decimation=1"
    assert lines(PENDULUM)[1] == ""
    assert run(["info", TASK, "--json"]) == 0
    physics = json.loads(capfd.readouterr().out)["physics"]
    assert physics["env.decimation"] == {"fine": "2", "coarse": "1"}


def test_a_run_that_changes_the_coarse_physics_is_judged_in_the_fine_ones() -> None:
    changes = {"env.simulation.dt": "0.002", "env.decimation": "5", "env.seed": "7"}
    cfg, fitting = world_of_run(TASK, changes)
    assert (cfg.simulation.dt, cfg.decimation, cfg.seed) == (0.005, 2, 7)
    assert fitting == {"env.seed": "7"}


def test_an_override_of_a_whole_dict_is_one_of_what_is_in_it(capfd: pytest.CaptureFixture[str]) -> None:
    def rough() -> TaskCfg:
        cfg = task()
        cfg.env.scene.entities["robot"].spec_args = {"sole": (2, 6)}
        return cfg

    TASKS.register("Test-Sole-v0", rough)
    cfg, fitting = world_of_run("Test-Sole-v0", {"env.scene.entities.robot.spec_args": "{}", "env.seed": "7"})
    assert (cfg.scene.entities["robot"].spec_args, fitting) == ({}, {"env.seed": "7"})
    words = ["--physics", "coarse", "--env.scene.entities.robot.spec_args={}"]
    assert run(["eval", "Test-Sole-v0", str(POLICY), *words]) == 2
    assert "env.scene.entities.robot.spec_args.sole: the coarse physics decides this itself" in capfd.readouterr().err


def test_a_control_rate_that_is_not_judged_at_is_refused(tmp_path: Path) -> None:
    message = r"dt × env.decimation is 0.02 s, but a policy is judged with control steps of 0.01 s: change both$"
    with pytest.raises(ConfigError, match=message):
        train_task(TASK, num_envs=2, overrides={"env.simulation.dt": "0.02"}, log_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    cfg = as_kind(task().env, ManagerBasedRlEnvCfg)
    cfg.simulation.dt, cfg.decimation = 0.0025, 4
    check_control_step(TASK, cfg, {"env.simulation.dt": "0.0025", "env.decimation": "4"})
