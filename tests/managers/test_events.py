"""Events: at startup, at resets and every so often, by exact counts of control steps."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.errors import ConfigError
from genelab.managers import EventTermCfg, TerminationTermCfg
from genelab.managers.events import Mode
from tests.narrow import present

MakeEnv = Callable[..., ManagerBasedRlEnv]
Log = list[tuple[int, list[int] | None]]
"""Control steps, and the environments of each."""


def record(env: ManagerBasedRlEnv, env_ids: Tensor | None, log: Log) -> None:
    """Note the control step and the environments."""
    log.append((env.common_step_counter, None if env_ids is None else env_ids.tolist()))


def push(env: ManagerBasedRlEnv, env_ids: Tensor) -> None:
    env.robot.write_joint_state(None, torch.full((len(env_ids), 2), 3.0), env_ids)


def after(env: ManagerBasedRlEnv, steps: tuple[int, ...]) -> Tensor:
    return env.episode_length_buf >= torch.tensor(steps)


def noting(log: Log, mode: Mode, interval_range_s: tuple[float, float] | None = None) -> EventTermCfg:
    return EventTermCfg(func=record, mode=mode, params={"log": log}, interval_range_s=interval_range_s)


def run(env: ManagerBasedRlEnv, steps: int) -> None:
    for _ in range(steps):
        env.step(torch.zeros(env.num_envs, env.action_dim))


def test_startup_is_once_and_again_with_a_new_seed(make_env: MakeEnv) -> None:
    log: Log = []
    env = make_env(events={"once": noting(log, "startup")})
    assert log == [(0, None)]
    env.reset()
    run(env, 30)
    env.reset()
    assert log == [(0, None)]
    env.reset(seed=3)
    assert log == [(0, None), (0, None)]


def test_reset_events_get_the_environments_that_start_anew(make_env: MakeEnv) -> None:
    log: Log = []
    end = TerminationTermCfg(func=after, params={"steps": (99, 2, 99, 3)})
    env = make_env(events={"start": noting(log, "reset")}, terminations={"end": end})
    assert log == []
    env.reset()
    assert log == [(0, None)]
    run(env, 6)
    assert log[1:] == [(2, [1]), (3, [3]), (4, [1]), (6, [1, 3])]


@pytest.mark.parametrize("precision", [32, 64])
@pytest.mark.parametrize(("interval_s", "steps"), [(0.1, 5), (0.3, 15), (2.0, 100)])
def test_an_interval_is_a_number_of_control_steps(
    make_env: MakeEnv, precision: int, interval_s: float, steps: int
) -> None:
    """Whatever the rounding of a sum of 0.02 s."""
    log: Log = []
    env = make_env(events={"beat": noting(log, "interval", (interval_s, interval_s))}, precision=precision)
    env.reset()
    run(env, 3 * steps)
    assert log == [(n * steps, [0, 1, 2, 3]) for n in (1, 2, 3)]


def test_an_interval_between_two_steps_ends_with_the_later(make_env: MakeEnv) -> None:
    log: Log = []
    env = make_env(events={"beat": noting(log, "interval", (0.05, 0.05))})
    env.reset()
    run(env, 6)
    assert [step for step, _ in log] == [3, 6]


def test_timers_start_anew_at_a_reset(make_env: MakeEnv) -> None:
    log: Log = []
    env = make_env(events={"beat": noting(log, "interval", (0.1, 0.1))})
    env.reset()
    run(env, 4)
    env.reset()
    run(env, 6)
    assert log == [(9, [0, 1, 2, 3])]


def test_each_environment_has_its_own_timer(make_env: MakeEnv) -> None:
    log: Log = []
    env = make_env(events={"beat": noting(log, "interval", (0.05, 0.1))}, num_envs=32)
    env.reset()
    run(env, 100)
    times: dict[int, list[int]] = {i: [0] for i in range(32)}
    for step, env_ids in log:
        for i in present(env_ids):
            times[i].append(step)
    gaps = {b - a for steps in times.values() for a, b in pairwise(steps)}
    assert gaps == {3, 4, 5}  # at least two and a half control steps, rounded up
    assert len({tuple(steps) for steps in times.values()}) == 32


def test_a_push_is_seen_in_the_step_it_happens(make_env: MakeEnv) -> None:
    event = EventTermCfg(func=push, mode="interval", interval_range_s=(0.04, 0.04))
    env = make_env(events={"push": event})
    env.reset()
    run(env, 1)
    assert env.robot.joint_vel.tolist() == [[0.0, 0.0]] * 4
    run(env, 1)
    assert env.robot.joint_vel.tolist() == [[3.0, 3.0]] * 4
    assert env.robot.body_lin_vel_w[0, 1].tolist() == [3.0, 3.0, 0.0]


@pytest.mark.parametrize(("mode", "interval"), [("interval", None), ("reset", (1.0, 2.0)), ("startup", (1.0, 2.0))])
def test_an_interval_goes_with_its_mode_only(
    make_env: MakeEnv, mode: Mode, interval: tuple[float, float] | None
) -> None:
    message = r"^env\.events\.beat: `interval_range_s` goes with the mode 'interval', and only with it$"
    with pytest.raises(ConfigError, match=message):
        make_env(events={"beat": noting([], mode, interval)})


def test_timers_after_an_automatic_reset_are_those_after_a_reset() -> None:
    cfg = rl_cfg("GeneLab-Inverted-Pendulum-v0")
    cfg.scene.num_envs, cfg.episode_length_s = 2, 0.5
    cfg.terminations = {"time_out": cfg.terminations["time_out"]}
    cfg.events["push_cart"].interval_range_s = (0.1, 0.1)
    cfg.events["push_cart"].params["velocity_range"] = (0.4, 0.4)
    env = ManagerBasedRlEnv(cfg)
    env.reset(seed=0)
    pushed = []
    for step in range(1, 71):
        env.step(torch.zeros(2, 1))
        if env.robot.joint_vel[0, 0].item() == pytest.approx(0.4):
            pushed.append(step)
    assert pushed == [10, 20, 30, 40, 60, 70]  # at 50 the episode ends and the timer starts anew
