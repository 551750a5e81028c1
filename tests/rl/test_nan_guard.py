"""A number that is none stops the run, is named, and can be seen again."""

from __future__ import annotations

import contextlib
import io
import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from genelab import TASKS, TaskCfg
from genelab.cli.main import run
from genelab.envs import FiniteGuard, ManagerBasedRlEnv, ManagerBasedRlEnvCfg, NotFiniteError, rl_cfg
from genelab.managers import EventTermCfg, RewardTermCfg
from genelab.rl.nan_guard import NanGuard
from genelab.viewer.web import WebViewer
from tests.narrow import as_kind
from tests.viewer.pages import free_port

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
        as_kind(env, ManagerBasedRlEnvCfg).rewards["nothing"] = RewardTermCfg(func=reward_of_nothing, weight=1.0)
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
    assert lines[1] == "config of the run; no overrides"
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


LATER = """
import torch
from genelab import TASKS
from genelab.managers import RewardTermCfg

def late(env, first):
    value = torch.zeros(env.num_envs)
    if env.common_step_counter >= first:
        value[1] = float("nan")
    return value

def task():
    cfg = TASKS.get("GeneLab-Inverted-Pendulum-v0")
    for env in (cfg.env, cfg.play_env):
        env.scene.num_envs = 2
        env.rewards["late"] = RewardTermCfg(func=late, weight=1.0, params={"first": 3})
    return cfg

TASKS.register("Test-Late-v0", task)
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Where a playback met a NaN, and the command that it printed; its task is in a file of the user's."""
    place = tmp_path_factory.mktemp("late")
    (place / "my tasks.py").write_text(LATER)
    words = ["play", "Test-Late-v0", "--import", "my tasks.py", "--headless", "--env.simulation.dt=0.02"]
    with contextlib.chdir(place), contextlib.redirect_stderr(io.StringIO()) as err:
        assert run([*words, "--env.rewards.alive.weight=2.0"]) == 1
    program, *command = shlex.split(err.getvalue().split("See it again: ")[1])
    assert program == "genelab"
    return place, command


