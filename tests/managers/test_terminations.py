"""Terminations: failures and time-outs, by which term, and how many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv
from genelab.errors import ConfigError
from genelab.managers import TerminationTermCfg

MakeEnv = Callable[..., ManagerBasedRlEnv]


def after(env: ManagerBasedRlEnv, steps: tuple[int, ...]) -> Tensor:
    return env.episode_length_buf >= torch.tensor(steps)


def height(env: ManagerBasedRlEnv) -> Tensor:
    return torch.zeros(env.num_envs)


class Latch:
    """Answers from its own memory, which a reset wipes."""

    def __init__(self, cfg: TerminationTermCfg, env: ManagerBasedRlEnv) -> None:
        self.ended = torch.zeros(env.num_envs, dtype=torch.bool)

    def __call__(self, env: ManagerBasedRlEnv, steps: tuple[int, ...]) -> Tensor:
        self.ended |= after(env, steps)
        return self.ended

    def reset(self, env_ids: Tensor | None) -> None:
        self.ended[slice(None) if env_ids is None else env_ids] = False


def end(*steps: int, time_out: bool = False, func: Any = after) -> TerminationTermCfg:
    return TerminationTermCfg(func=func, params={"steps": steps}, time_out=time_out)


def step(env: ManagerBasedRlEnv) -> tuple[list[bool], list[bool], dict[str, Any]]:
    _, _, terminated, truncated, info = env.step(torch.zeros(env.num_envs, 0))
    return terminated.tolist(), truncated.tolist(), info


def test_a_failure_terminates_and_a_time_out_truncates(make_env: MakeEnv) -> None:
    env = make_env(terminations={"fell": end(2, 9, 2, 9), "late": end(9, 2, 2, 9, time_out=True)})
    env.reset()
    assert step(env)[:2] == ([False] * 4, [False] * 4)
    terminated, truncated, info = step(env)
    assert terminated == [True, False, True, False]
    assert truncated == [False, True, True, False]
    assert info["time_outs"].tolist() == [False, True, False, False]  # who fails in the last step has failed
    assert env.termination_manager.values.tolist() == [terminated, truncated]
    assert env.episode_length_buf.tolist() == [0, 0, 0, 2]


def test_several_terms_of_a_kind_add_up(make_env: MakeEnv) -> None:
    env = make_env(terminations={"a": end(1, 9, 9, 9), "b": end(9, 1, 9, 9), "c": end(1, 1, 9, 9)})
    env.reset()
    terminated, truncated, info = step(env)
    assert terminated == [True, True, False, False]
    assert truncated == [False] * 4
    log = {key: value.item() for key, value in info["log"].items()}
    assert log == {"Episode_Termination/a": 0.5, "Episode_Termination/b": 0.5, "Episode_Termination/c": 1.0}


def test_only_the_ended_environments_are_counted(make_env: MakeEnv) -> None:
    env = make_env(terminations={"a": end(1, 3, 1, 3), "b": end(9, 2, 9, 9, time_out=True)})
    env.reset()
    shares = [{key[-1]: value.item() for key, value in step(env)[2]["log"].items()} for _ in range(2)]
    assert shares[0] == {"a": 1.0, "b": 0.0}  # of the first and third
    assert shares[1] == pytest.approx({"a": 2 / 3, "b": 1 / 3})  # of those again and the second


def test_without_terms_nothing_ends(make_env: MakeEnv) -> None:
    env = make_env(terminations={})
    env.reset()
    for _ in range(30):
        assert step(env)[:2] == ([False] * 4, [False] * 4)
    assert env.episode_length_buf.tolist() == [30] * 4


def test_what_a_step_returned_does_not_change_with_the_terms_memory(make_env: MakeEnv) -> None:
    env = make_env(terminations={"latch": end(2, 9, 2, 9, func=Latch)})
    env.reset()
    step(env)
    kept = env.step(torch.zeros(4, 0))[2]
    assert kept.tolist() == [True, False, True, False]  # though the reset has wiped the term's own
    assert step(env)[0] == [False] * 4
    assert kept.tolist() == [True, False, True, False]


def test_a_term_must_give_booleans(make_env: MakeEnv) -> None:
    env = make_env(terminations={"height": TerminationTermCfg(func=height)})
    env.reset()
    with pytest.raises(ConfigError, match=r"^termination term 'height' must return booleans, got torch\.float32$"):
        step(env)


def test_a_wrong_shape_is_named_with_its_term(make_env: MakeEnv) -> None:
    env = make_env(terminations={"two": end(1, 2)}, num_envs=1)
    env.reset()
    with pytest.raises(ConfigError, match=r"^termination term 'two' must return shape \(1,\), got \(2,\)$"):
        step(env)
