"""Training with rl_games: PPO learns, saves, loads and resumes, and leaves nothing of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from genelab import TASKS, TaskCfg
from genelab.config import Override, load_json
from genelab.envs import ManagerBasedRlEnv
from genelab.errors import UsageError
from genelab.rl import EvalOptions, TrainResult, resume_task, train_task
from genelab.rl.backends import select_backend
from genelab.rl.config import RlGamesAgentCfg
from genelab.rl.evaluator import eval_cfg, evaluate
from genelab.rl.monitor import TrainMonitor

PENDULUM = "GeneLab-Inverted-Pendulum-v0"
TASK = "Test-Rl-Games-v0"
TINY = {"horizon_length": 8, "hidden_dims": (16, 16)}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def train(
    name: str,
    timesteps: int = 24,
    num_envs: int = 4,
    agent: dict[str, Any] = TINY,
    symmetric: bool = False,
    **options: Any,
) -> TrainResult:
    cfg = TASKS.get(PENDULUM)
    if symmetric:
        del cfg.env.observations["critic"]
    cfg.agent = RlGamesAgentCfg(timesteps=timesteps, **agent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TASKS, "_entries", dict(TASKS._entries))
        TASKS.register(TASK, lambda: TaskCfg(env=cfg.env, play_env=cfg.play_env, agent=cfg.agent))
        return train_task(TASK, num_envs=num_envs, seed=3, log_dir=Path(name), **options)


def agent_of(result: TrainResult) -> RlGamesAgentCfg:
    return load_json(result.path / "params" / "agent.json", RlGamesAgentCfg)


def play_env(num_envs: int = 4) -> ManagerBasedRlEnv:
    return ManagerBasedRlEnv(eval_cfg(TASKS.get(PENDULUM).play_env, num_envs))


def return_of(result: TrainResult) -> float:
    env, agent = play_env(16), agent_of(result)
    return evaluate(env, select_backend(agent).load(env, agent, result.checkpoint), episodes=16, seed=0).return_mean


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, dict):
        return [tensor for part in value.values() for tensor in tensors(part)]
    return [value] if isinstance(value, torch.Tensor) else []


def same(first: Path, second: Path) -> bool:
    """Whether two files hold the same tensors."""
    a, b = (tensors(torch.load(path, weights_only=True)) for path in (first, second))
    return len(a) == len(b) > 0 and all(x.equal(y) for x, y in zip(a, b, strict=True))


@pytest.fixture
def learners(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The learners that were saved, the last one last."""
    found: list[Any] = []
    original = TrainMonitor.save

    def save(self: Any, stem: str) -> Path:
        found.append(self.learner)
        return original(self, stem)

    monkeypatch.setattr(TrainMonitor, "save", save)
    return found


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the environments answered to each step."""
    found: list[tuple[Any, ...]] = []
    original = ManagerBasedRlEnv.step

    def step(self: ManagerBasedRlEnv, action: torch.Tensor) -> Any:
        answer = original(self, action)
        found.append((answer[1].clone(), *answer[2:]))
        return answer

    monkeypatch.setattr(ManagerBasedRlEnv, "step", step)
    return found


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_loaded_policy_acts_exactly_as_the_live_one_did(
    symmetric: bool, learners: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    result = train("run", symmetric=symmetric)
    assert {path.name for path in Path.cwd().iterdir()} == {"run"}  # rl_games left nothing of its own
    assert capfd.readouterr().out == ""
    cfg = eval_cfg(TASKS.get(PENDULUM).play_env, 4)
    if symmetric:
        del cfg.observations["critic"]
    env, agent = ManagerBasedRlEnv(cfg), agent_of(result)
    live, other = learners[-1].inference(), RlGamesAgentCfg(timesteps=1)  # the checkpoint knows its networks
    loaded = [select_backend(cfg).load(env, cfg, result.checkpoint) for cfg in (agent, other)]
    random = select_backend(agent).load(env, agent, result.checkpoint, deterministic=False)
    with torch.inference_mode():
        observations, _ = env.reset(seed=0)
        for _ in range(20):
            action = live.policy(observations)
            assert action.shape == (4, 1)
            assert all(torch.equal(setup.policy(observations), action) for setup in loaded)
            assert not torch.equal(random.policy(observations), action)
            observations, *_ = env.step(action)


@pytest.mark.parametrize("symmetric", [False, True])
def test_an_interrupted_and_resumed_run_is_the_uninterrupted_one(symmetric: bool) -> None:
    whole = train("whole", timesteps=40, symmetric=symmetric)
    train("part", timesteps=14, symmetric=symmetric)  # two horizons of 8
    resumed = resume_task(Path("part"), max_iterations=40)
    assert resumed.env_steps == whole.env_steps == 40 * 4
    for name in ("model_final.pt", "resume.pt"):
        assert same(whole.path / name, resumed.path / name)


def test_in_training_evaluation_changes_nothing() -> None:
    plain = train("plain")
    watched = train("watched", evaluation=EvalOptions(every=1, episodes=2, num_envs=2))
    assert same(plain.checkpoint, watched.checkpoint)
    assert (watched.path / "best_model.pt").is_file()


def test_a_time_out_adds_a_value_and_a_failure_does_not(learners: list[Any], steps: list[tuple[Any, ...]]) -> None:
    train("run", timesteps=8, overrides=[Override("env.episode_length_s", "0.05")])
    reward, truncated = torch.stack([s[0] for s in steps]), torch.stack([s[2] & ~s[1] for s in steps])
    assert truncated.any()
    stored = learners[-1].agent.experience_buffer.tensor_dict["rewards"][..., 0]
    assert torch.equal(stored != reward, truncated)


def test_a_warm_start_begins_with_the_weights_of_the_checkpoint() -> None:
    first = train("first")
    fixed = {**TINY, "lr_schedule": "fixed", "learning_rate": 0.0}
    second = train("second", timesteps=1, agent=fixed, checkpoint=first.checkpoint)
    before, after = (torch.load(result.checkpoint, weights_only=True)["model"] for result in (first, second))
    assert torch.equal(before["a2c_network.mu.weight"], after["a2c_network.mu.weight"])
    with pytest.raises(UsageError, match=r"made with agent.hidden_dims \(16, 16\); here it is \(128, 128\)"):
        train("third", agent={}, checkpoint=first.checkpoint)


def test_a_checkpoint_of_another_width_is_refused_in_one_line() -> None:
    result = train("run")
    cfg = eval_cfg(TASKS.get(PENDULUM).play_env, 2)
    cfg.observations["policy"].terms["last_action"] = None
    env, agent = ManagerBasedRlEnv(cfg), agent_of(result)
    with pytest.raises(UsageError, match="last_action is 1 there, missing here") as caught:
        select_backend(agent).load(env, agent, result.checkpoint)
    assert "\n" not in str(caught.value)


def test_minibatches_must_divide_the_batch() -> None:
    with pytest.raises(UsageError, match=r"agent.num_minibatches: 5 equal parts cannot be made of the 32 steps"):
        train("run", agent={**TINY, "num_minibatches": 5})


def test_the_config_reads_back() -> None:
    assert agent_of(train("run")) == RlGamesAgentCfg(timesteps=24, seed=3, **TINY)


def test_a_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "rl_games" or ".backends.rl_games" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rl_games", None)
    with pytest.raises(UsageError, match=r"^rl_games is not installed: pip install 'genelab\[rl-games\]'$"):
        select_backend(RlGamesAgentCfg(timesteps=1))


def test_ppo_learns_to_balance() -> None:
    assert return_of(train("run", timesteps=360, num_envs=256, agent={})) > 10  # of 40; random actions earn 2, none 3
