"""An action, a command, a sensor and an observation come in from outside: every verb takes them as its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from genelab import TASKS
from genelab.cli.main import run
from genelab.config import apply_overrides
from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.managers.marks import Arrow
from genelab.mdp import augment
from genelab.viewer.marks import marks_of
from tests.narrow import as_kind

HERE = Path(__file__).parent
LEAN, ACTION = "Toy-Lean-v0", str(HERE / "toy_action.py")
ODOMETER, SENSOR = "Toy-Odometer-v0", str(HERE / "toy_sensor.py")


def genelab(verb: str, *words: str) -> None:
    assert run([*verb.split(), *words]) == 0


def read(path: str | Path) -> Any:
    return json.loads(Path(path).read_text())


def weights(path: str) -> dict[str, Any]:
    return torch.load(path, weights_only=True)["actor_state_dict"]


def assert_resumes(task: str, file: str) -> None:
    """A run that stopped in mid-episode ends with the weights of one that did not."""
    train = ("train", task, "--import", file, "--quiet", "--no-final-eval")
    genelab(*train, "--max-iterations", "3", "--log-dir", "whole")
    genelab(*train, "--max-iterations", "2", "--log-dir", "run")
    genelab(*train, "--resume", "run", "--max-iterations", "3")
    whole, parts = weights("whole/model_final.pt"), weights("run/model_final.pt")
    for name, value in whole.items():
        assert torch.equal(value, parts[name]), name


def test_an_action_with_history_goes_through_every_verb(capfd: pytest.CaptureFixture[str]) -> None:
    genelab("info", LEAN, "--import", ACTION)
    out = capfd.readouterr().out
    assert "MeanAction" in out
    assert "env.actions.legs.length: int = 3" in out
    genelab("play", LEAN, "--import", ACTION, "--steps", "5", "--agent", "random")
    assert_resumes(LEAN, ACTION)

    words = ("--episodes", "4", "--num-envs", "4", "--out", "eval.json")
    genelab("eval", LEAN, "run", "--import", ACTION, *words)
    assert "lean probe" in capfd.readouterr().out
    assert set(read("eval.json")["lean_probe"]["error"]) == {"back", "forward"}

    genelab("export", LEAN, "run", "--import", ACTION, "--out", "policy.ts")
    (legs,) = read("policy.ts.metadata.json")["actions"]
    assert legs == {
        "name": "legs",
        "type": "MeanAction",
        "start": 0,
        "dim": 4,
        "entity": "robot",
        "delay": [0, 0],
        "unit": "1",
        "frame": None,
        "columns": ["left_pitch", "left_roll", "right_pitch", "right_roll"],
        "target": "position",
        "joint_names": ["left_pitch", "left_roll", "right_pitch", "right_roll"],
        "length": 3,
        "formula": "mean of the last actions",
        "reach": 0.5,
    }
    genelab("eval", LEAN, "policy.ts", "--import", ACTION, *words)
    capfd.readouterr()
    for policy in ("run", "policy.ts"):
        assert run(["eval", LEAN, policy, "--import", ACTION, *words, "--env.actions.legs.reach=0.4"]) == 2
        said = capfd.readouterr().err
        assert "trained with env.actions.legs.reach 0.5, here 0.4: pass --env.actions.legs.reach=0.5" in said
        assert run(["eval", LEAN, policy, "--import", ACTION, *words, "--env.actions.legs.length=2"]) == 2
        assert "trained with env.actions.legs.length 3, here 2" in capfd.readouterr().err


def test_what_it_does_is_mirrored_and_its_command_is_shown_and_steered() -> None:
    TASKS.import_module(ACTION)
    cfg = rl_cfg(LEAN, play=True)
    apply_overrides({"env": cfg}, {"env.scene.num_envs": "2"})
    env = ManagerBasedRlEnv(cfg)
    env.reset(seed=0)
    _, actions = augment(env, None, torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    assert actions is not None
    assert actions[1].tolist() == [3.0, -4.0, 1.0, -2.0]  # forward as the other leg did, aside the other way
    term = env.commands.term("lean")
    (control,) = term.controls()
    assert (control.label, control.low, control.high) == ("lean, rad", -0.3, 0.3)
    term.fix(torch.tensor([[0.2]]), torch.tensor([1]))
    env.reset()
    (arrow,) = marks_of(env, 1, 0.0)
    start, end = as_kind(arrow, Arrow).ends
    assert (end - start).tolist() == pytest.approx([0.2, 0.0, 0.0])
    env.close()


def test_a_sensor_and_what_is_seen_of_it_go_through_every_verb(capfd: pytest.CaptureFixture[str]) -> None:
    genelab("info", ODOMETER, "--import", SENSOR, "--json")
    way = json.loads(capfd.readouterr().out)["observations"][1]
    assert (way["term"], way["function"], way["unit"], way["clip"]) == ("way", "way_gone", "m", "0 … 1")
    genelab("play", ODOMETER, "--import", SENSOR, "--steps", "5", "--agent", "random")
    assert_resumes(ODOMETER, SENSOR)
    words = ("--episodes", "4", "--num-envs", "4", "--out", "eval.json")
    genelab("eval", ODOMETER, "run", "--import", SENSOR, *words)
    live = read("eval.json")["metrics"]["return_mean"]
    genelab("export", ODOMETER, "run", "--import", SENSOR, "--out", "policy.ts")
    term = read("policy.ts.metadata.json")["obs_groups"]["policy"]["terms"][1]
    assert term["formula"] == "How far each joint has gone in the last steps."
    assert (term["name"], term["dim"], term["start"], term["scale"]) == ("way", 1, 1, 2.0)
    assert (term["clip"], term["columns"], term["source"]) == ([0.0, 1.0], ["rail"], None)
    genelab("eval", ODOMETER, "policy.ts", "--import", SENSOR, *words)
    assert read("eval.json")["metrics"]["return_mean"] == pytest.approx(live, rel=1e-4)
