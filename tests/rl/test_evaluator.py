"""Evaluation is unbiased, repeatable and says what the spec says."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from genelab.cli.main import run
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, rl_cfg
from genelab.errors import GenelabError
from genelab.managers import MetricTermCfg, Probe, RewardTermCfg, TerminationTermCfg
from genelab.rl import evaluate_task, train_task
from genelab.rl.backends import InferenceSetup
from genelab.rl.evaluation import Evaluation, difference
from genelab.rl.evaluator import EvalSettings, EvalSpec, evaluate
from genelab.rl.policies import load_policy
from genelab.rl.world import eval_cfg, eval_defaults, eval_needs, policy_on_task
from genelab.scene import GeneratedTerrain, TerrainGeneratorCfg
from genelab.scene.terrains import FlatCfg
from genelab.sim import ENGINES, ModelError
from genelab.statistics import mean_interval
from tests.narrow import as_kind, present

TASK = "GeneLab-Inverted-Pendulum-v0"
CHANCE, LONGEST = 0.05, 60


def fails_at_random(env: ManagerBasedRlEnv) -> Tensor:
    """Every step may be the last: lengths are geometric, cut at the time-out."""
    env.extras["is_success"] = env.episode_length_buf >= LONGEST
    return torch.rand(env.num_envs, generator=env.rng) < CHANCE


def random_lengths(num_envs: int) -> ManagerBasedRlEnv:
    cfg = rl_cfg(TASK, play=True)
    cfg.terminations = {
        "time_out": cfg.terminations["time_out"],
        "chance": TerminationTermCfg(func=fails_at_random),
    }
    cfg.episode_length_s = LONGEST * 0.01
    return ManagerBasedRlEnv(eval_cfg(cfg, num_envs))


def pendulum(num_envs: int) -> ManagerBasedRlEnv:
    return ManagerBasedRlEnv(eval_cfg(rl_cfg(TASK, play=True), num_envs))


def still(env: ManagerBasedRlEnv) -> InferenceSetup:
    return InferenceSetup(policy=lambda observations: torch.zeros(env.num_envs, 1))


def true_length() -> tuple[float, float]:
    """Mean and standard deviation of min(geometric, LONGEST)."""
    keep = 1 - CHANCE
    chances = [CHANCE * keep ** (k - 1) for k in range(1, LONGEST)] + [keep ** (LONGEST - 1)]
    mean = sum(k * p for k, p in enumerate(chances, start=1))
    return mean, math.sqrt(sum((k - mean) ** 2 * p for k, p in enumerate(chances, start=1)))


@pytest.mark.parametrize(("num_envs", "episodes"), [(64, 100), (1024, 10), (16, 200)])
def test_the_mean_length_is_unbiased(num_envs: int, episodes: int) -> None:
    """The first episodes to finish would be about half as long where there are many environments."""
    env = random_lengths(num_envs)
    mean, std = true_length()
    lengths = [n for seed in range(4) for n in evaluate(env, still(env), episodes=episodes, seed=seed).lengths]
    assert len(lengths) == 4 * episodes
    assert sum(lengths) / len(lengths) == pytest.approx(mean, abs=4 * std / math.sqrt(len(lengths)))


def test_only_the_first_episodes_of_each_environment_count() -> None:
    """Environment i ends every i + 1 steps: the fast ones must not fill the places of the slow ones."""
    cfg = rl_cfg(TASK, play=True)
    cfg.terminations = {"clock": TerminationTermCfg(func=every_so_often)}
    cfg.rewards = {"index": RewardTermCfg(func=index, weight=100.0)}
    cfg.metrics = {
        "age": MetricTermCfg(func=age),
        "last_age": MetricTermCfg(func=age, reduce="last"),
        "max_age": MetricTermCfg(func=age, reduce="max"),
    }
    env = ManagerBasedRlEnv(eval_cfg(cfg, 4))
    result = evaluate(env, still(env), episodes=10, seed=0)
    assert result.lengths == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
    assert result.returns == [0, 2, 6, 12, 0, 2, 6, 12, 0, 2]  # steps × index
    assert result.rewards == {"index": pytest.approx(4.2)}
    # 1, 2, 3 and 4 steps have the mean ages 1, 1.5, 2 and 2.5.
    assert result.task_metrics == {"age": pytest.approx(1.65), "last_age": 2.3, "max_age": 2.3}
    assert result.terminations == {"clock": 1.0, "evaluation_time_out": 0.0}


def test_it_tells_how_many_episodes_are_done() -> None:
    env, seen = random_lengths(4), []
    evaluate(env, still(env), episodes=7, seed=0, show=lambda *told: seen.append(told))
    assert all(what == "episodes" and total == 8 for what, _, total in seen)
    counts = [done for _, done, _ in seen]
    assert counts == sorted(counts)
    assert counts[-1] == 8


def every_so_often(env: ManagerBasedRlEnv) -> Tensor:
    return env.episode_length_buf > torch.arange(env.num_envs)


def index(env: ManagerBasedRlEnv) -> Tensor:
    return torch.arange(env.num_envs, dtype=env.dtype)


def age(env: ManagerBasedRlEnv) -> Tensor:
    return env.episode_length_buf.to(env.dtype)


GRID = TerrainGeneratorCfg(
    sub_terrains={name: FlatCfg() for name in ("stairs", "boxes", "slope")},
    columns=("stairs",) * 4 + ("boxes",) * 4 + ("slope",) * 2,
    cell_size=1.0,
    border_width=0.0,
    footprint=0.4,
    rows=10,
    max_init_level=None,
)


def cell_paid(env: ManagerBasedRlEnv) -> Tensor:
    """10 × the column plus the level of the ground that the episode began on."""
    terrain = as_kind(env.scene.terrain, GeneratedTerrain)
    return (10.0 * terrain.kinds + terrain.levels).to(env.dtype)


def on_grid(num_envs: int, terrain: TerrainGeneratorCfg = GRID) -> ManagerBasedRlEnv:
    """Episodes of one step, which pay for their cell."""
    cfg = rl_cfg(TASK, play=True)
    cfg.scene.terrain = terrain
    cfg.episode_length_s = 0.01
    cfg.rewards = {"cell": RewardTermCfg(func=cell_paid, weight=100.0)}
    return ManagerBasedRlEnv(eval_cfg(cfg, num_envs))


@pytest.mark.parametrize(("num_envs", "episodes"), [(64, 100), (100, 100), (7, 100), (200, 200), (100, 300)])
def test_episodes_are_dealt_evenly_to_the_cells_of_the_ground(num_envs: int, episodes: int) -> None:
    """With 64 environments the first ones, on stairs, had a second episode."""
    env = on_grid(num_envs)
    found = evaluate(env, still(env), episodes=episodes, seed=0)
    assert sorted(found.returns) == pytest.approx(sorted(list(range(100)) * (episodes // 100)))
    ground = present(found.by_ground())
    assert {kind: one["episodes"] for kind, one in ground["kinds"].items()} == {
        "stairs": 0.4 * episodes,
        "boxes": 0.4 * episodes,
        "slope": 0.2 * episodes,
    }
    assert ground["kinds"]["slope"]["return_mean"] == pytest.approx(89.5)
    assert list(ground["levels"]) == [str(level) for level in range(10)]
    assert ground["levels"]["3"]["return_mean"] == pytest.approx(48.0)
    again = evaluate(env, still(env), episodes=episodes, seed=0)
    assert again.returns == found.returns  # the deal begins with the evaluation
    env.close()


def test_ten_episodes_see_easy_and_hard_cells_of_each_kind() -> None:
    """That many has an evaluation while training; it had stairs on the easiest levels only."""
    env = on_grid(10)
    found = evaluate(env, still(env), episodes=10, seed=0)
    assert sorted(value // 10 for value in found.returns) == list(range(10))
    assert sorted(round(value) % 10 for value in found.returns) == list(range(10))
    for kind in ("stairs", "boxes", "slope"):
        levels = [cell.level for cell in present(found.cells) if cell.kind == kind]
        assert min(levels) < 5 <= max(levels)
    env.close()


def test_the_interval_counts_the_spread_within_kinds_of_ground() -> None:
    env = on_grid(100)
    found = evaluate(env, still(env), episodes=100, seed=0)
    within = present(found.intervals()["return_ci95"])
    assert within == mean_interval(found.returns, found.kinds)
    across = present(mean_interval(found.returns))
    assert within[1] - within[0] < 0.6 * (across[1] - across[0])
    env.close()


def test_terminations_are_shares_of_the_episodes() -> None:
    env = random_lengths(64)
    result = evaluate(env, still(env), episodes=256, seed=0)
    lost = sum(length < LONGEST for length in result.lengths) / 256
    assert lost <= result.terminations["chance"] <= lost + 4 * CHANCE
    assert result.terminations["time_out"] == 1 - lost


def test_success_is_that_of_the_last_step() -> None:
    env = random_lengths(64)
    result = evaluate(env, still(env), episodes=256, seed=0)
    assert result.successes == [length == LONGEST for length in result.lengths]
    rate, interval = result.summary()["success_rate"], result.intervals()["success_ci95"]
    assert interval is not None
    low, high = interval
    assert low < rate < high


def test_a_task_without_success_has_none() -> None:
    env = pendulum(2)
    result = evaluate(env, still(env), episodes=2, seed=0)
    assert (result.summary()["success_rate"], result.intervals()["success_ci95"]) == (None, None)


def test_two_evaluations_with_one_seed_are_identical() -> None:
    env = random_lengths(16)
    first, second, other = (evaluate(env, still(env), episodes=40, seed=seed) for seed in (3, 3, 4))
    assert (first.returns, first.lengths) == (second.returns, second.lengths)
    assert first.lengths != other.lengths


def test_a_config_made_for_watching_is_made_fit_to_judge() -> None:
    cfg: ManagerBasedRlEnvCfg = rl_cfg(TASK)
    cfg.episode_length_s, cfg.auto_reset = 1e9, False
    assert cfg.observations["policy"].enable_noise
    judged = eval_cfg(cfg, 3)
    assert (judged.episode_length_s, judged.auto_reset, judged.scene.num_envs) == (30.0, True, 3)
    assert not judged.observations["policy"].enable_noise
    assert "push_cart" in cfg.events
    assert [name for name, event in judged.events.items() if event.mode == "interval"] == []
    assert cfg.episode_length_s == 1e9
    asked = eval_defaults(cfg)
    asked.episode_length_s, asked.auto_reset, asked.simulation.vis = 40.0, False, True
    eval_needs(asked, 3)
    assert (asked.episode_length_s, asked.auto_reset, asked.simulation.vis) == (40.0, True, False)


def test_an_episode_that_nothing_ends_takes_30_s() -> None:
    cfg = rl_cfg(TASK, play=True)
    cfg.terminations, cfg.episode_length_s, cfg.auto_reset = {}, 1e9, False
    cfg.decimation = 100  # control steps of half a second
    env = ManagerBasedRlEnv(eval_cfg(cfg, 2))
    assert evaluate(env, still(env), episodes=4, seed=0).lengths == [60] * 4


def test_recurrent_state_is_reset_where_episodes_end() -> None:
    """A policy that counts its steps since it was told to forget counts those of the episode."""
    env = pendulum(4)
    count = torch.full((4,), 7.0)
    ages: list[Tensor] = []

    def act(observations: dict[str, Tensor]) -> Tensor:
        ages.append(count - env.episode_length_buf)
        count.add_(1)
        return torch.zeros(4, 1)

    def forget(dones: Tensor | None) -> None:
        count[slice(None) if dones is None else dones] = 0

    evaluate(env, InferenceSetup(policy=act, reset=forget), episodes=12, seed=0)
    assert len(ages) > 100
    assert not torch.stack(ages).any()


def test_episodes_that_are_all_the_same_say_so_and_have_no_interval() -> None:
    """The mean was rounded to single precision, and its interval of width 0 did not hold it."""
    same = Evaluation(
        returns=[141.9044765 + i * 1e-9 for i in range(100)], lengths=[1500] * 100, successes=[True] * 100
    )
    assert same.identical
    assert same.intervals() == {"return_ci95": None, "length_ci95": None, "success_ci95": None}
    assert same.summary()["return_mean"] == pytest.approx(141.9044765, abs=1e-7)
    other = Evaluation(returns=[1.0, 1.001], lengths=[9, 9], successes=None)
    assert not other.identical
    low, high = present(other.intervals()["return_ci95"])
    assert low < other.summary()["return_mean"] < high
    assert other.intervals()["length_ci95"] is None


def test_evaluations_are_compared_episode_by_episode() -> None:
    """Returns that differ by far more between episodes than between engines."""
    first = Evaluation(returns=[10.0, 20.0, 30.0, 40.0], lengths=[9] * 4, successes=None, places=[0, 1, 2, 3])
    second = Evaluation(returns=[32.0, 11.0, 21.0], lengths=[8] * 3, successes=None, places=[2, 0, 1])
    found = difference(first, second)
    assert (found["pairs"], found["return_mean"]) == (3, pytest.approx(4 / 3))
    # 1, 1 and 2: standard deviation 0.577, over three pairs ± 4.303 · 0.577 / √3
    assert present(found["return_ci95"]) == pytest.approx((4 / 3 - 1.434, 4 / 3 + 1.434), abs=1e-3)
    assert (found["length_mean"], found["length_ci95"]) == (-1.0, None)  # in all pairs
    assert (found["success_rate"], found["success_ci95"]) == (None, None)
    apart = difference(first, Evaluation(returns=[1.0], lengths=[1], successes=None, places=[9]))
    assert (apart["pairs"], apart["return_mean"], apart["return_ci95"]) == (0, None, None)


def test_overrides_of_what_an_evaluation_sets_are_in_force(checkpoint: Path, tmp_path: Path) -> None:
    """They were recorded, and replaced by noise off and 30 s."""
    changes = {"env.observations.policy.enable_noise": "true", "env.episode_length_s": "31"}
    with policy_on_task(TASK, checkpoint, num_envs=2, overrides=changes) as (env, _):
        assert env.observation_manager.groups["policy"].is_noisy
        assert env.max_episode_length == 3100
    out = tmp_path / "eval.json"
    words = ["eval", TASK, str(checkpoint), "--num-envs", "4", "--episodes", "4", "--out", str(out)]

    def mean(*more: str) -> tuple[float, bool]:
        assert run([*words, *more]) == 0
        report = json.loads(out.read_text())
        return report["metrics"]["return_mean"], report["observation_noise"]

    quiet, noisy = mean(), mean("--published-noise")
    assert (quiet[1], noisy[1]) == (False, True)
    assert quiet[0] != noisy[0]
    assert mean("env.observations.policy.enable_noise=true") == noisy
    assert mean("--published-noise", "env.observations.policy.enable_noise=false") == quiet


def test_noise_is_that_of_the_training_observations() -> None:
    train, play = rl_cfg(TASK), rl_cfg(TASK, play=True)
    for term in play.observations["policy"].terms.values():
        term.noise = None
    noisy = eval_defaults(play, train)
    assert noisy.observations["policy"].enable_noise
    assert (
        noisy.observations["policy"].terms["joint_pos"].noise == train.observations["policy"].terms["joint_pos"].noise
    )
    assert not noisy.observations["critic"].enable_noise


def test_max_steps_ends_it_and_says_what_that_does() -> None:
    env = random_lengths(16)
    said: list[str] = []
    result = evaluate(env, still(env), episodes=32, seed=0, max_steps=20, notify=said.append)
    assert len(result.returns) < 32
    assert said == [
        f"only {len(result.returns)} of 32 episodes ended within `max_steps=20`: short ones count for too much"
    ]
    upright = pendulum(1)
    with pytest.raises(GenelabError, match="no episode ended in the steps allowed: raise `max_steps`"):
        evaluate(upright, still(upright), episodes=1, seed=0, max_steps=1)


def test_a_return_that_is_no_number_is_an_error() -> None:
    cfg = rl_cfg(TASK, play=True)
    cfg.episode_length_s = 0.02
    cfg.rewards = {"broken": RewardTermCfg(func=broken, weight=1.0)}
    env = ManagerBasedRlEnv(eval_cfg(cfg, 4))
    with pytest.raises(GenelabError, match="not a finite number in environment 2: reward 'broken'"):
        evaluate(env, still(env), episodes=8, seed=0)


def test_a_metric_that_is_no_number_does_not_cost_the_evaluation() -> None:
    cfg = rl_cfg(TASK, play=True)
    cfg.episode_length_s = 0.02
    cfg.metrics = {"broken": MetricTermCfg(func=broken), "age": MetricTermCfg(func=age)}
    env = ManagerBasedRlEnv(eval_cfg(cfg, 4))
    assert evaluate(env, still(env), episodes=8, seed=0).task_metrics == {"broken": None, "age": 1.5}


def broken(env: ManagerBasedRlEnv) -> Tensor:
    value = torch.zeros(env.num_envs)
    value[2] = math.nan if env.common_step_counter == 3 else 0.0
    return value


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_task(TASK, num_envs=4, max_iterations=1, log_dir=tmp_path_factory.mktemp("run") / "run").checkpoint


def test_the_file_has_every_key_of_the_spec(
    checkpoint: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "eval.json"
    command = ["eval", TASK, str(checkpoint), "--num-envs", "4", "--episodes", "6", "--out", str(out)]
    assert run(command) == 0
    text = capfd.readouterr().out
    assert f"{TASK}: 6 episodes on mujoco, deterministic, seed 0" in text
    assert re.search(r"success\s+│ not published", text)
    assert re.search(r"ended by pole_fell\s+│ 1.000", text)
    report = json.loads(out.read_text())
    assert (report["task"], report["checkpoint"]) == (TASK, str(checkpoint))
    assert (report["num_episodes"], report["episodes_requested"]) == (6, 6)
    metrics = report["metrics"]
    assert {"return_mean", "return_std", "length_mean", "success_rate"} <= metrics.keys()
    assert (metrics["success_rate"], metrics["success_ci95"]) == (None, None)
    assert metrics["return_ci95"][0] < metrics["return_mean"] < metrics["return_ci95"][1]
    assert metrics["length_ci95"][0] < metrics["length_mean"] < metrics["length_ci95"][1]
    assert (report["schema_version"], report["identical_episodes"], report["observation_noise"]) == (2, False, False)
    assert sum(report["rewards"].values()) == pytest.approx(metrics["return_mean"], rel=1e-5)
    assert report["terminations"] == {"time_out": 0.0, "cart_out_of_bounds": 0.0, "pole_fell": 1.0}
    assert (report["seed"], report["deterministic"]) == (0, True)
    assert (report["num_envs"], report["engine"], report["max_episode_length_s"]) == (4, "mujoco", 10.0)
    assert (report["physics"], report["physics_dt"], report["decimation"]) == ("fine", 0.005, 2)
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


def test_a_run_directory_stands_for_its_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "eval.json"
    assert run(["eval", TASK, str(checkpoint.parent), "--episodes", "2", "--out", str(out)]) == 0
    assert json.loads(out.read_text())["checkpoint"] == str(checkpoint)


def test_wrong_words_are_one_line_and_leave_no_file(
    checkpoint: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("genelab.rl.evaluator.evaluate", None)  # all of this is found before anything runs
    Path("taken").mkdir()
    os.mkfifo("pipe")
    for words, message in (
        ([TASK, "nothing.pt"], "nothing.pt: no such checkpoint"),
        ([TASK, str(checkpoint), "--best"], "--best chooses among the checkpoints of a run"),
        ([TASK, str(checkpoint), "--out", "/proc/no/where.json"], "--out: cannot write /proc/no/where.json"),
        ([TASK, str(checkpoint), "--out", "taken"], "--out: taken is a directory; give a file"),
        ([TASK, str(checkpoint), "--out", "pipe"], "--out: pipe is no regular file"),
        (
            [TASK, str(checkpoint), "env.scene.num_envs=3"],
            "env.scene.num_envs: an evaluation decides this itself: pass",
        ),
        ([TASK, str(checkpoint), "--env.seed", "3"], "env.seed: an evaluation decides this itself: pass --seed"),
        ([TASK, str(checkpoint), "--env.auto-reset", "false"], "env.auto_reset: an evaluation decides this itself"),
        ([TASK, str(checkpoint), "env.simulation.vis=true"], "env.simulation.vis: an evaluation decides this itself"),
        ([TASK, str(checkpoint), "agent.clip_actions=2"], "agent.clip_actions: an evaluation takes the agent from"),
        ([TASK, str(checkpoint), "env.events.push_cart.mode=reset"], "env.events"),
        (["Genelab-Tracking-Flat-Unitree-G1-v0", "pretrained", "--published-noise"], "leave out --published-noise"),
        ([TASK, str(checkpoint), "--vis"], "No such option '--vis'"),
        ([TASK, str(checkpoint), "--out", "/proc/eval.json"], "--out: cannot write /proc/eval.json"),
        (["GeneLab-Double-Inverted-Pendulum-v0", str(checkpoint)], "with other observations"),
        (
            [TASK, str(checkpoint), "--engine", "bullet"],
            "'bullet' is not one of 'auto', 'mujoco', 'genesis', 'warp', 'all'",
        ),
    ):
        assert run(["eval", *words]) == 2
        err = capfd.readouterr().err
        assert message in err
        assert len(err.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == [tmp_path / "pipe", tmp_path / "taken"]
    assert Path("pipe").is_fifo()
    assert run(["play", TASK, "--engine", "all"]) == 2
    assert "'all' is not one of 'auto', 'mujoco', 'genesis', 'warp'" in capfd.readouterr().err


def test_all_engines_are_compared_in_one_file(
    checkpoint: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two, with an engine that pays 10 less in the place of Genesis."""
    monkeypatch.setattr("genelab.rl.evaluator._evaluate", fake_evaluation)
    monkeypatch.setattr(ENGINES, "runnable", lambda: (["mujoco", "genesis"], {}))
    out = tmp_path / "eval.json"
    assert run(["eval", TASK, str(checkpoint), "--engine", "all", "--out", str(out)]) == 0
    text = capfd.readouterr().out
    assert re.search(r"return\s+│ 40.000 ± 1.000\s+│ 30.000 ± 1.000\s+│ -10.000", text)
    assert re.search(r"error\s+│ 0.5000\s+│ 0.7500\s+│ \+0.2500", text)
    assert "return, genesis minus mujoco, over 4 pairs of episodes: -10.000 in each" in text
    report = json.loads(out.read_text())
    assert (report["task"], report["checkpoint"]) == (TASK, str(checkpoint))
    assert [one["engine"] for one in report["engines"].values()] == ["mujoco", "genesis"] == list(report["engines"])
    assert report["not_run"] == []
    assert report["difference"] == {
        "pairs": 4,
        "return_mean": -10.0,
        "return_ci95": None,
        "length_mean": 0.0,
        "length_ci95": None,
        "success_rate": None,
        "success_ci95": None,
        "task_metrics": {"error": 0.25},
    }


