"""Evaluation is unbiased, repeatable and says what the spec says."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from genelab import TASKS
from genelab.cli.main import run
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.managers import TerminationTermCfg
from genelab.rl import train_task
from genelab.rl.backends import InferenceSetup
from genelab.rl.evaluator import eval_cfg, evaluate

TASK = "GeneLab-Inverted-Pendulum-v0"
CHANCE, LONGEST = 0.05, 60


def fails_at_random(env: ManagerBasedRlEnv) -> Tensor:
    """Every step may be the last: lengths are geometric, cut at the time-out."""
    env.extras["is_success"] = env.episode_length_buf >= LONGEST
    return torch.rand(env.num_envs, generator=env.rng) < CHANCE


def random_lengths(num_envs: int) -> ManagerBasedRlEnv:
    cfg = TASKS.get(TASK).play_env
    cfg.terminations = {
        "time_out": cfg.terminations["time_out"],
        "chance": TerminationTermCfg(func=fails_at_random),
    }
    cfg.episode_length_s = LONGEST * 0.01
    return ManagerBasedRlEnv(eval_cfg(cfg, num_envs))


def still(env: ManagerBasedRlEnv) -> InferenceSetup:
    return InferenceSetup(policy=lambda observations: torch.zeros(env.num_envs, 1))


def true_length() -> tuple[float, float]:
    """Mean and standard deviation of min(geometric, LONGEST)."""
    keep = 1 - CHANCE
    chances = [CHANCE * keep ** (k - 1) for k in range(1, LONGEST)] + [keep ** (LONGEST - 1)]
    mean = sum(k * p for k, p in enumerate(chances, start=1))
    return mean, math.sqrt(sum((k - mean) ** 2 * p for k, p in enumerate(chances, start=1)))


@pytest.mark.parametrize(("num_envs", "episodes"), [(64, 100), (1024, 10), (16, 2000)])
def test_the_mean_length_is_unbiased(num_envs: int, episodes: int) -> None:
    """The first episodes to finish would be about half as long where there are many environments."""
    env = random_lengths(num_envs)
    mean, std = true_length()
    lengths = [n for seed in range(4) for n in evaluate(env, still(env), episodes=episodes, seed=seed).lengths]
    assert len(lengths) == 4 * episodes
    assert sum(lengths) / len(lengths) == pytest.approx(mean, abs=4 * std / math.sqrt(len(lengths)))


def test_success_is_that_of_the_last_step() -> None:
    env = random_lengths(64)
    result = evaluate(env, still(env), episodes=256, seed=0)
    assert result.successes == [length == LONGEST for length in result.lengths]


def test_two_evaluations_with_one_seed_are_identical() -> None:
    env = random_lengths(16)
    first, second, other = (evaluate(env, still(env), episodes=40, seed=seed) for seed in (3, 3, 4))
    assert (first.returns, first.lengths) == (second.returns, second.lengths)
    assert first.lengths != other.lengths


def test_endless_episodes_are_cut_and_ended_ones_reset() -> None:
    cfg: ManagerBasedRlEnvCfg = TASKS.get(TASK).env
    cfg.episode_length_s, cfg.auto_reset = 1e9, False
    judged = eval_cfg(cfg, 3)
    assert (judged.episode_length_s, judged.auto_reset, judged.scene.num_envs) == (30.0, True, 3)
    assert not judged.observations["policy"].enable_noise
    assert "push_cart" not in judged.events


def test_recurrent_state_is_reset_where_episodes_end() -> None:
    env = random_lengths(8)
    resets: list[Tensor | None] = []
    setup = InferenceSetup(policy=still(env).policy, reset=resets.append)
    result = evaluate(env, setup, episodes=8, seed=0)
    assert resets[0] is None
    assert sum(int(done.sum()) for done in resets[1:] if done is not None) >= len(result.lengths)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_task(TASK, num_envs=4, max_iterations=1, log_dir=tmp_path_factory.mktemp("run") / "run").checkpoint


def test_the_file_has_every_key_of_the_spec(
    checkpoint: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "eval.json"
    command = ["eval", TASK, str(checkpoint), "--num-envs", "4", "--episodes", "6", "--out", str(out)]
    assert run(command) == 0
    assert "success not published by this task" in capfd.readouterr().out
    report = json.loads(out.read_text())
    assert (report["task"], report["checkpoint"], report["num_episodes"]) == (TASK, str(checkpoint), 6)
    assert {"return_mean", "return_std", "length_mean", "success_rate"} <= report["metrics"].keys()
    assert report["metrics"]["success_rate"] is None
    assert (report["seed"], report["deterministic"]) == (0, True)
    assert report["wall_clock_seconds"] > 0
    assert report["evaluated_at"].endswith("+00:00")


def test_stochastic_differs_and_repeats_overrides_apply(checkpoint: Path, tmp_path: Path) -> None:
    def returns(*words: str) -> float:
        out = tmp_path / "eval.json"
        assert run(["eval", TASK, str(checkpoint), "--episodes", "4", "--out", str(out), *words]) == 0
        return json.loads(out.read_text())["metrics"]["return_mean"]

    assert returns() == returns()
    assert returns("--stochastic") != returns()
    assert returns("--stochastic") == returns("--stochastic")
    assert returns("env.rewards.alive.weight=2") > returns()


def test_wrong_words_are_one_line_and_leave_no_file(
    checkpoint: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words, message in (
        ([TASK, "nothing.pt"], "nothing.pt: no such checkpoint"),
        ([TASK, str(checkpoint), "--out", "no/where.json"], "--out: there is no directory no"),
        (["GeneLab-Double-Inverted-Pendulum-v0", str(checkpoint)], "with other observations"),
    ):
        assert run(["eval", *words]) == 2
        err = capfd.readouterr().err
        assert message in err
        assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
