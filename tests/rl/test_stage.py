"""A policy whose commands grew while it learned is played, judged and exported with the ranges it had come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from genelab import TASKS, TaskCfg
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, play_cfg, rl_cfg
from genelab.errors import UsageError
from genelab.managers import CurriculumTermCfg
from genelab.rl import EvalSettings, train_task
from genelab.rl.checkpoint import begin_at_stage
from genelab.rl.config import RslRlModelCfg, RslRlOnPolicyRunnerCfg, Sb3AgentCfg, Sb3OnPolicyCfg
from genelab.rl.exporter import export_task
from genelab.rl.player import Player
from genelab.rl.world import policy_on_task
from tests.narrow import as_kind

TASK = "Test-Growing-v0"
REACHED = {"position_range": (0.85, 0.9)}
CONFIGURED = {"position_range": (-0.8, 0.8)}


def grow(env: ManagerBasedRlEnv, env_ids: Tensor) -> None:
    """Far targets after the first episodes."""
    if env.common_step_counter > 30:
        env.commands.term("target").ranges.update(REACHED)


def rsl_rl() -> RslRlOnPolicyRunnerCfg:
    small = RslRlModelCfg(hidden_dims=(8,))
    agent = TASKS.get("GeneLab-Inverted-Pendulum-v0").agent
    assert isinstance(agent, RslRlOnPolicyRunnerCfg)
    agent.num_steps_per_env, agent.max_iterations, agent.save_interval = 20, 3, 1
    agent.actor.hidden_dims, agent.critic = (8,), small
    return agent


def sb3() -> Sb3AgentCfg:
    on_policy = Sb3OnPolicyCfg(n_steps=20, batch_size=40)
    return Sb3AgentCfg(algorithm="PPO", timesteps=120, hidden_dims=(8,), on_policy=on_policy)


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    """Registers a task of two environments and trains it to where its commands have grown."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(TASKS, "_entries", dict(TASKS._entries))

    def train(make_agent: Callable[[], Any], **options: Any) -> Any:
        def make() -> TaskCfg:
            env = rl_cfg("GeneLab-Inverted-Pendulum-Memory-Mlp-v0")
            env.episode_length_s, env.scene.num_envs = 0.1, 2
            env.curriculum["grow"] = CurriculumTermCfg(func=grow)
            return TaskCfg(env=env, play_env=play_cfg(env), agent=make_agent())

        TASKS.register(TASK, make)
        return train_task(TASK, num_envs=2, seed=0, log_dir=Path("run"), **options)

    return train


def ranges(checkpoint: Path, overrides: Mapping[str, Any] = {}) -> dict[str, Any]:
    """What an evaluation of the policy draws from."""
    with policy_on_task(TASK, checkpoint, num_envs=8, overrides=overrides) as (env, _):
        env.reset(seed=0)
        term = env.commands.term("target")
        low, high = term.ranges["position_range"]
        assert ((term.command >= low) & (term.command <= high)).all()
        return term.ranges


@pytest.mark.parametrize("make_agent", [rsl_rl, sb3])
def test_the_policy_is_judged_with_the_commands_it_came_to(task: Any, make_agent: Callable[[], Any]) -> None:
    result = task(make_agent)
    assert ranges(result.checkpoint) == REACHED
    asked = {"env.commands.target.position_range": "[-0.1, 0.1]"}
    assert ranges(result.checkpoint, asked) == {"position_range": (-0.1, 0.1)}  # whoever asks for something gets it
    exported = export_task(TASK, result.checkpoint, out=Path("policy.ts"))
    assert exported.metadata["commands"]["target"]["position_range"] == [0.85, 0.9]
    assert ranges(exported.path) == REACHED


def test_a_checkpoint_of_before_goes_back(task: Any) -> None:
    result = task(rsl_rl)
    cfg = TASKS.get(TASK)
    env = ManagerBasedRlEnv(as_kind(cfg.play_env, ManagerBasedRlEnvCfg))
    player = Player(env, "trained", cfg.agent, result.checkpoint)
    term = env.commands.term("target")
    assert term.ranges == REACHED
    player.load("model_1.pt")
    assert term.ranges == CONFIGURED
    env.close()


def test_evaluation_while_training_keeps_up(task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = ManagerBasedRlEnv.reset

    def reset(self: ManagerBasedRlEnv, **options: Any) -> Any:
        answer = original(self, **options)
        if not self.cfg.curriculum:
            seen.append(dict(self.commands.term("target").ranges))
        return answer

    monkeypatch.setattr(ManagerBasedRlEnv, "reset", reset)
    task(rsl_rl, evaluation=EvalSettings(every=1, episodes=2))
    assert seen == [CONFIGURED, REACHED, REACHED]


@pytest.mark.parametrize("stage", [[], {"target": 3}, {"target": {"position_range": ["a", "b"]}}])
def test_ranges_that_are_none_are_refused(stage: Any) -> None:
    env = ManagerBasedRlEnv(rl_cfg("GeneLab-Inverted-Pendulum-Memory-Mlp-v0", play=True))
    with pytest.raises(UsageError, match=r"^model\.pt: damaged: the ranges of its commands are no ranges$"):
        begin_at_stage(env, stage, Path("model.pt"))


def test_what_did_not_grow_is_not_told() -> None:
    env = ManagerBasedRlEnv(rl_cfg("GeneLab-Inverted-Pendulum-Memory-Mlp-v0"))
    assert env.commands.stage() == {}
    env.commands.term("target").ranges.update(REACHED)
    assert env.commands.stage() == {"target": {"position_range": ((-0.8, 0.8), (0.85, 0.9))}}
    assert torch.equal(env.commands["target"], env.commands["target"].clamp(-0.8, 0.8))