def test_more_than_two_engines_are_compared_with_the_first(
    checkpoint: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluation(spec: EvalSpec, *rest: object) -> tuple[dict[str, Any], Evaluation]:
        if spec.overrides["env.simulation.engine"] == "stiff":
            raise ModelError("the stiff engine cannot express joints")
        return fake_evaluation(spec)

    monkeypatch.setattr("genelab.rl.evaluator._evaluate", evaluation)
    names = ["mujoco", "stiff", "genesis", "third"]
    monkeypatch.setattr(ENGINES, "runnable", lambda: (names, {"far": "the far engine is not installed"}))
    out = tmp_path / "eval.json"
    assert run(["eval", TASK, str(checkpoint), "--engine", "all", "--out", str(out)]) == 0
    said = capfd.readouterr()
    assert "left out: the far engine is not installed" in said.err
    assert "left out: the stiff engine cannot express joints" in said.err
    assert "1 episodes on mujoco, genesis and third" in said.out
    assert re.search(r"error\s+│ 0.5000\s+│ 0.7500\s+│ 0.5000\s+│ \+0.2500\s+│ \+0.0000", said.out)
    assert "return, genesis minus mujoco, over 4 pairs of episodes: -10.000 in each" in said.out
    assert "return, third minus mujoco, over 4 pairs of episodes: +0.000 in each" in said.out
    report = json.loads(out.read_text())
    assert list(report["engines"]) == ["mujoco", "genesis", "third"]
    assert report["not_run"] == ["stiff", "far"]
    assert report["difference"] is None  # of two
    assert {name: one["return_mean"] for name, one in report["differences"].items()} == {"genesis": -10.0, "third": 0.0}


def test_what_one_engine_gave_is_kept_if_the_next_crashes(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(spec: EvalSpec, *rest: object) -> tuple[dict[str, Any], Evaluation]:
        if spec.overrides["env.simulation.engine"] == "genesis":
            raise KeyboardInterrupt
        return fake_evaluation(spec)

    monkeypatch.setattr("genelab.rl.evaluator._evaluate", crash)
    monkeypatch.setattr(ENGINES, "runnable", lambda: (["mujoco", "genesis"], {}))
    out = tmp_path / "eval.json"
    with pytest.raises(KeyboardInterrupt):
        evaluate_task(TASK, checkpoint, compare="engines", out=out)
    report = json.loads(out.read_text())
    assert report["engines"]["mujoco"]["metrics"]["return_mean"] == 40.0
    assert (list(report["engines"]), report["difference"], report["not_run"]) == (["mujoco"], None, ["genesis"])


class Sign(Probe):
    """Looks which way the cart goes, round after round."""

    name, seconds, rounds = "sign", 0.1, 3

    def __init__(self) -> None:
        self.steps: list[int] = []

    def begin(self, turn: int) -> None:
        self.steps.append(0)

    def step(self, step: int, terminated: torch.Tensor, truncated: torch.Tensor) -> None:
        self.steps[-1] += 1

    def end(self) -> None:
        self.steps.append(-1)

    def report(self) -> dict[str, Any]:
        return {"steps": self.steps}


def test_an_evaluation_builds_one_world_and_its_probes_take_turns_in_it(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, loaded = [], []

    class Counted(ManagerBasedRlEnv):
        def __init__(self, *args: Any, **options: Any) -> None:
            built.append(self)
            super().__init__(*args, **options)

    def load(*args: Any, **options: Any) -> InferenceSetup:
        loaded.append(args)
        return load_policy(*args, **options)

    monkeypatch.setattr("genelab.rl.world.ManagerBasedRlEnv", Counted)
    monkeypatch.setattr("genelab.rl.world.load_policy", load)
    monkeypatch.setattr("genelab.rl.evaluator.probes_of", lambda env: {"sign_probe": Sign(), "other_probe": Sign()})
    report = evaluate_task(TASK, checkpoint, EvalSettings(episodes=2))
    steps = round(0.1 / (report["physics_dt"] * report["decimation"]))
    assert report["sign_probe"] == report["other_probe"] == {"steps": [steps, steps, steps, -1]}
    assert (len(built), len(loaded), report["num_envs"]) == (1, 1, 2)


def test_a_probe_that_would_take_too_long_is_left_out_with_a_remark(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sign, "rounds", 49)
    monkeypatch.setattr("genelab.rl.evaluator.probes_of", lambda env: {"sign_probe": Sign()})
    said: list[str] = []
    report = evaluate_task(TASK, checkpoint, EvalSettings(episodes=2), notify=said.append)
    assert "sign_probe" not in report
    assert said == ["no sign probe: 2 environments are too few; 3 would do"]


def test_a_policy_of_one_robot_is_not_probed(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = SimpleNamespace(name="velocity", varies_models=False)
    monkeypatch.setattr("genelab.rl.evaluator.probes_of", lambda env: {"velocity_probe": probe})
    monkeypatch.setattr("genelab.rl.evaluator.acts_alone", lambda path: True)
    said: list[str] = []
    report = evaluate_task(TASK, checkpoint, EvalSettings(episodes=1), notify=said.append)
    assert "velocity_probe" not in report
    assert said == ["no velocity probe: a recurrent TorchScript policy acts for one robot; export it as ONNX"]


def fake_evaluation(spec: EvalSpec, *rest: object) -> tuple[dict[str, Any], Evaluation]:
    engine = spec.overrides["env.simulation.engine"]
    mean = {"genesis": 30.0}.get(engine, 40.0)
    metrics = {"return_mean": mean, "length_mean": 9.0, "success_rate": None}
    intervals = {"return_ci95": (mean - 1, mean + 1), "length_ci95": None, "success_ci95": None}
    error = {"genesis": 0.75}.get(engine, 0.5)
    returns = [mean - 1.5, mean - 0.5, mean + 0.5, mean + 1.5]
    found = Evaluation(
        returns=returns, lengths=[9] * 4, successes=None, places=[0, 1, 2, 3], task_metrics={"error": error}
    )
    return {
        "task": spec.task,
        "checkpoint": str(spec.checkpoint),
        "engine": engine,
        "physics": "fine",
        "num_episodes": 1,
        "seed": 0,
        "metrics": metrics | intervals,
        "wall_clock_seconds": 1.0,
        "task_metrics": {"error": error},
        "terminations": {},
    }, found
