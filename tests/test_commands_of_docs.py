"""Every command of every page runs as written, in a small size."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genelab.cli.main import run
from tests.pages import DOCS, ROOT, shell_lines

PENDULUM = "GeneLab-Inverted-Pendulum-v0"
GO1 = "Genelab-Velocity-Flat-Unitree-Go1-v0"
PAGES = ["README.md", *DOCS]
WORDS = {
    "TASK": PENDULUM,
    "CKPT": "pretrained",
    "RUN_DIR": "RUN",
    "RUN_OF_THE_FLAT_TASK": "FLAT",
    "RUN_OF_STAGE_1": "STAGE",
    "logs/multi-seed/TASK/TIME": "seeds",
    "runs/franka/seed_1": "pretrained",
    "kata/model_200.pt": "kata",
}
"""What pages leave to the reader."""
ELSEWHERE = {
    "genesis": "compiles kernels: tests marked genesis",
    "all": "so does --engine all",
    "--gpus": "needs GPUs: tests/rl/test_launch.py has the command that it becomes",
    "ray": "tests/rl/test_launch.py",
    "--seeds": "processes of their own: tests/cli/test_train_cli.py, tests/rl/test_launch.py",
    "--ranks": "processes of their own: tests/rl/test_launch.py",
    "--replay": "needs a NaN: tests/rl/test_nan_guard.py",
    "demos.npz": "needs demonstrations: tests/franka/test_pick_place.py",
    "sweep": "trains many times: it has tests of its own",
    "--window": "needs a display: tests/rl/test_run.py",
    "startup": "a process of its own: tests/bench",
    "My-Robot-Velocity-v0": "has to be installed: tests/cli/test_new_task.py",
}
"""Words of commands that are too much for this file, and who runs them."""
VIEWERS = {"--vis": 1, "-v": 1, "--viewer": 2, "--port": 2, "--host": 2}
"""Options that open something, and how many words they take."""
FILM = ["--video-length", "2", "--video-size", "64x64", "--video-envs", "1"]


def commands_of(page: str) -> Iterator[list[str]]:
    """The lines of shell blocks that call genelab or change directory, as words."""
    for line in shell_lines(page):
        if line.startswith(("genelab ", "cd ")):
            yield shlex.split(line, comments=True)


def small(words: list[str]) -> list[str]:
    """The same command with next to nothing to do."""
    command = [WORDS.get(word, word) for word in words]
    if command[0] == "cd":
        return command
    if "RUN" in command and PENDULUM not in command and command[1] != "report":
        command[command.index("RUN")] = "pretrained" if GO1 in command else "latest"
    if "--physics" in command:  # a task that has two
        command[2] = GO1
    if "--stochastic" in command:
        command[command.index("pretrained")] = "RUN"
    verb = command[1]
    if verb == "train":
        command += ["--max-iterations", "1", "--num-envs", "8", "--quiet"]
        command += ["--eval-episodes", "1"] if "--eval-every" in command else ["--no-final-eval"]
        command += FILM if "--video-interval" in command else []
    elif verb == "play" or command[1:3] == ["motion", "play"]:
        for option, length in VIEWERS.items():
            if option in command:
                del command[command.index(option) : command.index(option) + length]
        command += ["--max-steps", "2", *(["--headless"] if verb == "play" else [])]
        command += FILM[:4] if "--video" in command else []
        command += FILM[4:] if "--video-envs" in command else []
        if verb == "play" and not any("Rubiks" in word or "Hand" in word for word in command):
            command += ["--num-envs", "2"]
    elif verb == "eval":
        command += ["--episodes", "2", "--num-envs", "2", "--no-probe", "env.episode_length_s=0.1"]
    elif verb == "benchmark" and command[2] in ("runtime", "play"):
        command += ["--num-envs", "2", "--num-steps", "2", "--warmup-steps", "1"]
    elif verb == "benchmark" and command[2] == "training":
        command += ["--num-envs", "4", "--max-iterations", "2"]
    return command


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one iteration, where pages say RUN_DIR."""
    home = tmp_path_factory.mktemp("runs")
    cheap = ["--max-iterations", "1", "--num-envs", "4", "--quiet", "--no-final-eval"]
    assert run(["train", PENDULUM, "--log-dir", str(home / "RUN"), "--seed", "1", *cheap]) == 0
    for name in ("seeds/seed_1", "runs/a", "runs/b", "runs/c"):
        shutil.copytree(home / "RUN", home / name)
    return home


def prepare(page: str, runs: Path) -> None:
    """Put what a page takes for granted into the working directory."""
    shutil.copytree(runs, ".", dirs_exist_ok=True)
    Path("examples").symlink_to(ROOT / "examples")
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = {
        language: re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL) for language in ("python", "xml", "json")
    }
    if page == "docs/tutorials/first-task.md":
        Path("swing_up.py").write_text(blocks["python"][0])
    elif page == "docs/tutorials/own-robot.md":
        Path("biped.xml").write_text(blocks["xml"][0])
    elif page == "docs/bring-a-robot.md":
        body = '<body><joint name="hinge"/><geom type="capsule" fromto="0 0 0 0 0 .5" size=".05"/></body>'
        Path("robot.xml").write_text(f"<mujoco><worldbody>{body}</worldbody></mujoco>")
    elif page == "docs/eval-and-export.md":
        rows = [{**row, "checkpoint": "pretrained", "episodes": 1} for row in json.loads(blocks["json"][0])]
        Path("suite.json").write_text(json.dumps([{**row, "num_envs": 1} for row in rows]))
    elif page == "docs/showcase.md":
        np.savetxt("mine.csv", np.zeros((4, 20)), delimiter=",")
    elif page == "docs/tracking.md":
        standing = np.zeros((20, 36))
        standing[:, 2], standing[:, 6] = 0.76, 1.0
        for name in ("capture.csv", "slow_kata.csv"):
            np.savetxt(name, standing, delimiter=",")
    elif page == "docs/walking.md":
        cheap = ["--max-iterations", "1", "--num-envs", "4", "--quiet", "--no-final-eval"]
        for name, task in (("FLAT", GO1), ("STAGE", "Genelab-Velocity-Flat-Unitree-Go2W-CrabStage1-v0")):
            assert run(["train", task, "--log-dir", name, *cheap]) == 0


@pytest.mark.parametrize("page", [page for page in PAGES if any(commands_of(page))])
def test_the_commands_of_a_page_run(
    page: str, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(page, runs)
    for words in commands_of(page):
        command = small(words)
        if any(word in ELSEWHERE for word in command):
            continue
        if command[0] == "cd":
            monkeypatch.chdir(command[1])
            continue
        code = run(command[1:])
        said = capfd.readouterr()
        # A motion that nobody could do is what `motion check` is there to tell.
        assert code == 0 or "check" in command[:3], f"{' '.join(words)}\n{said.err}"


def test_the_loop_for_the_robot_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["export", PENDULUM, "pretrained", "--format", "onnx", "--out", "policy.onnx"]) == 0
    text = (ROOT / "docs/tutorials/to-the-robot.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)
    assert names["period"] == pytest.approx(0.01)
    assert set(names["step"](np.zeros((1, names["metadata"]["obs_dim"])))) == {"cart"}


def test_who_runs_the_rest_is_there() -> None:
    for reason in ELSEWHERE.values():
        for file in re.findall(r"tests/[\w/]+(?:\.py)?", reason):
            assert (ROOT / file).exists(), reason
