"""Shares that come in or fade while a policy learns."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from genelab import mdp
from genelab.envs import ManagerBasedRlEnv, play_cfg
from genelab.errors import ConfigError
from genelab.managers import GateCfg, RewardTermCfg, ScheduleCfg

MakeEnv = Callable[..., ManagerBasedRlEnv]


def reward(schedule: str | None = "later", weight: float = 100.0) -> RewardTermCfg:
    return RewardTermCfg(func=mdp.is_alive, weight=weight, schedule=schedule)


def paid(env: ManagerBasedRlEnv, steps: int) -> list[float]:
    return [env.step(torch.zeros(4, 0))[1][0].item() for _ in range(steps)]


def test_a_penalty_comes_in_by_the_same_factor(make_env: MakeEnv) -> None:
    later = ScheduleCfg(start=0.125, steps=3, curve="geometric")
    env = make_env(rewards={"alive": reward()}, schedules={"later": later})
    assert paid(env, 5) == pytest.approx([0.25, 0.5, 1.0, 2.0, 2.0])


def test_help_waits_and_fades_by_the_same_amount(make_env: MakeEnv) -> None:
    fade = ScheduleCfg(start=1.0, end=0.0, begin=1, steps=2)
    env = make_env(rewards={"alive": reward("help")}, schedules={"help": fade})
    assert paid(env, 5) == pytest.approx([2.0, 2.0, 1.0, 0.0, 0.0])


def test_help_grows_and_is_given_up_at_once(make_env: MakeEnv) -> None:
    grows = ScheduleCfg(start=0.5, steps=2, until=4)
    env = make_env(rewards={"alive": reward("help")}, schedules={"help": grows})
    assert paid(env, 6) == pytest.approx([1.0, 1.5, 2.0, 2.0, 0.0, 0.0])


def moved(env: ManagerBasedRlEnv) -> Tensor:
    return env.robot.joint_pos[:, 0]


def test_a_gate_lets_it_go_on_as_the_robots_get_on(make_env: MakeEnv) -> None:
    gate = GateCfg(func=moved, above=0.5, below=-0.5)
    env = make_env(schedules={"later": ScheduleCfg(start=0.0, steps=100, gate=gate)})
    shares = []
    for place, steps in ((0.0, 200), (1.0, 200), (-1.0, 400)):
        for _ in range(steps):
            env.robot.write_joint_state(torch.full((4, 2), place), None, None)
            env.step(torch.zeros(4, 0))
        shares.append(env.schedules.share("later"))
    assert shares == [0.0, 0.75, 0.0]  # a look every 25 steps, the average over the last eight of them


def test_it_is_part_of_the_state_and_begins_anew_with_a_seed(make_env: MakeEnv) -> None:
    settings = {"rewards": {"alive": reward()}, "schedules": {"later": ScheduleCfg(start=0.0, steps=8)}}
    first, second = make_env(**settings), make_env(**settings)
    paid(first, 3)
    second.load_state_dict(first.state_dict())
    assert paid(second, 2) == paid(first, 2) == pytest.approx([0.75, 1.0])
    first.reset(seed=1)
    assert paid(first, 1) == [0.0]


def test_judging_takes_what_is_left_in_the_end(make_env: MakeEnv) -> None:
    rewards = {
        "half": reward("half", 4.0),
        "gone": reward("gone"),
        "dropped": reward("dropped"),
        "always": reward(None, 3.0),
    }
    schedules = {
        "half": ScheduleCfg(start=1.0, end=0.5, steps=9),
        "gone": ScheduleCfg(start=1.0, end=0.0, steps=9),
        "dropped": ScheduleCfg(start=0.5, steps=9, until=12),
    }
    cfg = play_cfg(make_env(rewards=rewards, schedules=schedules).cfg)
    assert {name: term.weight for name, term in cfg.rewards.items() if term is not None} == {"half": 2.0, "always": 3.0}
    assert cfg.schedules == {}
    ManagerBasedRlEnv(cfg).close()


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (ScheduleCfg(start=0.0, steps=5, curve="geometric"), "geometric schedule has no zero"),
        (ScheduleCfg(start=0.5, steps=0), "env.schedules.later.steps: at least 1, got 0"),
        (ScheduleCfg(start=0.5, begin=2, steps=3, until=4), "env.schedules.later.until: 4 is before it has changed"),
    ],
)
def test_what_has_no_meaning_is_refused(make_env: MakeEnv, schedule: ScheduleCfg, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(schedules={"later": schedule})


def test_a_wrong_name_is_answered_with_the_right_one(make_env: MakeEnv) -> None:
    env = make_env(rewards={"alive": reward("latr")}, schedules={"later": ScheduleCfg(start=0.5, steps=5)})
    with pytest.raises(ConfigError, match=r"no schedule is called 'latr'\. Did you mean 'later'"):
        env.step(torch.zeros(4, 0))