@pytest.fixture
def dump(printed: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of the command, where it can be run."""
    monkeypatch.chdir(printed[0])
    return printed[1]


def test_the_command_that_is_printed_shows_it_again(dump: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    changes = ["--env.simulation.dt=0.02", "--env.rewards.alive.weight=2.0"]
    assert dump == ["play", "Test-Late-v0", "--import=my tasks.py", *changes, "--replay", "logs/play/nan_dump.pt"]
    assert run(dump) == 0
    lines = capfd.readouterr().out.splitlines()
    assert "environment 1" in lines[0]
    assert lines[1] == "config of the run; overrides: env.simulation.dt=0.02, env.rewards.alive.weight=2.0"
    assert [("nan" in line) for line in lines[2:]] == [False, False, True]


def test_a_replay_takes_overrides(dump: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run([*dump, "--env.rewards.late.params.first=9"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[1].endswith("env.rewards.late.params.first=9")
    assert len(lines) == 5
    assert all("nan" not in line for line in lines[1:])

    rewards = []
    for weight in ("2.0", "3.0"):
        assert run([*dump, f"--env.rewards.alive.weight={weight}", "--max-steps", "1"]) == 0
        rewards.append(float(capfd.readouterr().out.splitlines()[2].rsplit(" ", 1)[1]))
    assert rewards[1] > rewards[0]

    seen = []
    for dt in ("0.02", "0.01"):
        assert run([*dump, f"--env.simulation.dt={dt}", "--max-steps", "1"]) == 0
        seen.append(capfd.readouterr().out.splitlines()[2])
    assert seen[0] != seen[1]

    for words, answer in (
        (["--num-envs", "3"], "it goes without --num-envs"),
        (["--agent", "zero"], "it goes without --agent"),
        (["--env.scene.num_envs=3"], "a dump of 2 environments, which cannot be 3"),
        (["--env.rewards.nothing.weight=1"], "env.rewards.nothing: no such key"),
    ):
        assert run([*dump, *words]) == 2
        err = capfd.readouterr().err
        assert answer in err
        assert err.count("\n") == 1


def test_a_replay_can_be_filmed(dump: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run([*dump, "--video", "nan.mp4", "--video-size", "64x48"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[-1] == "film in nan.mp4: 3 pictures"
    assert "nan" in lines[-2]
    assert Path("nan.mp4").stat().st_size > 500


def test_a_replay_is_shown_over_and_over(dump: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """Three steps are over before anybody looks; a page shows the environment in question until it is closed."""
    seen: list[tuple[int, float]] = []

    def look(self: WebViewer) -> None:
        assert self.player.reward is not None
        seen.append((self._selected, float(self.player.reward[1])))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WebViewer, "after_step", look)
        patch.setattr(WebViewer, "before_step", lambda self: True)
        assert run([*dump, "--port", str(free_port()), "--max-steps", "7"]) == 0
    captured = capfd.readouterr()
    assert "look at http://127.0.0.1:" in captured.err
    assert [env for env, _ in seen] == [1] * 7
    assert [math.isnan(reward) for _, reward in seen] == [False, False, True, False, False, True, False]
    assert seen[3] == seen[0]
    assert len(captured.out.splitlines()) == 5  # the numbers once


class NoLook(TorchDispatchMode):
    """Fails where the host would wait for a device: where a tensor's numbers decide or are copied over."""

    _WAIT = ("aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::equal")

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert function.name() not in self._WAIT
        assert (kwargs or {}).get("device") is None or not isinstance(args[0], Tensor)
        return function(*args, **(kwargs or {}))


def bad_env(task: str = "Test-Bad-Reward-v0") -> ManagerBasedRlEnv:
    cfg = rl_cfg(task)
    cfg.scene.num_envs = 8
    return ManagerBasedRlEnv(cfg)


@pytest.mark.parametrize(
    ("task", "source"),
    [
        ("Test-Bad-Reward-v0", "reward 'nothing'"),
        ("Test-Bad-Physics-v0", "the physics, observation 'policy/joint_vel'"),
    ],
)
def test_a_late_guard_tells_of_the_first_bad_step_and_keeps_what_led_to_it(
    task: str, source: str, tmp_path: Path
) -> None:
    """It goes on after the NaN, for twenty steps at most, and says what a guard says that stops at once."""
    told, dumps = [], []
    for late in (False, True):
        env = bad_env(task)
        env.watchers.append(guard := NanGuard(env, task, tmp_path, late=late))
        env.reset(seed=0)
        steps = 0
        with pytest.raises(NotFiniteError) as caught:  # noqa: PT012
            while steps < 200:
                env.step(torch.full((8, 1), 0.01))
                steps += 1
                if not late:
                    first_bad = steps + 1
                elif steps == first_bad + 20:
                    guard.look()
        looked_at = min(first_bad + 20, 64 * math.ceil(first_bad / 64))  # the guard itself looks every 64 steps
        assert steps == (looked_at if late else first_bad - 1)
        told.append(str(caught.value))
        dumps.append(torch.load(tmp_path / "nan_dump.pt", weights_only=True))
        env.close()
    assert told[0] == told[1]
    assert f"environment {BAD_ENV}: {source}" in told[0]
    assert [len(dump["actions"]) for dump in dumps] == [first_bad % 64] * 2
    assert dumps[0]["environment"] == dumps[1]["environment"] == BAD_ENV


def test_a_late_guard_never_waits_for_the_device_in_a_step() -> None:
    env = bad_env()
    guard = FiniteGuard(env, late=True)
    action = torch.zeros(8, 1)
    env.reset(seed=0)
    guard.before_step(action)
    for _ in range(60):
        result = env.step(action)
        with NoLook():  # type: ignore[no-untyped-call]
            guard.after_step(result)
            guard.before_step(action)
    env.close()


def test_a_late_guard_blames_the_policy_for_its_action(tmp_path: Path) -> None:
    env = bad_env()
    env.watchers.append(guard := NanGuard(env, "Test-Bad-Reward-v0", tmp_path, late=True))
    env.reset(seed=0)
    for value in (0.0, 0.0, torch.nan, torch.nan):
        env.step(torch.full((8, 1), value))
    with pytest.raises(NotFiniteError, match=r"environment 0 \(and 7 more\): the action\. What the policy saw is"):
        guard.look()
    assert torch.load(tmp_path / "nan_dump.pt", weights_only=True)["actions"].tolist() == [[[0.0]] * 8] * 2
    env.close()


def test_a_run_can_do_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nobody looks at the steps, but a learner that has learned from a NaN still stops."""
    monkeypatch.chdir(tmp_path)
    words = ["--num-envs", "8", "--max-iterations", "9", "--log-dir", "run", "--quiet", "--seed", "1"]
    assert run(["train", "Test-Bad-Reward-v0", *words, "--no-nan-guard"]) == 1
    weights = "its weights actor.distribution.std_param are not finite"
    assert f"the learner diverged: {weights}; without the NaN guard nobody knows" in capfd.readouterr().err
    assert not Path("run/nan_dump.pt").exists()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("action_manager", "dim"), -3),
        (("action_manager", "dim"), 10**9),
        (("action_manager", "terms", "cart", "dim"), "x"),
        (("common_step_counter",), "x"),
    ],
)
def test_a_dump_that_was_tampered_with_is_one_line(
    path: tuple[str, ...],
    value: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["play", "Test-Bad-Reward-v0", "--num-envs", "8", "--headless"]) == 1
    dump = torch.load("logs/play/nan_dump.pt", weights_only=True)
    *parts, last = path
    place = dump["state"]
    for part in parts:
        place = place[part]
    assert last in place
    place[last] = value
    torch.save(dump, "logs/play/nan_dump.pt")
    capfd.readouterr()
    assert run(["play", "Test-Bad-Reward-v0", "--replay", "logs/play/nan_dump.pt"]) == 2
    error = capfd.readouterr().err
    assert error.startswith("genelab: logs/play/nan_dump.pt: a dump that cannot be played: ")
    assert error.count("\n") == 1
