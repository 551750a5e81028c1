"""Observations: noise, then clip, then scale, then delay, then history."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv
from genelab.errors import ConfigError
from genelab.managers import (
    GaussianNoiseCfg,
    ObservationGroupCfg,
    ObservationTermCfg,
    TerminationTermCfg,
    UniformNoiseCfg,
    symmetric,
)

MakeEnv = Callable[..., ManagerBasedRlEnv]


def clock(env: ManagerBasedRlEnv) -> Tensor:
    """Control steps since the reset, `(N, 1)`."""
    return env.episode_length_buf[:, None].to(env.dtype)


def constant(env: ManagerBasedRlEnv, values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values, dtype=env.dtype).expand(env.num_envs, -1)


def shaped(env: ManagerBasedRlEnv, shape: tuple[int, ...]) -> Tensor:
    return torch.zeros(shape)


def text(env: ManagerBasedRlEnv) -> str:
    return "three"


def moving(env: ManagerBasedRlEnv) -> Tensor:
    return clock(env) > 1


def imaginary(env: ManagerBasedRlEnv) -> Tensor:
    return torch.full((env.num_envs, 2), 1j)


def widening(env: ManagerBasedRlEnv) -> Tensor:
    return clock(env).repeat(1, 1 + env.common_step_counter)


def after(env: ManagerBasedRlEnv, steps: tuple[int, ...]) -> Tensor:
    return env.episode_length_buf >= torch.tensor(steps)


def group(*terms: ObservationTermCfg, **settings: Any) -> dict[str, ObservationGroupCfg]:
    return {"policy": ObservationGroupCfg(terms={f"term{i}": term for i, term in enumerate(terms)}, **settings)}


def watch(env: ManagerBasedRlEnv, steps: int) -> list[Tensor]:
    """The policy's observations of a reset and the steps after it."""
    seen = [env.reset()[0]["policy"]]
    for _ in range(steps):
        seen.append(env.step(torch.zeros(env.num_envs, 0))[0]["policy"])
    return seen


def ends(*steps: int) -> dict[str, TerminationTermCfg]:
    return {"end": TerminationTermCfg(func=after, params={"steps": steps})}


def test_noise_then_clip_then_scale(make_env: MakeEnv) -> None:
    term = ObservationTermCfg(
        func=constant,
        params={"values": (2.0, -2.0)},
        noise=UniformNoiseCfg(low=0.5, high=0.5),
        clip=(-1.0, 2.25),
        scale=3.0,
    )
    env = make_env(observations=group(term))
    assert watch(env, 0)[0].tolist() == [[2.25 * 3, -1.0 * 3]] * 4


def test_gaussian_noise_has_its_mean(make_env: MakeEnv) -> None:
    term = ObservationTermCfg(func=constant, params={"values": (2.0,)}, noise=GaussianNoiseCfg(mean=0.25, std=0.0))
    assert watch(make_env(observations=group(term)), 0)[0].tolist() == [[2.25]] * 4


@pytest.mark.parametrize("noise", [symmetric(0.5), GaussianNoiseCfg(std=0.5)])
def test_noise_is_drawn_for_every_number_and_step(make_env: MakeEnv, noise: Any) -> None:
    term = ObservationTermCfg(func=constant, params={"values": (2.0, 2.0)}, noise=noise)
    env = make_env(observations=group(term), num_envs=1000)
    first, second = watch(env, 1)
    assert len(torch.cat((first, second)).unique()) == 4000
    assert first.mean().item() == pytest.approx(2.0, abs=0.05)
    expected = 0.5 / 3**0.5 if isinstance(noise, UniformNoiseCfg) else 0.5
    assert (first - 2.0).std().item() == pytest.approx(expected, rel=0.05)
    if isinstance(noise, UniformNoiseCfg):
        assert (first - 2.0).abs().max() <= 0.5


def test_noise_can_be_switched_off_for_a_group(make_env: MakeEnv) -> None:
    noisy = ObservationTermCfg(func=constant, params={"values": (2.0,)}, noise=UniformNoiseCfg(low=0.5, high=0.5))
    gaussian = ObservationTermCfg(func=constant, params={"values": (3.0,)}, noise=GaussianNoiseCfg(mean=1.0, std=1.0))
    env = make_env(observations=group(noisy, gaussian, enable_noise=False))
    assert watch(env, 0)[0].tolist() == [[2.0, 3.0]] * 4


def test_only_the_columns_of_a_term_are_changed(make_env: MakeEnv) -> None:
    plain = ObservationTermCfg(func=constant, params={"values": (9.0,)})
    changed = ObservationTermCfg(
        func=constant,
        params={"values": (1.0, 2.0)},
        noise=UniformNoiseCfg(low=1.0, high=1.0),
        clip=(0.0, 2.5),
        scale=(10.0, 100.0),
    )
    env = make_env(observations=group(plain, changed, plain))
    assert watch(env, 0)[0].tolist() == [[9.0, 20.0, 250.0, 9.0]] * 4
    assert [(term.start, term.dim) for term in env.observation_manager.groups["policy"].layout] == [
        (0, 1),
        (1, 2),
        (3, 1),
    ]


