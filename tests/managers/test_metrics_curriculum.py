"""Metrics are means over episodes; curricula see the episodes that ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv
from genelab.managers import CurriculumTermCfg, MetricTermCfg, RewardTermCfg, TerminationTermCfg

MakeEnv = Callable[..., ManagerBasedRlEnv]


def clock(env: ManagerBasedRlEnv) -> Tensor:
    """Control steps since the reset."""
    return env.episode_length_buf.to(env.dtype)


def index(env: ManagerBasedRlEnv) -> Tensor:
    return torch.arange(env.num_envs, dtype=env.dtype)


def ones(env: ManagerBasedRlEnv) -> Tensor:
    return torch.ones(env.num_envs, dtype=env.dtype)


def after(env: ManagerBasedRlEnv, steps: tuple[int, ...]) -> Tensor:
    return env.episode_length_buf >= torch.tensor(steps)


Log = list[tuple[list[int], list[int]]]
"""Environments, and how long their episodes were."""


def harder(env: ManagerBasedRlEnv, env_ids: Tensor, log: Log) -> float:
    """Double the price with every reset."""
    log.append((env_ids.tolist(), env.episode_length_buf[env_ids].tolist()))
    env.reward_manager.weights["one"] *= 2
    return env.reward_manager.weights["one"]


def levels(env: ManagerBasedRlEnv, env_ids: Tensor) -> dict[str, float]:
    return {"mean": 1.5, "max": 3.0}


def silent(env: ManagerBasedRlEnv, env_ids: Tensor) -> None:
    return None


def ends(*steps: int) -> dict[str, TerminationTermCfg]:
    return {"end": TerminationTermCfg(func=after, params={"steps": steps})}


def step(env: ManagerBasedRlEnv) -> tuple[Tensor, dict[str, Any]]:
    _, reward, _, _, info = env.step(torch.zeros(env.num_envs, env.action_dim))
    return reward, info.get("log", {})


def test_a_metric_is_the_mean_over_the_episodes_that_ended(make_env: MakeEnv) -> None:
    metrics = {"clock": MetricTermCfg(func=clock), "index": MetricTermCfg(func=index)}
    env = make_env(metrics=metrics, terminations=ends(2, 3, 99, 3))
    env.reset()
    assert step(env)[1] == {}
    log = step(env)[1]
    assert log["Metrics/clock"].item() == pytest.approx((1 + 2) / 2)
    assert log["Metrics/index"].item() == 0.0
    log = step(env)[1]
    assert log["Metrics/clock"].item() == pytest.approx((1 + 2 + 3) / 3)
    assert log["Metrics/index"].item() == pytest.approx((1 + 3) / 2)
    assert set(log) == {"Metrics/clock", "Metrics/index", "Episode_Termination/end"}
    log = step(env)[1]  # the first environment's second episode started from zero
    assert log["Metrics/clock"].item() == pytest.approx((1 + 2) / 2)


def zigzag(env: ManagerBasedRlEnv) -> Tensor:
    """−1, −3, −2 in the first steps of an episode, then lower."""
    return torch.tensor([0.0, -1.0, -3.0, -2.0, -9.0])[env.episode_length_buf.clamp(max=4)]


def test_an_episode_is_its_mean_its_last_or_its_largest_value(make_env: MakeEnv) -> None:
    metrics = {
        "mean": MetricTermCfg(func=zigzag),
        "last": MetricTermCfg(func=zigzag, reduce="last"),
        "max": MetricTermCfg(func=zigzag, reduce="max"),
    }
    env = make_env(metrics=metrics, terminations=ends(2, 3, 99, 3))
    env.reset()
    assert torch.equal(env.metrics_manager.finished, torch.zeros(3, 4).double())
    step(env)
    log = step(env)[1]
    assert [log[f"Metrics/{name}"].item() for name in metrics] == [-2.0, -3.0, -1.0]
    log = step(env)[1]
    assert [log[f"Metrics/{name}"].item() for name in metrics] == [-2.0, -2.0, -1.0]
    step(env)  # the first environment has ended again; the others keep what they finished last
    expected = [[-2.0, -2.0, 0.0, -2.0], [-3.0, -2.0, 0.0, -2.0], [-1.0, -1.0, 0.0, -1.0]]
    assert env.metrics_manager.finished.tolist() == expected


def test_every_episode_starts_anew(make_env: MakeEnv) -> None:
    """A number that only falls is largest in an episode's first step."""
    metrics = {name: MetricTermCfg(func=falling, reduce=name) for name in ("mean", "last", "max")}
    env = make_env(metrics=metrics, terminations=ends(2, 2, 2, 2))
    env.reset(seed=0)
    for _ in range(4):
        step(env)
    assert env.metrics_manager.finished[:, 0].tolist() == [-3.5, -4.0, -3.0]


def falling(env: ManagerBasedRlEnv) -> Tensor:
    return torch.full((env.num_envs,), -float(env.common_step_counter))


def test_the_mean_is_over_the_steps_that_were_made(make_env: MakeEnv) -> None:
    """Training starts the first episodes at random ages."""
    env = make_env(metrics={"index": MetricTermCfg(func=index)}, terminations=ends(9, 9, 9, 9))
    env.reset()
    env.episode_length_buf[:] = 7
    step(env)
    assert step(env)[1]["Metrics/index"].item() == (0 + 1 + 2 + 3) / 4


def test_a_curriculum_sees_the_ended_episodes_and_changes_the_task(make_env: MakeEnv) -> None:
    seen: Log = []
    env = make_env(
        rewards={"one": RewardTermCfg(func=ones, weight=1.0)},
        curriculum={"price": CurriculumTermCfg(func=harder, params={"log": seen})},
        terminations=ends(99, 2, 99, 2),
    )
    env.reset()
    assert seen == [([0, 1, 2, 3], [0, 0, 0, 0])]
    assert step(env)[0].tolist() == pytest.approx([2 * 0.02] * 4)
    reward, log = step(env)
    assert reward.tolist() == pytest.approx([2 * 0.02] * 4)
    assert seen[1:] == [([1, 3], [2, 2])]
    assert log["Curriculum/price"] == 4.0
    assert step(env)[0].tolist() == pytest.approx([4 * 0.02] * 4)


def test_what_a_curriculum_returns_is_logged_by_name(make_env: MakeEnv) -> None:
    curriculum = {"terrain": CurriculumTermCfg(func=levels), "quiet": CurriculumTermCfg(func=silent)}
    env = make_env(curriculum=curriculum, terminations=ends(1, 1, 1, 1))
    env.reset()
    log = {key: value for key, value in step(env)[1].items() if key.startswith("Curriculum")}
    assert log == {"Curriculum/terrain/mean": 1.5, "Curriculum/terrain/max": 3.0}
