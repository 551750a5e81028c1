"""An engine comes in as one file from outside: every verb takes it, and nothing of the package was changed for it."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint, version
from pathlib import Path
from typing import Any

import pytest
import torch

from genelab import TASKS
from genelab.cli.main import run
from genelab.envs import make_env, rl_cfg
from genelab.errors import ConfigError, UsageError
from genelab.sim import ENGINES, SimulationCfg, register_engine
from genelab.sim.registry import EngineRegistry
from tests.doors.helpers import TOYS, lacking_engine

TOY = str(TOYS / "toy_engine.py")
TASK = "Toy-Cart-v0"
ON_TOY = ("--import", TOY, "--engine", "toy")


def genelab(verb: str, *words: str) -> None:
    assert run([*verb.split(), *words]) == 0


def read(path: str | Path) -> dict[str, Any]:
    return json.loads(Path(path).read_text())


def test_every_verb_takes_an_engine_from_outside(capfd: pytest.CaptureFixture[str]) -> None:
    genelab("list", "--import", TOY)
    assert TASK in capfd.readouterr().out
    genelab("info", TASK, "--import", TOY)
    out = capfd.readouterr().out
    assert "env.simulation.engine: 'auto' | 'mujoco' | 'genesis' | 'warp' | 'toy' = auto" in out
    assert "env.simulation.engine_settings.toy.substeps: int | float = 1" in out
    genelab("play", TASK, *ON_TOY, "--steps", "5", "--agent", "random")
    assert "5 steps" in capfd.readouterr().out

    genelab("train", TASK, *ON_TOY, "--max-iterations", "2", "--log-dir", "run", "--quiet")
    judge = capfd.readouterr().out.splitlines()[-2]
    assert judge.endswith(f"genelab eval {TASK} run/model_final.pt --import={TOY} --engine=toy")
    record = read("run/run.json")
    assert (record["engine"], record["status"]) == ("toy", "completed")
    assert record["versions"]["psutil"] == version("psutil")  # what the toy says it runs on
    genelab("train", TASK, "--import", TOY, "--resume", "run", "--max-iterations", "3", "--quiet")
    assert read("run/run.json")["engine"] == "toy"

    genelab("export", TASK, "run", *ON_TOY, "--out", "policy.ts")
    genelab("benchmark runtime", TASK, *ON_TOY, "--num-steps", "2", "--warmup-steps", "1", "--out", "bench")
    (bundle,) = Path("bench").glob("*.json")
    assert read(bundle)["run"]["config"]["physics_backend"] == "toy"
    assert read(bundle)["versions"]["packages"]["psutil"] == version("psutil")
    genelab("report", "run", "--out", "report.html")
    few = ("--num-steps", "2", "--warmup-steps", "1", "--num-envs", "4")
    genelab("benchmark training", TASK, *ON_TOY, "--max-iterations", "2", "--quiet", "--out", "learned")
    genelab("benchmark play", TASK, *ON_TOY, "--checkpoint", "run", *few, "--out", "played")
    for directory in ("learned", "played"):
        (bundle,) = Path(directory).glob("*.json")
        assert read(bundle)["run"]["config"]["physics_backend"] == "toy"


def test_a_resumed_run_ends_as_one_that_never_stopped() -> None:
    train = ("train", TASK, "--import", TOY, "--quiet")
    genelab(*train, "--engine", "toy", "--max-iterations", "3", "--log-dir", "whole")
    genelab(*train, "--engine", "toy", "--max-iterations", "2", "--log-dir", "parts")
    genelab(*train, "--resume", "parts", "--max-iterations", "3")
    whole, parts = (torch.load(f"{run}/model_final.pt", weights_only=True) for run in ("whole", "parts"))
    for name, value in whole["actor_state_dict"].items():
        assert torch.equal(value, parts["actor_state_dict"][name]), name


def test_all_engines_are_as_many_as_there_are(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here four with the toy, of which Genesis and MuJoCo Warp are not installed; so two are compared."""
    genelab("train", TASK, *ON_TOY, "--max-iterations", "1", "--log-dir", "run", "--quiet")
    for name in ("genesis", "warp"):
        monkeypatch.setitem(ENGINES._entries, name, lacking_engine(name, extra=name))
    words = ("--episodes", "4", "--num-envs", "4", "--out", "eval.json")
    genelab("eval", TASK, "run", "--import", TOY, "--engine", "all", *words)
    said = capfd.readouterr()
    assert "left out: the genesis engine is not installed: pip install 'genelab[genesis]'" in said.err
    assert "4 episodes on mujoco and toy" in said.out
    report = read("eval.json")
    assert list(report["engines"]) == ["mujoco", "toy"]
    assert report["not_run"] == ["genesis", "warp"]
    assert report["difference"] == report["differences"]["toy"]
    # The same masses on the same rail: an explicit step of 5 ms and an implicit one differ by little.
    assert abs(report["difference"]["return_mean"]) < 0.01
    monkeypatch.setitem(ENGINES._entries, "toy", lacking_engine("toy"))
    assert run(["eval", TASK, "run", "--import", TOY, "--engine", "all", *words]) == 2
    message = "to compare takes two engines, and there is mujoco alone: the genesis engine is not installed"
    assert message in capfd.readouterr().err
    assert run(["eval", TASK, "run", "--import", TOY, "--engine", "toy", *words]) == 2
    assert capfd.readouterr().err == "genelab: the toy engine is not installed: pip install no-such-package\n"


