"""The scenes on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from genelab import TASKS
from genelab.cli.main import run
from genelab.envs import ManagerBasedEnvCfg, ManagerBasedRlEnvCfg
from genelab.rl.player import Player

RUBIKS = "GeneLab-Rubiks-Play-v0"
HAND = "GeneLab-Wuji-Hand-Playback-v0"
BOTH = pytest.mark.parametrize("task", [RUBIKS, HAND])


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def played(words: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[str, str]:
    assert run(["play", *words]) == 0
    captured = capfd.readouterr()
    return captured.out, captured.err


@BOTH
def test_a_scene_has_neither_rewards_nor_an_agent(task: str) -> None:
    cfg = TASKS.get(task)
    assert isinstance(cfg.env, ManagerBasedEnvCfg)
    assert not isinstance(cfg.env, ManagerBasedRlEnvCfg)
    assert cfg.agent is None
    assert cfg.playing.simulation.vis


@BOTH
def test_steps_and_max_steps(task: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert "128 steps × 1 envs on mujoco" in played([task, "--steps", "128"], capfd)[0]
    assert "240 steps × 1 envs" in played([task, "--headless"], capfd)[0]
    assert " 5 steps" in played([task, "--steps", "9", "--max-steps", "5"], capfd)[0]


def test_no_steps_are_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    original = Player.step

    def step(self: Player) -> Any:
        nonlocal steps
        steps += 1
        if steps == 300:
            raise KeyboardInterrupt
        return original(self)

    monkeypatch.setattr(Player, "step", step)
    assert run(["play", HAND, "--headless", "--steps", "0"]) == 130


@BOTH
def test_without_a_display_it_says_so_and_plays(task: str, capfd: pytest.CaptureFixture[str]) -> None:
    out, err = played([task, "--steps", "3"], capfd)
    assert "No display detected: playing headless; --vis serves a web page" in err
    assert " 3 steps" in out
    assert played([task, "--steps", "3", "--headless"], capfd)[1] == ""


@BOTH
def test_with_a_viewer_only_max_steps_ends_it(task: str, capfd: pytest.CaptureFixture[str]) -> None:
    out, err = played([task, "--vis", "--steps", "2", "--max-steps", "6"], capfd)
    assert "No display detected: serving a web page" in err
    assert " 6 steps" in out


@BOTH
def test_options_for_policies_are_ignored_with_a_warning(task: str, capfd: pytest.CaptureFixture[str]) -> None:
    options = ["--agent", "random", "--checkpoint", "no.pt", "--best", "--num-envs", "4", "--prof-active", "2"]
    out, err = played([task, "--headless", "--steps", "3", *options], capfd)
    warned = re.findall(rf"genelab: (--[\w-]+) is for RL tasks; {task} is a scene and ignores it", err)
    assert warned == ["--agent", "--checkpoint", "--best", "--num-envs", "--prof"]
    assert "3 steps × 1 envs" in out
    assert "traces" not in out
    assert list(Path.cwd().iterdir()) == []


@BOTH
def test_it_cannot_be_trained(task: str, capfd: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--seeds", "1,2"]):
        assert run(["train", task, *words]) == 2
        (line,) = capfd.readouterr().err.splitlines()
        assert "has no agent config: it can be played, not trained" in line
    assert list(Path.cwd().iterdir()) == []


def test_it_is_listed_as_playback_only(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "--json"]) == 0
    rows = {row["id"]: row for row in json.loads(capfd.readouterr().out)}
    for task in (RUBIKS, HAND):
        assert rows[task]["backend"] is None
        assert rows[task]["package"] == "genelab_showcase"
    assert run(["list", "--filter", "wuji"]) == 0
    assert "playback only" in capfd.readouterr().out


def test_info_shows_what_can_be_set(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["info", HAND]) == 0
    text = capfd.readouterr().out
    assert "0.01 s × 1 per control step (100 Hz)" in text
    assert re.search(r"joints\s*│\s*20\s*│\s*JointPositionAction", text)
    for line in (
        "env.side: 'right' | 'left' = right",
        "env.trajectory: str = wave",
        "env.reset_interval: int = 500",
        "env.playback: Callable | None = genelab_showcase.wuji_hand:play_trajectory",
    ):
        assert line in text
    assert run(["info", RUBIKS]) == 0
    text = capfd.readouterr().out
    assert re.search(r"cubies\s*│\s*104\s*│\s*CubieServo\s*│\s*26 ball joints", text)
    assert "env.scramble_length: int = 20" in text


def test_overrides_reach_the_scenes(capfd: pytest.CaptureFixture[str]) -> None:
    played([HAND, "--headless", "--steps", "2", "env.side=left", "env.reset_interval=1"], capfd)
    played([RUBIKS, "--headless", "--steps", "2", "env.scramble=R U' F2", "--seed", "3"], capfd)
    row = ",".join(["0.1"] * 20)
    Path("mine.csv").write_text(f"{row}\n{row}\n")
    played([HAND, "--headless", "--steps", "5", "env.trajectory=mine.csv"], capfd)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([HAND, "env.trajectory=no.csv"], "env.trajectory: no trajectory 'no.csv'; give a file .csv or .npz"),
        ([HAND, "env.trajectory=short.csv"], "env.trajectory: short.csv: row 1 has 3 columns, a trajectory has 20"),
        ([HAND, "env.side=up"], "env.side: expected 'right' | 'left', got 'up'"),
        ([RUBIKS, "env.scramble=R X"], "env.scramble: 'X' is no turn of a cube"),
    ],
)
def test_wrong_words_are_answered_in_one_line(
    words: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("short.csv").write_text("1,2,3\n")
    assert run(["play", "--headless", *words]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("genelab: ")
    assert message in line
