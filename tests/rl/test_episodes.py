"""Episodes as they end."""

from __future__ import annotations

import pytest
import torch

from genelab.cli.main import run
from genelab.rl.episodes import Episodes

CPU = torch.device("cpu")


def test_what_is_logged_is_the_mean_over_episodes_not_over_steps() -> None:
    """One failure with an error of 1.0, later 255 time-outs with 0.1."""
    episodes = Episodes(num_envs=256, device=CPU)
    first = torch.zeros(256, dtype=torch.bool)
    first[7] = True
    nothing = torch.zeros(256)
    episodes.add(nothing, first, {"log": {"Metrics/error": torch.tensor(1.0), "Curriculum/level": 2.0}})
    episodes.add(nothing, torch.zeros_like(first), {})
    episodes.add(nothing, ~first, {"log": {"Metrics/error": torch.tensor(0.1)}})
    assert episodes.drain() == pytest.approx({"Metrics/error": (1.0 + 255 * 0.1) / 256, "Curriculum/level": 2.0})
    assert episodes.drain() == {}


def test_an_environment_that_does_not_restart_has_one_episode_until_it_is() -> None:
    episodes = Episodes(num_envs=2, device=CPU, restarts=False)
    for done in ([False, False], [True, False], [True, False], [False, True], [True, True]):
        episodes.add(torch.ones(2), torch.tensor(done), {})
    assert list(episodes.returns) == [2.0, 4.0]
    assert list(episodes.lengths) == [2.0, 4.0]
    episodes.restart()
    episodes.add(torch.ones(2), torch.tensor([True, True]), {})
    assert list(episodes.lengths) == [2.0, 4.0, 1.0, 1.0]


def test_play_without_auto_reset_counts_a_fall_once(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--agent", "random", "--num-envs", "3", "--steps", "200", "--seed", "1"]
    assert run(["play", "GeneLab-Inverted-Pendulum-v0", *words, "env.auto_reset=false"]) == 0
    once = capfd.readouterr().out
    assert "3 episodes ended" in once
    assert run(["play", "GeneLab-Inverted-Pendulum-v0", *words, "env.auto_reset=true"]) == 0
    assert "3 episodes ended" not in capfd.readouterr().out
