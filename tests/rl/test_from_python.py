"""From task to exported policy in Python: paths may be text, overrides are a mapping of values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from genelab.errors import UsageError
from genelab.rl import EvalSettings, evaluate_task, export_task, resume_task, train_task
from genelab.rl.config import RslRlOnPolicyRunnerCfg

TASK = "GeneLab-Inverted-Pendulum-v0"


def test_paths_may_be_text_and_overrides_need_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    overrides = {"env.episode_length_s": 0.2, "agent.save_interval": 1, "env.rewards.action_rate": None}
    trained = train_task(TASK, num_envs=2, max_iterations=1, seed=1, log_dir="run", overrides=overrides)
    record = json.loads(Path("run/run.json").read_text())
    assert record["overrides"] == ["env.episode_length_s=0.2", "agent.save_interval=1", "env.rewards.action_rate=none"]
    assert "action_rate" not in json.loads(Path("run/params/env.json").read_text())["rewards"]
    resumed = resume_task("run", max_iterations=2)
    assert (trained.env_steps, resumed.env_steps) == (48, 96)
    assert resumed.overrides == dict(word.split("=") for word in record["overrides"])
    again = train_task(TASK, num_envs=2, max_iterations=1, log_dir="again", checkpoint="run/model_final.pt")
    settings = EvalSettings(num_envs=2, episodes=2, probe=False)
    report = evaluate_task(TASK, "again", settings, overrides={"env.episode_length_s": 0.2}, out="eval.json")
    assert json.loads(Path("eval.json").read_text())["metrics"]["length_mean"] == report["metrics"]["length_mean"] == 20
    mistakes: list[tuple[Any, str]] = [
        (
            {"episodes": 2},
            r"^the settings of an evaluation are EvalSettings\(episodes=100, \.\.\.\), got \{'episodes': 2\}$",
        ),
        (EvalSettings(episodes=0), r"^`episodes`: must be at least 1, got 0$"),
    ]
    for wrong, message in mistakes:
        with pytest.raises(UsageError, match=message):
            evaluate_task(TASK, "again", wrong)
    agent: Any = RslRlOnPolicyRunnerCfg
    with pytest.raises(UsageError, match=r"^the agent is the class RslRlOnPolicyRunnerCfg: pass an object of it, "):
        train_task(TASK, agent=agent, log_dir="class")
    assert export_task(TASK, again.checkpoint, out="policy.ts").path == Path("policy.ts")
