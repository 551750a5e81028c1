"""Rewards: the weighted sum of the terms, and what is logged of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv
from genelab.errors import ConfigError
from genelab.managers import RewardTermCfg, TerminationTermCfg

MakeEnv = Callable[..., ManagerBasedRlEnv]
STEP_DT = 0.02


def ones(env: ManagerBasedRlEnv) -> Tensor:
    return torch.ones(env.num_envs, dtype=env.dtype)


def clock(env: ManagerBasedRlEnv) -> Tensor:
    """Control steps since the reset."""
    return env.episode_length_buf.to(env.dtype)


def index(env: ManagerBasedRlEnv) -> Tensor:
    """The number of the environment, as an integer."""
    return torch.arange(env.num_envs)


def late(env: ManagerBasedRlEnv) -> Tensor:
    """A boolean."""
    return env.episode_length_buf > 1


def column(env: ManagerBasedRlEnv) -> Tensor:
    return torch.ones(env.num_envs, 1)


def after(env: ManagerBasedRlEnv, steps: tuple[int, ...]) -> Tensor:
    return env.episode_length_buf >= torch.tensor(steps)


def rewards(**terms: tuple[Callable[..., Tensor], float]) -> dict[str, RewardTermCfg]:
    return {name: RewardTermCfg(func=func, weight=weight) for name, (func, weight) in terms.items()}


def pay(env: ManagerBasedRlEnv) -> list[float]:
    return env.step(torch.zeros(env.num_envs, 0))[1].tolist()


def test_weights_times_the_control_step(make_env: MakeEnv) -> None:
    env = make_env(rewards=rewards(one=(ones, 3.0), index=(index, 10.0), clock=(clock, -0.5)))
    env.reset()
    assert pay(env) == pytest.approx([(3 + 10 * i - 0.5) * STEP_DT for i in range(4)])
    assert pay(env) == pytest.approx([(3 + 10 * i - 1.0) * STEP_DT for i in range(4)])
    assert env.reward_manager.step_reward[:, 3].tolist() == pytest.approx([3 * STEP_DT, 30 * STEP_DT, -STEP_DT])


def test_without_the_control_step(make_env: MakeEnv) -> None:
    env = make_env(rewards=rewards(one=(ones, 3.0), clock=(clock, -0.5)), scale_rewards_by_dt=False)
    env.reset()
    assert pay(env) == pytest.approx([2.5] * 4)


def test_booleans_count_as_one(make_env: MakeEnv) -> None:
    env = make_env(rewards=rewards(late=(late, 5.0)))
    env.reset()
    assert pay(env) == [0.0] * 4
    assert pay(env) == pytest.approx([5 * STEP_DT] * 4)


class Counted:
    """How often a term was called; publishes who succeeded if it is told to."""

    calls = 0

    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        type(self).calls = 0

    def __call__(self, env: ManagerBasedRlEnv, publish: bool) -> Tensor:
        type(self).calls += 1
        if publish:
            env.extras["is_success"] = env.episode_length_buf > 2
        return ones(env)


@pytest.mark.parametrize(("publish", "calls"), [(False, 1), (True, 3)])
def test_a_term_of_weight_zero_is_called_again_only_if_it_publishes(
    make_env: MakeEnv, publish: bool, calls: int
) -> None:
    terms = rewards(one=(ones, 1.0))
    terms["off"] = RewardTermCfg(func=Counted, weight=0.0, params={"publish": publish})
    env = make_env(rewards=terms)
    env.reset()
    for _ in range(2):
        assert pay(env) == pytest.approx([STEP_DT] * 4)
    info = env.step(torch.zeros(4, 0))[4]
    assert Counted.calls == calls
    assert ("is_success" in info) == publish
    assert not publish or info["is_success"].all()
    assert env.reward_manager.step_reward.tolist() == [pytest.approx([STEP_DT] * 4), [0.0] * 4]


def test_a_weight_changed_later_takes_effect(make_env: MakeEnv) -> None:
    env = make_env(rewards=rewards(one=(ones, 0.0), index=(index, 1.0)))
    env.reset()
    assert pay(env) == pytest.approx([i * STEP_DT for i in range(4)])
    env.reward_manager.weights["one"] = 7.0
    env.reward_manager.weights["index"] = 0.0
    assert pay(env) == pytest.approx([7 * STEP_DT] * 4)
    assert env.reward_manager.step_reward[:, 3].tolist() == pytest.approx([7 * STEP_DT, 0.0])
    env.reward_manager.weights["one"] = 0.0
    assert pay(env) == [0.0] * 4
    assert env.reward_manager.step_reward[:, 3].tolist() == [0.0, 0.0]


def test_no_terms_no_reward(make_env: MakeEnv) -> None:
    env = make_env(rewards={})
    env.reset()
    assert pay(env) == [0.0] * 4


def test_the_log_is_the_episodes_sum_by_the_longest_duration(make_env: MakeEnv) -> None:
    env = make_env(
        rewards=rewards(one=(ones, 3.0), index=(index, -1.0), off=(ones, 0.0)),
        terminations={"end": TerminationTermCfg(func=after, params={"steps": (99, 3, 99, 3)})},
    )
    env.reset()

    def log_of_step() -> dict[str, Any]:
        return env.step(torch.zeros(4, 0))[4].get("log", {})

    assert log_of_step() == log_of_step() == {}
    log = log_of_step()
    assert log["Episode_Reward/one"].item() == pytest.approx(3 * 3 * STEP_DT / 0.5)
    assert log["Episode_Reward/index"].item() == pytest.approx(-3 * STEP_DT * (1 + 3) / 2 / 0.5)  # the mean of two
    assert log["Episode_Reward/off"].item() == 0.0
    # The next episodes start from zero, the others go on.
    assert env.reward_manager.episode_sum[0].tolist() == pytest.approx([9 * STEP_DT, 0.0, 9 * STEP_DT, 0.0])


def test_a_wrong_shape_is_named_with_its_term(make_env: MakeEnv) -> None:
    env = make_env(rewards=rewards(tall=(column, 1.0)))
    env.reset()
    with pytest.raises(ConfigError, match=r"^reward term 'tall' must return shape \(4,\), got \(4, 1\)$"):
        pay(env)


def test_complex_numbers_are_refused(make_env: MakeEnv) -> None:
    env = make_env(rewards=rewards(turned=(lambda env: 1j * ones(env), 1.0)))
    env.reset()
    with pytest.raises(ConfigError, match=r"^reward term 'turned' must return real numbers, got torch\.complex"):
        pay(env)


def test_what_each_term_paid_in_the_last_finished_episode(make_env: MakeEnv) -> None:
    ends = {"end": TerminationTermCfg(func=after, params={"steps": (2, 3, 99, 3)})}
    env = make_env(rewards=rewards(one=(ones, 1.0), clock=(clock, 2.0)), terminations=ends)
    env.reset()
    for _ in range(3):
        pay(env)
    finished = env.reward_manager.finished / STEP_DT
    assert finished.tolist() == [pytest.approx([2.0, 3.0, 0.0, 3.0]), pytest.approx([6.0, 12.0, 0.0, 12.0])]