def test_what_it_cannot_express_is_refused_by_name(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["play", "GeneLab-Inverted-Pendulum-v0", *ON_TOY, "--steps", "1"]) == 2
    message = "the toy engine cannot express joints that turn; use the MuJoCo engine"
    assert capfd.readouterr().err == f"genelab: {message}\n"


def test_an_engine_that_is_not_there_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["play", "GeneLab-Inverted-Pendulum-v0", "--engine", "toy"]) == 2
    assert "'toy' is not one of 'auto', 'mujoco', 'genesis', 'warp'" in capfd.readouterr().err
    assert run(["play", "GeneLab-Inverted-Pendulum-v0", "env.simulation.engine=mujocco"]) == 2
    assert "'auto' | 'mujoco' | 'genesis' | 'warp', got 'mujocco'. Did you mean 'mujoco'?" in capfd.readouterr().err
    with pytest.raises(ConfigError, match=r"env.simulation.engine: 'genesys' is none of .* Did you mean 'genesis'"):
        SimulationCfg(engine="genesys").validate()


def test_an_engine_has_settings_of_its_own() -> None:
    TASKS.import_module(TOY)
    cfg = rl_cfg(TASK, play=True)
    cfg.simulation.engine = "toy"
    speeds = []
    for substeps in (1, 100):
        cfg.simulation.engine_settings["toy"]["substeps"] = substeps
        env = make_env(cfg)
        env.scene.engine.write_qvel(torch.ones(1, 1), [0], None)
        env.scene.engine.step(100)
        speeds.append(env.scene.engine.qpos[0, 0].item())
        env.close()
    assert speeds[0] != speeds[1]
    assert speeds[0] == pytest.approx(speeds[1], abs=0.01)


def test_a_name_belongs_to_one_engine() -> None:
    register_engine("mujoco", "genelab.sim.mujoco_engine:MujocoEngine", packages=["mujoco"], default_on="cpu")  # again
    with pytest.raises(ConfigError, match=r"engine 'mujoco' from 'genelab.*' is registered again by 'mine:Engine'"):
        register_engine("mujoco", "mine:Engine")
    with pytest.raises(ConfigError, match="engine 'mine' cannot be the default on cpu: 'mujoco' is"):
        register_engine("mine", "mine:Engine", default_on="cpu")
    for name in ("auto", "all", "two words"):
        with pytest.raises(ConfigError, match="an engine cannot be called"):
            register_engine(name, "mine:Engine")


def test_an_installed_package_names_its_engine_in_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = EntryPoint("mine", "no_such_module:Engine", "genelab.engines")
    monkeypatch.setattr("genelab.sim.registry.entry_points", lambda group: [plugin])
    registry = EngineRegistry()
    assert registry.choices() == ("auto", "mine")  # nothing was imported
    with pytest.raises(UsageError, match="the mine engine cannot be imported: ModuleNotFoundError"):
        registry.load("mine")
    with pytest.raises(UsageError, match=r"unknown engine 'mina'. Did you mean 'mine'\?"):
        registry.entry("mina")
