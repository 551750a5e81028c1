"""Every verb on MuJoCo Warp: training, resuming, a guard's dump, pictures, export and benchmark bundles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from genelab import TASKS, TaskCfg
from genelab.cli.main import run
from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv, make_env, rl_cfg
from genelab.managers import EventTermCfg
from genelab.rl.player import Player
from genelab.viewer import Film, FilmCfg, ViewerCfg
from genelab.viewer.web import WebViewer
from tests.viewer.pages import free_port

pytestmark = pytest.mark.xdist_group("warp")  # one process compiles the kernels

TASK = "GeneLab-Inverted-Pendulum-v0"
ON_WARP = ("--engine", "warp", "--num-envs", "4")
DIVERGES = "Test-Diverges-On-Warp-v0"


def diverge(env: ManagerBasedRlEnv, env_ids: Tensor) -> None:
    """One environment whose speeds are no numbers after thirty steps."""
    if env.common_step_counter > 30:
        env.robot.write_joint_state(None, torch.full((1, 2), float("nan")), torch.tensor([2]))


def diverging_task() -> TaskCfg:
    cfg = TASKS.get(TASK)
    cfg.env.events["diverge"] = EventTermCfg(func=diverge, mode="interval", interval_range_s=(0.1, 0.1))
    return cfg


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def genelab(verb: str, *words: str) -> None:
    assert run([*verb.split(), *words]) == 0


def read(path: str | Path) -> dict[str, Any]:
    return json.loads(Path(path).read_text())


def test_trained_resumed_judged_exported_and_measured() -> None:
    """A resumed run ends as one that never stopped, bit for bit; what is exported acts there as the learner did."""
    train = ("--quiet", "--seed", "1", "--no-final-eval")
    genelab("train", TASK, *ON_WARP, *train, "--max-iterations", "3", "--log-dir", "whole")
    genelab("train", TASK, *ON_WARP, *train, "--max-iterations", "2", "--log-dir", "parts")
    genelab("train", TASK, "--resume", "parts", "--max-iterations", "3", "--quiet", "--no-final-eval")
    record = read("parts/run.json")
    assert (record["engine"], record["status"]) == ("warp", "completed")
    assert record["versions"]["mujoco-warp"] == version("mujoco-warp")
    whole, parts = (torch.load(f"{run}/model_final.pt", weights_only=True) for run in ("whole", "parts"))
    for name, value in whole["actor_state_dict"].items():
        assert torch.equal(value, parts["actor_state_dict"][name]), name

    genelab("export", TASK, "whole", "--engine", "warp", "--out", "policy.ts")
    for file, policy in (("live.json", "whole"), ("exported.json", "policy.ts")):
        genelab("eval", TASK, policy, *ON_WARP, "--episodes", "4", "--out", file)
    live, exported = (read(file)["metrics"]["return_mean"] for file in ("live.json", "exported.json"))
    assert exported == pytest.approx(live, rel=1e-4)

    few = ("--num-steps", "3", "--warmup-steps", "1")
    genelab("benchmark runtime", TASK, *ON_WARP, *few, "--out", "bench")
    genelab("benchmark play", TASK, *ON_WARP, *few, "--checkpoint", "whole", "--out", "bench")
    genelab("benchmark training", TASK, *ON_WARP, "--max-iterations", "1", "--quiet", "--out", "bench")
    bundles = [read(path) for path in Path("bench").glob("benchmark_*[0-9].json")]
    assert [bundle["run"]["config"]["physics_backend"] for bundle in bundles] == ["warp"] * 3
    assert all(bundle["versions"]["packages"]["warp-lang"] == version("warp-lang") for bundle in bundles)


def test_a_dump_of_the_guard_plays_again(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TASKS, "_entries", dict(TASKS._entries))
    TASKS.register(DIVERGES, diverging_task)
    words = ("--max-iterations", "5", "--log-dir", "run", "--quiet", "--seed", "1")
    assert run(["train", DIVERGES, *ON_WARP, *words]) == 1
    assert "not a finite number in environment 2: the physics" in capfd.readouterr().err
    genelab("play", DIVERGES, "--replay", "run/nan_dump.pt")
    lines = capfd.readouterr().out.splitlines()
    assert "environment 2" in lines[0]
    assert "nan" in lines[-1]
    assert all("nan" not in line for line in lines[1:-1])


def made(engine: str) -> ManagerBasedEnv:
    cfg = rl_cfg(TASK, play=True)
    cfg.simulation.engine, cfg.scene.num_envs = engine, 2
    env = make_env(cfg)
    env.reset(seed=0)
    return env


@pytest.fixture
def env() -> Iterator[ManagerBasedEnv]:
    built = made("warp")
    yield built
    built.close()


def test_it_is_seen_as_mujoco_is(env: ManagerBasedEnv, tmp_path: Path) -> None:
    pictures, other = [], made("mujoco")
    for one in (env, other):
        for _ in range(3):
            one.step(torch.full((2, one.action_dim), 0.5))
        film = Film(one, FilmCfg(path=tmp_path / "f.mp4", size=(160, 120)))
        pictures.append(film.picture().astype(int))
        film.close()
    other.close()
    assert pictures[0].std() > 10
    assert abs(pictures[0] - pictures[1]).max() <= 1


def test_a_page_shows_where_it_is(env: ManagerBasedEnv) -> None:
    player = Player(env, "zero", TASKS.get(TASK).agent, None)
    viewer = WebViewer(player, ViewerCfg(port=free_port()))
    player.play(5, None, [viewer], lambda step, total: None)
    viewer._show()
    shown = viewer._puppet.data.qpos
    viewer.close()
    assert np.allclose(shown, env.scene.engine.qpos[0].numpy())
    assert abs(shown).max() > 0
    assert "5 (episode" in viewer._status.content
