"""Evaluation while training: when it happens, in which world, and what it leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from genelab import TASKS, TaskCfg
from genelab.config import to_dict
from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.errors import UsageError
from genelab.rl import EvalSettings, resume_task, train_task
from genelab.rl.config import (
    BackendConfig,
    RlGamesAgentCfg,
    RslRlOnPolicyRunnerCfg,
    Sb3AgentCfg,
    Sb3OnPolicyCfg,
    SkrlAgentCfg,
)
from genelab.rl.eval_callback import _in_words
from genelab.rl.monitor import TrainMonitor
from genelab.rl.training import Training
from genelab.rl.world import eval_cfg
from tests.narrow import as_kind
from tests.rl.helpers import PENDULUM, train_agent

pytestmark = pytest.mark.usefixtures("alone")

_SHORT = {"env.episode_length_s": "0.2"}
SMALL: dict[str, Any] = {"hidden_dims": (8,), "save_interval": 1}


def rsl_rl() -> RslRlOnPolicyRunnerCfg:
    agent = as_kind(TASKS.get(PENDULUM).agent, RslRlOnPolicyRunnerCfg)
    agent.num_steps_per_env, agent.max_iterations, agent.save_interval = 8, 3, 1
    return agent


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The configs of the environments that runs were evaluated in."""
    found: list[dict[str, Any]] = []
    original = Training._judging_env

    def make(self: Training, num_envs: int) -> ManagerBasedRlEnv:
        env = original(self, num_envs)
        found.append(to_dict(env.cfg))
        return env

    monkeypatch.setattr(Training, "_judging_env", make)
    return found


@pytest.mark.parametrize(
    ("agent", "unit", "spent"),
    [
        (rsl_rl(), "iterations", (2, 3)),
        (SkrlAgentCfg(timesteps=20, rollouts=8, **SMALL), "timesteps", (16, 20)),
        (RlGamesAgentCfg(timesteps=20, horizon_length=8, **SMALL), "timesteps", (16, 24)),
        (
            Sb3AgentCfg(algorithm="PPO", timesteps=80, on_policy=Sb3OnPolicyCfg(n_steps=8), **SMALL),
            "timesteps",
            (64, 96),
        ),
    ],
    ids=["rsl_rl", "skrl", "rl_games", "sb3"],
)
def test_every_second_iteration_and_the_last_are_evaluated(
    agent: BackendConfig, unit: str, spent: tuple[int, int], judged: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three iterations of 8 control steps in 4 environments."""
    said: list[str] = []
    bests: dict[str, float | None] = {}
    save = TrainMonitor.save

    def note(self: TrainMonitor, stem: str) -> Path:
        bests[stem] = self.state()["best"]
        return save(self, stem)

    monkeypatch.setattr(TrainMonitor, "save", note)
    result = train_agent(
        agent, "run", evaluation=EvalSettings(every=2, episodes=3), overrides=_SHORT, notify=said.append
    )
    lines = [line for line in said if line.startswith("evaluation at ")]
    assert [line.partition(":")[0] for line in lines] == [f"evaluation at {unit[:-1]} {count}" for count in spent]
    assert lines[0].endswith(", the best so far")
    assert judged[0]["scene"]["num_envs"] == 3  # no more than episodes
    assert result.best == result.path / f"best_model{result.checkpoint.suffix}"
    assert result.best.is_file()
    meta = json.loads((result.path / "best_model_meta.json").read_text())
    which = len([line for line in lines if line.endswith("best so far")]) - 1
    steps = result.env_steps if which else 2 * 8 * 4
    assert (meta["iteration"], meta["spent"], meta["unit"]) == ((2, 3)[which], spent[which], unit)
    assert (meta["env_steps"], meta["task"], meta["checkpoint"]) == (steps, "Test-v0", result.best.name)
    assert f"return {meta['metrics']['return_mean']:.3f}, length " in lines[which]
    assert bests[f"model_{spent[0]}"] is not None  # what is resumed from knows the best of its own iteration


def test_evaluations_further_apart_than_the_training_is_long_are_remarked_upon() -> None:
    """80 timesteps are three iterations of 8 control steps in 4 environments, and the last is less than whole."""
    said: list[str] = []
    agent = Sb3AgentCfg(algorithm="PPO", timesteps=80, on_policy=Sb3OnPolicyCfg(n_steps=8), **SMALL)
    for every in (4, 3):
        settings = EvalSettings(every=every, episodes=1)
        train_agent(agent, f"run-{every}", evaluation=settings, overrides=_SHORT, notify=said.append)
    remarks = [line for line in said if line.endswith("only the last is evaluated")]
    assert remarks == ["an evaluation every 4 iterations, and this training has 3: only the last is evaluated"]


def task_with_its_own_play_config() -> TaskCfg:
    cfg = TASKS.get(PENDULUM)
    cfg.playing.scene.env_spacing = 7.0  # as a rough task begins on other levels
    cfg.agent = agent = rsl_rl()
    agent.max_iterations = 1
    return cfg


def test_a_run_is_judged_in_the_tasks_play_config_with_its_own_overrides(
    judged: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TASKS, "_entries", dict(TASKS._entries))
    TASKS.register("Judged-v0", task_with_its_own_play_config)
    changes = {**_SHORT, "env.events.push_cart.interval_range_s": "[1.0, 1.5]"}  # play has no pushes
    options: dict[str, Any] = {"evaluation": EvalSettings(every=1, episodes=2, num_envs=2)}
    first = train_task("Judged-v0", num_envs=4, overrides=changes, log_dir=Path("run"), **options)
    resume_task(first.path, max_iterations=2, **options)
    expected = rl_cfg("Judged-v0", play=True)
    expected.episode_length_s = 0.2
    assert judged == [to_dict(eval_cfg(expected, 2))] * 2
    assert judged[0]["scene"]["env_spacing"] == 7.0


def test_success_is_said_where_a_task_has_it() -> None:
    summary = {"return_mean": 1.25, "length_mean": 10.0, "success_rate": 0.5}
    assert _in_words(summary) == "return 1.250, length 10.0, success 50%"


@pytest.mark.parametrize(
    "setting", [{"probe": True}, {"deterministic": False}, {"physics": "coarse"}, {"published_noise": True}]
)
def test_what_an_evaluation_while_training_does_not_do_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"^evaluation while training: the policy's mean is judged, in fine physics, "):
        train_task(PENDULUM, log_dir=Path("run"), evaluation=EvalSettings(every=1, **setting))
    assert not Path("run").exists()


def test_without_an_interval_the_last_iteration_alone_is_evaluated() -> None:
    said: list[str] = []
    settings = EvalSettings(episodes=2, max_steps=30)
    train_task(PENDULUM, num_envs=4, max_iterations=2, overrides=_SHORT, evaluation=settings, notify=said.append)
    assert [line.partition(":")[0] for line in said if line.startswith("evaluation at")] == [
        "evaluation at iteration 2"
    ]