def test_double_precision_is_kept(make_env: MakeEnv) -> None:
    term = ObservationTermCfg(func=constant, params={"values": (3.0,)}, clip=(0.0, 2.1), scale=0.1)
    assert watch(make_env(observations=group(term)), 0)[0].tolist() == [[2.1 * 0.1]] * 4


@pytest.mark.parametrize(("precision", "dtype"), [(32, torch.float32), (64, torch.float64)])
def test_booleans_and_other_types_become_the_environments_floats(
    make_env: MakeEnv, precision: int, dtype: torch.dtype
) -> None:
    env = make_env(observations=group(ObservationTermCfg(func=moving), history_length=2), precision=precision)
    seen = watch(env, 2)
    assert seen[-1].dtype == dtype
    assert seen[-1].tolist() == [[0.0, 1.0]] * 4


def test_history_is_oldest_first_and_filled_by_the_first_frame(make_env: MakeEnv) -> None:
    clock_term = ObservationTermCfg(func=clock)
    tens = ObservationTermCfg(func=clock, scale=10.0)
    env = make_env(observations=group(clock_term, tens, history_length=3), terminations=ends(99, 3, 99, 3))
    seen = watch(env, 4)
    assert env.observation_manager.groups["policy"].dim == 6
    assert seen[0].tolist() == [[0, 0, 0, 0, 0, 0]] * 4
    assert seen[1].tolist() == [[0, 0, 0, 0, 1, 10]] * 4
    assert seen[2].tolist() == [[0, 0, 1, 10, 2, 20]] * 4
    running, started = [1, 10, 2, 20, 3, 30], [0, 0, 0, 0, 0, 0]
    assert seen[3].tolist() == [running, started, running, started]
    assert seen[4][1].tolist() == [0, 0, 0, 0, 1, 10]


def test_history_keeps_the_noise_a_frame_was_seen_with(make_env: MakeEnv) -> None:
    term = ObservationTermCfg(func=clock, noise=symmetric(0.5))
    seen = watch(make_env(observations=group(term, history_length=3)), 5)
    for earlier, later in pairwise(seen):
        assert torch.equal(earlier[:, 1:], later[:, :-1])
        assert not torch.equal(earlier[:, -1], later[:, -1])


def test_the_last_observation_of_an_episode_has_its_own_history(make_env: MakeEnv) -> None:
    env = make_env(
        observations=group(ObservationTermCfg(func=clock), history_length=2), terminations=ends(99, 2, 99, 2)
    )
    watch(env, 1)
    observations, *_, info = env.step(torch.zeros(4, 0))
    assert info["final_obs"]["policy"].tolist() == [[1, 2]] * 4
    assert info["_final_obs"].tolist() == [False, True, False, True]
    assert observations["policy"].tolist() == [[1, 2], [0, 0], [1, 2], [0, 0]]


def test_a_delayed_term_is_late_and_its_neighbours_are_not(make_env: MakeEnv) -> None:
    late = ObservationTermCfg(func=clock, delay=(2, 2))
    env = make_env(observations=group(ObservationTermCfg(func=clock), late), terminations=ends(99, 4, 99, 99))
    seen = watch(env, 7)
    assert [frame[0].tolist() for frame in seen] == [[0, 0], [1, 0], [2, 0], [3, 1], [4, 2], [5, 3], [6, 4], [7, 5]]
    # Until it has a past, a new episode sees its first value, not the old episode's.
    assert [frame[1].tolist() for frame in seen[3:]] == [[3, 1], [0, 0], [1, 0], [2, 0], [3, 1]]


def test_each_environment_has_its_own_delay_until_its_reset(make_env: MakeEnv) -> None:
    late = ObservationTermCfg(func=clock, delay=(1, 3))
    env = make_env(observations=group(late), num_envs=64, episode_length_s=100.0)
    lags = [step - frame[:, 0] for step, frame in enumerate(watch(env, 8))][3:]
    assert all(torch.equal(lags[0], lag) for lag in lags)
    assert lags[0].unique().tolist() == [1, 2, 3]
    again = 8 - watch(env, 8)[-1][:, 0]
    assert again.unique().tolist() == [1, 2, 3]
    assert not torch.equal(lags[0], again)


def test_delay_goes_before_history(make_env: MakeEnv) -> None:
    late = ObservationTermCfg(func=clock, delay=(1, 1), scale=2.0)
    seen = watch(make_env(observations=group(late, history_length=2)), 4)
    assert [frame[0].tolist() for frame in seen] == [[0, 0], [0, 0], [0, 2], [2, 4], [4, 6]]


