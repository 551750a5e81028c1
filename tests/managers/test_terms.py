"""Terms: their parameters, the parts of the scene they name, their memory, the tables they are printed in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from genelab import mdp
from genelab.envs import ManagerBasedRlEnv
from genelab.errors import ConfigError
from genelab.managers import (
    ROBOT,
    CommandTerm,
    CommandTermCfg,
    CurriculumTermCfg,
    EventTermCfg,
    GaussianNoiseCfg,
    MetricTermCfg,
    ObservationGroupCfg,
    ObservationTermCfg,
    RewardTermCfg,
    SceneEntityCfg,
    Selection,
    TerminationTermCfg,
    symmetric,
)
from genelab.scene import RigidObject, RigidObjectCfg, mjcf_text

MakeEnv = Callable[..., ManagerBasedRlEnv]


def position(env: ManagerBasedRlEnv, scale: float = 1.0, asset: Selection = ROBOT) -> Tensor:
    """The chosen joints, one column each."""
    return scale * asset.robot.joint_pos[:, asset.joint_ids]


def total(env: ManagerBasedRlEnv, scale: float = 1.0, asset: Selection = ROBOT) -> Tensor:
    return position(env, scale, asset).sum(dim=1)


def bodies(env: ManagerBasedRlEnv, asset: Selection = ROBOT) -> Tensor:
    """How many bodies are chosen."""
    count = asset.entity.body_pos_w[:, asset.body_ids].shape[1]
    return torch.full((env.num_envs, 1), float(count))


def open_ended(env: ManagerBasedRlEnv, **params: float) -> Tensor:
    return torch.full((env.num_envs,), sum(params.values()))


def after(env: ManagerBasedRlEnv, steps: tuple[int, ...]) -> Tensor:
    return env.episode_length_buf >= torch.tensor(steps)


def nothing(env: ManagerBasedRlEnv, env_ids: Tensor | None) -> None:
    """An event or a curriculum without effect."""


class CallCounter:
    """How often it was called in this episode; remembers what it was made with and which resets it saw."""

    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        self.made_with = cfg
        self.resets: list[list[int] | None] = []
        self.calls = torch.zeros(env.num_envs, dtype=env.dtype)

    def __call__(self, env: ManagerBasedRlEnv, factor: float, asset: Selection = ROBOT) -> Tensor:
        assert asset.entity is env.robot
        self.calls += 1
        return factor * self.calls

    def reset(self, env_ids: Tensor | None) -> None:
        self.resets.append(None if env_ids is None else env_ids.tolist())
        self.calls[slice(None) if env_ids is None else env_ids] = 0.0


class Forgetless:
    """A class without a reset."""

    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        self.calls = 0

    def __call__(self, env: ManagerBasedRlEnv) -> Tensor:
        self.calls += 1
        return torch.full((env.num_envs,), float(self.calls))


@dataclass(kw_only=True)
class ConstantCommandCfg(CommandTermCfg):
    def build(self, name: str, env: ManagerBasedRlEnv) -> CommandTerm:
        return ConstantCommand(name, self, env)


class ConstantCommand(CommandTerm):
    def resample(self, env_ids: Tensor) -> None:
        self.command = torch.zeros(self.env.num_envs, 3)


def ends(*steps: int) -> dict[str, TerminationTermCfg]:
    return {"end": TerminationTermCfg(func=after, params={"steps": steps})}


def step(env: ManagerBasedRlEnv) -> Tensor:
    """The reward of a control step."""
    return env.step(torch.zeros(env.num_envs, env.action_dim))[1]


def policy(**terms: ObservationTermCfg) -> dict[str, ObservationGroupCfg]:
    return {"policy": ObservationGroupCfg(terms=terms)}


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (
            {"rewards": {"far": RewardTermCfg(func=total, weight=1.0, params={"scal": 2.0})}},
            "^reward term 'far': total has no parameter 'scal'$",
        ),
        (
            {"terminations": {"end": TerminationTermCfg(func=after, params={"step": 2})}},
            "^termination term 'end': after has no parameter 'step'$",
        ),
        (
            {"observations": policy(pos=ObservationTermCfg(func=position, params={"joint": "x"}))},
            "^observation 'policy' term 'pos': position has no parameter 'joint'$",
        ),
        (
            {"events": {"push": EventTermCfg(func=nothing, mode="reset", params={"force": 1.0})}},
            "^event term 'push': nothing has no parameter 'force'$",
        ),
        (
            {"metrics": {"calls": MetricTermCfg(func=CallCounter, params={"facto": 1.0})}},
            "^metric term 'calls': CallCounter has no parameter 'facto'$",
        ),
    ],
)
def test_an_unknown_parameter_is_named_with_its_term(make_env: MakeEnv, terms: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(**terms)


def test_a_function_may_take_any_parameters(make_env: MakeEnv) -> None:
    env = make_env(rewards={"sum": RewardTermCfg(func=open_ended, weight=50.0, params={"a": 2.0, "b": 3.0})})
    env.reset()
    assert step(env).tolist() == pytest.approx([5.0] * 4)


def test_an_entry_that_is_none_is_refused_with_what_to_do(make_env: MakeEnv) -> None:
    with pytest.raises(ConfigError, match=r"^env\.rewards\.gone: None is no RewardTermCfg; delete it to leave it out$"):
        make_env(rewards={"gone": None})


@pytest.mark.parametrize(
    ("asset", "expected"),
    [
        (None, [0.25, 0.5]),
        (SceneEntityCfg(), [0.25, 0.5]),
        (SceneEntityCfg(joint_names=("y",)), [0.5]),
        (SceneEntityCfg(joint_names=("y", "x")), [0.25, 0.5]),
        (SceneEntityCfg(joint_names=(".*",)), [0.25, 0.5]),
    ],
)
def test_a_term_gets_the_joints_it_names(
    make_env: MakeEnv, asset: SceneEntityCfg | None, expected: list[float]
) -> None:
    term = ObservationTermCfg(func=position, params={} if asset is None else {"asset": asset})
    env = make_env(observations=policy(pos=term), joint_pos={"x": 0.25, "y": 0.5})
    assert env.reset()[0]["policy"].tolist() == [expected] * 4


@pytest.mark.parametrize(("names", "count"), [(None, 2), (("table",), 1)])
def test_a_term_gets_the_bodies_it_names(make_env: MakeEnv, names: tuple[str, ...] | None, count: int) -> None:
    term = ObservationTermCfg(func=bodies, params={"asset": SceneEntityCfg(body_names=names)})
    assert make_env(observations=policy(count=term)).reset()[0]["policy"].tolist() == [[count]] * 4


def test_a_part_of_the_scene_that_is_not_there(make_env: MakeEnv) -> None:
    for asset, message in (
        (SceneEntityCfg(joint_names=("z",)), "^robot joint: nothing is called 'z'"),
        (SceneEntityCfg(body_names=("tabel",)), "^robot body: nothing is called 'tabel'. Did you mean 'table'"),
        (SceneEntityCfg(name="robto"), "^no entity is called 'robto'. Did you mean 'robot'"),
    ):
        with pytest.raises(ConfigError, match=message):
            make_env(rewards={"far": RewardTermCfg(func=total, weight=1.0, params={"asset": asset})})


def test_a_class_is_made_once_and_told_of_resets(make_env: MakeEnv) -> None:
    cfg = RewardTermCfg(func=CallCounter, weight=50.0, params={"factor": 2.0})
    env = make_env(rewards={"calls": cfg}, terminations=ends(99, 2, 99, 2))
    env.reset()
    assert step(env).tolist() == pytest.approx([2.0] * 4)
    assert step(env).tolist() == pytest.approx([4.0] * 4)
    assert step(env).tolist() == pytest.approx([6.0, 2.0, 6.0, 2.0])
    counter = env.reward_manager.terms["calls"]._func
    assert isinstance(counter, CallCounter)
    assert counter.made_with is cfg
    assert counter.resets == [None, [1, 3]]


def test_a_class_needs_no_reset(make_env: MakeEnv) -> None:
    env = make_env(rewards={"calls": RewardTermCfg(func=Forgetless, weight=50.0)}, terminations=ends(1, 1, 1, 1))
    env.reset()
    assert [step(env)[0].item() for _ in range(3)] == pytest.approx([1.0, 2.0, 3.0])


def test_terms_of_every_kind_are_told_of_resets(make_env: MakeEnv) -> None:
    told: list[tuple[str, list[int] | None]] = []

    def listener(kind: str, result: Callable[[ManagerBasedRlEnv], Any]) -> type:
        class Listener:
            def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None: ...

            def __call__(self, env: ManagerBasedRlEnv, *args: Any) -> Any:
                return result(env)

            def reset(self, env_ids: Tensor | None) -> None:
                told.append((kind, None if env_ids is None else env_ids.tolist()))

        return Listener

    env = make_env(
        observations=policy(a=ObservationTermCfg(func=listener("observation", lambda env: torch.zeros(4, 1)))),
        rewards={"a": RewardTermCfg(func=listener("reward", lambda env: torch.zeros(4)), weight=1.0)},
        terminations={
            **ends(99, 1, 99, 99),
            "a": TerminationTermCfg(func=listener("termination", lambda env: torch.zeros(4, dtype=torch.bool))),
        },
        events={"a": EventTermCfg(func=listener("event", lambda env: None), mode="reset")},
        metrics={"a": MetricTermCfg(func=listener("metric", lambda env: torch.zeros(4)))},
    )
    env.reset()
    kinds = {"observation", "reward", "termination", "event", "metric"}
    assert {kind for kind, env_ids in told if env_ids is None} == kinds
    told.clear()
    step(env)
    assert sorted(told) == [(kind, [1]) for kind in sorted(kinds)]


def test_tables_show_every_term(make_env: MakeEnv) -> None:
    long_name = "a_name_that_goes_on_and_on_" * 4
    env = make_env(
        actions={"push": mdp.JointEffortActionCfg(scale={"x": 1.0, "y": 2.0})},
        observations={
            "policy": ObservationGroupCfg(
                terms={
                    "pos": ObservationTermCfg(func=position, noise=symmetric(0.125), clip=(-1.0, 2.0)),
                    long_name: ObservationTermCfg(func=position, noise=GaussianNoiseCfg(std=0.25), scale=(3.0, 4.0)),
                },
                history_length=3,
            ),
            "critic": ObservationGroupCfg(terms={"noiseless": ObservationTermCfg(func=position)}, enable_noise=False),
        },
        rewards={"far": RewardTermCfg(func=total, weight=-0.75)},
        terminations={"late": TerminationTermCfg(func=after, params={"steps": (9,)}, time_out=True)},
        events={"gust": EventTermCfg(func=nothing, mode="interval", interval_range_s=(1.5, 2.5))},
        commands={"where": ConstantCommandCfg(resampling_time_range=(4.0, 5.0))},
        curriculum={"slope": CurriculumTermCfg(func=nothing)},
        metrics={"distance": MetricTermCfg(func=total)},
    )
    expected = {
        env.action_manager: ("push", "JointEffortAction", "x, y", "per joint", "total"),
        env.observation_manager: ("pos", "±0.125", "-1 … 2", "N(0, 0.25)", "noiseless", "3 × 4", "12", "off"),
        env.reward_manager: ("far", "-0.75", "total"),
        env.termination_manager: ("late", "time-out", "after"),
        env.event_manager: ("gust", "interval", "1.5 … 2.5 s", "nothing"),
        env.command_manager: ("where", "3", "4 … 5 s", "ConstantCommand"),
        env.curriculum_manager: ("slope", "nothing"),
        env.metrics_manager: ("distance", "total"),
    }
    for manager, words in expected.items():
        table = str(manager)
        for word in words:
            assert word in table, (word, table)
    # A long name is folded, not cut: the pieces of its cell make it up again.
    cells = [line.split("│")[2].strip() for line in str(env.observation_manager).splitlines() if line.startswith("│")]
    assert long_name in "".join(cells)
    assert max(map(len, str(env.observation_manager).splitlines())) <= 120


def test_a_thing_without_driven_joints_is_no_robot() -> None:
    xml = '<mujoco><worldbody><body name="crate"><geom size=".1"/></body></worldbody></mujoco>'
    crate = RigidObject("crate", RigidObjectCfg(spec=mjcf_text, spec_args={"xml": xml}))
    with pytest.raises(ConfigError, match=r"^'crate' is not an articulation$"):
        Selection(crate, slice(None), slice(None)).robot  # noqa: B018
