"""Commands: drawn at a reset, kept for their time, found by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv
from genelab.errors import ConfigError
from genelab.managers import CommandTerm, CommandTermCfg, Meaning, TerminationTermCfg
from genelab.managers.marks import Ball, Control
from genelab.sim import EnvIds

MakeEnv = Callable[..., ManagerBasedRlEnv]


@dataclass(kw_only=True)
class CountCfg(CommandTermCfg):
    """How often a command was drawn, and how often it was adapted."""

    def build(self, name: str, env: ManagerBasedRlEnv) -> CommandTerm:
        return Count(name, self, env)


class Count(CommandTerm):
    def __init__(self, name: str, cfg: CommandTermCfg, env: ManagerBasedRlEnv) -> None:
        super().__init__(name, cfg, env)
        self.command = torch.zeros(env.num_envs, 2, dtype=env.dtype)

    def resample(self, env_ids: Tensor) -> None:
        self.command[env_ids, 0] += 1

    def update(self) -> None:
        self.command[:, 1] += 1

    def reset(self, env_ids: EnvIds) -> dict[str, Any]:
        log = {"draws": self.command[:, 0].sum().item()}
        return {**super().reset(env_ids), **log}


def after(env: ManagerBasedRlEnv, steps: tuple[int, ...]) -> Tensor:
    return env.episode_length_buf >= torch.tensor(steps)


def draws(env: ManagerBasedRlEnv) -> list[float]:
    return env.commands["count"][:, 0].tolist()


def run(env: ManagerBasedRlEnv, steps: int) -> dict[str, Any]:
    for _ in range(steps):
        info = env.step(torch.zeros(env.num_envs, env.action_dim))[4]
    return info


def test_a_command_is_drawn_at_every_reset(make_env: MakeEnv) -> None:
    env = make_env(commands={"count": CountCfg()})
    before = draws(env)
    env.reset()
    assert draws(env) == [n + 1 for n in before]
    run(env, 30)
    assert draws(env) == [n + 1 for n in before]  # no time is given, so it lasts


@pytest.mark.parametrize("precision", [32, 64])
@pytest.mark.parametrize(("duration_s", "steps"), [(0.1, 5), (0.3, 15), (2.0, 100)])
def test_a_command_lasts_a_number_of_control_steps(
    make_env: MakeEnv, precision: int, duration_s: float, steps: int
) -> None:
    cfg = CountCfg(resampling_time_range=(duration_s, duration_s))
    env = make_env(commands={"count": cfg}, precision=precision)
    env.reset()
    first = draws(env)[0]
    run(env, steps - 1)
    assert draws(env) == [first] * 4
    run(env, 1)
    assert draws(env) == [first + 1] * 4
    run(env, steps - 1)
    assert draws(env) == [first + 1] * 4
    run(env, 1)
    assert draws(env) == [first + 2] * 4


def test_only_ended_environments_get_another(make_env: MakeEnv) -> None:
    end = TerminationTermCfg(func=after, params={"steps": (99, 3, 99, 3)})
    env = make_env(commands={"count": CountCfg()}, terminations={"end": end})
    env.reset()
    first = draws(env)[0]
    info = run(env, 3)
    assert draws(env) == [first, first + 1, first, first + 1]
    assert info["log"]["Metrics/count/draws"] == 4 * first


def test_commands_are_adapted_every_control_step(make_env: MakeEnv) -> None:
    env = make_env(commands={"count": CountCfg()})
    env.reset()
    before = env.commands["count"][:, 1].clone()
    run(env, 7)
    assert (env.commands["count"][:, 1] - before).tolist() == [7.0] * 4


def test_durations_are_drawn_from_the_range(make_env: MakeEnv) -> None:
    env = make_env(commands={"count": CountCfg(resampling_time_range=(1.0, 3.0))}, num_envs=500)
    env.reset()
    left = env.commands.term("count").time_left
    assert left.min() >= 1.0
    assert left.max() < 3.0
    assert left.mean().item() == pytest.approx(2.0, abs=0.1)


def test_an_unknown_command(make_env: MakeEnv) -> None:
    env = make_env(commands={"count": CountCfg()})
    with pytest.raises(ConfigError, match=r"^no command is called 'cuont'\. Did you mean 'count'\?$"):
        env.commands["cuont"]


@dataclass(kw_only=True)
class PlaceCfg(CommandTermCfg):
    """Somebody else's command."""

    along: tuple[float, float] = (0.0, 1.0)
    across: tuple[float, float] = (-2.0, 2.0)

    def build(self, name: str, env: ManagerBasedRlEnv) -> CommandTerm:
        return Place(name, self, env)


class Place(Count):
    drawn_from = ("along", "across")


def test_a_command_is_steered_by_the_ranges_of_its_columns(make_env: MakeEnv) -> None:
    env = make_env(commands={"place": PlaceCfg(), "count": CountCfg()})
    place, count = env.commands.terms.values()
    assert place.controls() == [Control("along", 0.0, 1.0), Control("across", -2.0, 2.0)]
    place.meaning = lambda: Meaning(unit=("m", "rad"), columns=("far", "off"))  # type: ignore[method-assign]
    assert [control.label for control in place.controls()] == ["far, m", "off, rad"]
    assert count.controls() == []


def test_where_somebody_steers_no_command_is_drawn(make_env: MakeEnv) -> None:
    env = make_env(commands={"count": CountCfg()})
    count = env.commands.term("count")
    count.command[:] = 0.0
    count.fix(torch.tensor([[7.0, 0.0]]), torch.tensor([1]))
    env.reset()
    assert draws(env) == [1.0, 7.0, 1.0, 1.0]
    count.release()
    env.reset()
    assert draws(env) == [2.0, 8.0, 2.0, 2.0]


@pytest.mark.parametrize("radius", [None, 0.2])
def test_a_place_is_marked_by_a_ball(make_env: MakeEnv, radius: float | None) -> None:
    env = make_env(commands={"count": CountCfg()})
    term = env.commands.term("count")
    term.goal_radius = radius
    marks = term.marks(1, 0.5)
    assert [(mark.centre.tolist(), mark.radius) for mark in marks if isinstance(mark, Ball)] == (
        [] if radius is None else [(term.command[1].tolist(), 0.2)]
    )