def test_a_look_without_keeping_leaves_history_and_delay_alone(make_env: MakeEnv) -> None:
    terms = (ObservationTermCfg(func=clock), ObservationTermCfg(func=clock, delay=(1, 1)))
    env = make_env(observations=group(*terms, history_length=2))
    manager = env.observation_manager
    watch(env, 3)
    env.episode_length_buf += 4  # as if time had passed: 7
    look = [3, 2, 7, 3]
    for _ in range(3):
        assert manager.compute(keep=False)["policy"].tolist() == [look] * 4
    assert manager.compute()["policy"].tolist() == [look] * 4
    assert manager.compute()["policy"].tolist() == [[7, 3, 7, 7]] * 4


def test_a_look_before_the_first_frame_does_not_count_as_one(make_env: MakeEnv) -> None:
    env = make_env(observations=group(ObservationTermCfg(func=clock, delay=(1, 1)), history_length=2))
    env.reset()
    env.observation_manager.reset(None)
    env.episode_length_buf[:] = 5
    assert env.observation_manager.compute(keep=False)["policy"].tolist() == [[5, 5]] * 4
    env.episode_length_buf[:] = 6
    assert env.observation_manager.compute()["policy"].tolist() == [[6, 6]] * 4


def test_a_reset_of_some_shows_the_others_what_they_saw(make_env: MakeEnv) -> None:
    noisy, late = (
        ObservationTermCfg(func=clock, noise=noise, delay=delay)
        for noise, delay in ((symmetric(0.4), (0, 0)), (None, (2, 2)))
    )
    env = make_env(observations=group(noisy, late, history_length=3))
    before = watch(env, 5)[-1].clone()
    kept = before.clone()
    after = env.reset(options={"reset_mask": torch.tensor([False, True, False, False])})[0]["policy"]
    assert torch.equal(before, kept), "what the caller holds is not written to"
    assert torch.equal(after[[0, 2, 3]], before[[0, 2, 3]])
    first = after[1].unflatten(0, (3, 2))
    assert torch.equal(first, first[:1].expand(3, 2))
    assert first[0, 0].abs() <= 0.4
    assert first[0, 1] == 0.0
    then = env.step(torch.zeros(4, 0))[0]["policy"]
    assert torch.equal(then[:, :4], after[:, 2:]), "each frame is shown once"
    assert then[:, 5].tolist() == [4.0, 0.0, 4.0, 4.0]
    assert torch.equal(env.reset(options={"reset_mask": torch.zeros(4, dtype=torch.bool)})[0]["policy"], then)


def test_a_reset_of_some_before_anything_was_seen(make_env: MakeEnv) -> None:
    env = make_env(observations=group(ObservationTermCfg(func=clock, delay=(1, 1)), history_length=2))
    seen, _ = env.reset(options={"reset_mask": torch.tensor([False, True, False, False])})
    assert seen["policy"].tolist() == [[0.0, 0.0]] * 4


def test_groups_are_separate_and_a_term_may_be_left_out(make_env: MakeEnv) -> None:
    groups = {
        "policy": ObservationGroupCfg(terms={"a": ObservationTermCfg(func=clock)}),
        "critic": ObservationGroupCfg(terms={"b": ObservationTermCfg(func=clock, scale=2.0)}, history_length=2),
    }
    env = make_env(observations=groups)
    env.reset()
    observations = env.step(torch.zeros(4, 0))[0]
    assert observations["policy"].tolist() == [[1.0]] * 4
    assert observations["critic"].tolist() == [[0.0, 2.0]] * 4


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (
            ObservationTermCfg(func=shaped, params={"shape": (4,)}),
            r"^observation 'policy' term 'term0' must return shape \(4, d\), got \(4,\)$",
        ),
        (
            ObservationTermCfg(func=shaped, params={"shape": (3, 2)}),
            r"'term0' must return shape \(4, d\), got \(3, 2\)$",
        ),
        (ObservationTermCfg(func=imaginary), r"'term0' must return real numbers, got torch\.complex64$"),
        (ObservationTermCfg(func=text), r"'term0' must return shape \(4, d\), got str$"),
        (
            ObservationTermCfg(func=constant, params={"values": (1.0, 2.0)}, scale=(1.0, 2.0, 3.0)),
            "^observation 'policy' term 'term0': 3 scales for 2 columns$",
        ),
    ],
)
def test_a_wrong_shape_is_named_with_its_term(make_env: MakeEnv, term: ObservationTermCfg, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(observations=group(term))


def test_a_width_may_not_change(make_env: MakeEnv) -> None:
    env = make_env(observations=group(ObservationTermCfg(func=widening)))
    env.reset()
    with pytest.raises(ConfigError, match=r"^observation 'policy': width changed from 1 to 2$"):
        env.step(torch.zeros(4, 0))


def test_groups_that_cannot_be(make_env: MakeEnv) -> None:
    with pytest.raises(ConfigError, match=r"^env\.observations\.policy: a group needs at least one term$"):
        make_env(observations=group())
    with pytest.raises(ConfigError, match=r"env\.observations\.policy\.history_length: must be at least 1, got 0"):
        make_env(observations=group(ObservationTermCfg(func=clock), history_length=0))
