"""Episodes as they end."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from genelab.cli.main import run
from genelab.envs import StepResult
from genelab.rl.episodes import Episodes

CPU = torch.device("cpu")


def step(reward: Tensor, done: Tensor, **info: Any) -> StepResult:
    return StepResult({}, reward, done, torch.zeros_like(done), info)


def test_what_is_logged_is_the_mean_over_episodes_not_over_steps() -> None:
    """One failure with an error of 1.0, later 255 time-outs with 0.1."""
    episodes = Episodes(num_envs=256, device=CPU)
    first = torch.zeros(256, dtype=torch.bool)
    first[7] = True
    nothing = torch.zeros(256)
    episodes.add(step(nothing, first, log={"Metrics/error": torch.tensor(1.0), "Curriculum/level": 2.0}))
    episodes.add(step(nothing, torch.zeros_like(first)))
    episodes.add(step(nothing, ~first, log={"Metrics/error": torch.tensor(0.1)}))
    assert episodes.drain() == pytest.approx({"Metrics/error": (1.0 + 255 * 0.1) / 256, "Curriculum/level": 2.0})
    assert episodes.drain() == {}


def test_an_environment_that_does_not_restart_has_one_episode_until_it_is() -> None:
    episodes = Episodes(num_envs=2, device=CPU, restarts=False)
    for done in ([False, False], [True, False], [True, False], [False, True], [True, True]):
        episodes.add(step(torch.ones(2), torch.tensor(done)))
    assert [(episode.total, episode.length) for episode in episodes.ended] == [(2.0, 2), (4.0, 4)]
    episodes.restart()
    episodes.add(step(torch.ones(2), torch.tensor([True, True])))
    assert [episode.length for episode in episodes.ended] == [2, 4, 1, 1]


def test_the_first_episodes_of_all_environments_come_before_the_second_ones() -> None:
    """Environment 0 ends after every step, environment 1 after the third."""
    episodes = Episodes(num_envs=2, device=CPU, quota=2, details=lambda: torch.tensor([[0.5, 1.5]]))
    for i in range(6):
        flags = torch.tensor([True, i % 3 == 2])
        episodes.add(step(torch.tensor([1.0, 2.0]), flags, is_success=flags))
    assert episodes.full
    assert [tuple(episode) for episode in episodes.first()] == [
        (0, 0, 1.0, 1, True, (0.5,)),
        (0, 1, 6.0, 3, True, (1.5,)),
        (1, 0, 1.0, 1, True, (0.5,)),
        (1, 1, 6.0, 3, True, (1.5,)),
    ]
    assert [episode.environment for episode in episodes.first(3)] == [0, 1, 0]


def test_only_the_last_episodes_are_kept_where_that_is_asked() -> None:
    episodes = Episodes(num_envs=4, device=CPU, keep=3)
    for reward in (1.0, 2.0):
        episodes.add(step(torch.full((4,), reward), torch.ones(4, dtype=torch.bool)))
    assert [(episode.environment, episode.total) for episode in episodes.ended] == [(1, 2.0), (2, 2.0), (3, 2.0)]
    assert episodes.return_mean == 2.0
    other = Episodes(num_envs=4, device=CPU, keep=3)
    other.load(episodes.state())
    assert (other.return_mean, other.length_mean) == (2.0, 1.0)


def test_play_without_auto_reset_counts_a_fall_once(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--agent", "random", "--num-envs", "3", "--steps", "200", "--seed", "1"]
    assert run(["play", "GeneLab-Inverted-Pendulum-v0", *words, "env.auto_reset=false"]) == 0
    once = capfd.readouterr().out
    assert "3 episodes ended" in once
    assert run(["play", "GeneLab-Inverted-Pendulum-v0", *words, "env.auto_reset=true"]) == 0
    assert "3 episodes ended" not in capfd.readouterr().out


def test_a_saved_state_is_not_what_goes_on_being_counted() -> None:
    episodes = Episodes(num_envs=2, device=CPU)
    episodes.add(step(torch.tensor([1.0, 2.0]), torch.zeros(2, dtype=torch.bool)))
    state = episodes.state()
    episodes.add(step(torch.tensor([1.0, 2.0]), torch.zeros(2, dtype=torch.bool)))
    assert (state["return"].tolist(), state["length"].tolist()) == ([1.0, 2.0], [1.0, 1.0])
