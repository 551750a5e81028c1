"""Exported files run in environments as checkpoints do, and are refused by name when they do not fit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from genelab import TASKS
from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.errors import UsageError
from genelab.mdp import JointPositionActionCfg
from genelab.rl import export_task, train_task
from genelab.rl.evaluator import evaluate
from genelab.rl.exported import acts_alone, load_exported
from genelab.rl.policies import load_policy
from genelab.rl.world import eval_cfg
from tests.narrow import as_kind

PENDULUM = "GeneLab-Inverted-Pendulum-v0"
RNN = "GeneLab-Inverted-Pendulum-Memory-Rnn-v0"

pytestmark = pytest.mark.xdist_group("exported")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints, with and without memory, and their exports."""
    home = tmp_path_factory.mktemp("home")
    for task, name in ((PENDULUM, "mlp"), (RNN, "rnn")):
        result = train_task(task, num_envs=8, max_iterations=1, seed=3, log_dir=home / name)
        for suffix in (".ts", ".onnx"):
            export_task(task, result.checkpoint, out=home / f"{name}{suffix}")
    return home


def env_of(task: str, num_envs: int = 4, **changes: Any) -> ManagerBasedRlEnv:
    cfg = eval_cfg(rl_cfg(task, play=True), num_envs)
    for path, value in changes.items():
        setattr(cfg.observations["policy"], path, value)
    return ManagerBasedRlEnv(cfg)


@pytest.mark.parametrize(
    ("task", "name", "num_envs"), [(PENDULUM, "mlp.ts", 4), (PENDULUM, "mlp.onnx", 4), (RNN, "rnn.onnx", 4)]
)
def test_an_evaluation_is_that_of_the_checkpoint(home: Path, task: str, name: str, num_envs: int) -> None:
    checkpoint = home / name.partition(".")[0] / "model_final.pt"
    results = []
    for path in (checkpoint, home / name):
        env = env_of(task, num_envs)
        results.append(evaluate(env, load_policy(env, TASKS.get(task).agent, path), episodes=8, seed=0))
    live, exported = results
    assert exported.lengths == live.lengths
    assert exported.returns == pytest.approx(live.returns, abs=1e-3)


def test_only_the_policys_groups_are_raw(home: Path) -> None:
    env = env_of(PENDULUM)
    load_exported(env, home / "mlp.ts")
    assert {name: group.raw for name, group in env.observation_manager.groups.items()} == {
        "policy": True,
        "critic": False,
    }
    observations, _ = env.reset(seed=0)
    speeds = env.robot.joint_vel
    assert torch.equal(observations["policy"][:, 2:4], speeds)
    assert torch.equal(observations["critic"][:, 2:4], speeds * 0.1)


def test_a_recurrent_torchscript_file_is_of_one_robot(home: Path) -> None:
    env = env_of(RNN, 1)
    setup = load_exported(env, home / "rnn.ts")
    observations, _ = env.reset(seed=0)
    setup.reset(None)
    first, second = (setup.policy(observations) for _ in range(2))
    assert not torch.equal(first, second)
    setup.reset(torch.tensor([False]))
    assert not torch.equal(setup.policy(observations), first)
    setup.reset(torch.tensor([True]))
    assert torch.equal(setup.policy(observations), first)
    alone = {name: acts_alone(home / name) for name in ("rnn.ts", "rnn.onnx", "mlp.ts", "rnn/model_final.pt")}
    assert [name for name, only in alone.items() if only] == ["rnn.ts"]
    with pytest.raises(UsageError, match=r"rnn\.ts: a recurrent .* pass `num_envs=1` instead of 4, or .*ONNX"):
        load_exported(env_of(RNN), home / "rnn.ts")


def test_the_memory_of_one_environment_can_be_wiped(home: Path) -> None:
    env = env_of(RNN)
    setup = load_exported(env, home / "rnn.onnx")
    observations, _ = env.reset(seed=0)
    first = setup.policy(observations)
    setup.reset(torch.tensor([False, True, False, False]))
    second = setup.policy(observations)
    assert torch.equal(second[1], first[1])
    assert not torch.isclose(second, first)[[0, 2, 3]].any()


def test_an_exported_policy_is_deterministic(home: Path) -> None:
    with pytest.raises(UsageError, match=r"mlp\.ts: an exported policy is deterministic; `deterministic=False` needs"):
        load_policy(env_of(PENDULUM), None, home / "mlp.ts", deterministic=False)


def test_another_schema_is_refused_by_name(home: Path) -> None:
    with pytest.raises(UsageError, match=r"trained on .*-v0 with other observations: policy\.terms\.target_cue is mis"):
        load_exported(env_of(RNN), home / "mlp.ts")
    with pytest.raises(UsageError, match=r"other observations: policy\.history is 1 there, 3 here"):
        load_exported(env_of(PENDULUM, history_length=3), home / "mlp.onnx")
    terms = rl_cfg(PENDULUM, play=True).observations["policy"].terms
    with pytest.raises(UsageError, match=r"other observations: policy\.terms in another order: joint_pos, .* there, "):
        load_exported(env_of(PENDULUM, terms=dict(reversed(terms.items()))), home / "mlp.onnx")


def test_actions_that_mean_something_else_are_refused(home: Path) -> None:
    cfg = eval_cfg(rl_cfg(PENDULUM, play=True), 1)
    cfg.observations["policy"].terms["joint_vel"].scale = 3.0  # the file has its own
    load_exported(ManagerBasedRlEnv(cfg), home / "mlp.onnx")
    as_kind(cfg.actions["cart"], JointPositionActionCfg).scale = 5.0
    with pytest.raises(UsageError, match=r"scale 1, here 5: pass `env\.actions\.cart\.scale=1`$"):
        load_exported(ManagerBasedRlEnv(cfg), home / "mlp.onnx")


@pytest.mark.parametrize("suffix", [".ts", ".onnx"])
def test_what_is_no_exported_policy_is_refused(home: Path, tmp_path: Path, suffix: str) -> None:
    env, path = env_of(PENDULUM), tmp_path / f"policy{suffix}"
    with pytest.raises(UsageError, match="no such policy"):
        load_exported(env, path)
    path.write_bytes((home / f"mlp{suffix}").read_bytes()[:5000])
    with pytest.raises(UsageError, match=rf"needs policy\{suffix}\.metadata\.json beside it"):
        load_exported(env, path)
    beside = tmp_path / f"policy{suffix}.metadata.json"
    beside.write_text("{")
    with pytest.raises(UsageError, match="not JSON"):
        load_exported(env, path)
    right = json.loads((home / f"mlp{suffix}.metadata.json").read_text())
    untold = {key: value for key, value in right.items() if key != "task"}
    bad: list[Any] = [{"format": "onnx"}, [], untold, {**right, "obs_groups": []}, {**right, "format": "pickle"}]
    for wrong in bad:
        beside.write_text(json.dumps(wrong))
        with pytest.raises(UsageError, match="not the metadata of a policy"):
            load_exported(env, path)
    shutil.copy(home / f"mlp{suffix}.metadata.json", beside)
    with pytest.raises(UsageError, match=r"a damaged (torchscript|onnx) file"):
        load_exported(env, path)
    assert not any(group.raw for group in env.observation_manager.groups.values())
