"""What terms and managers remember, kept and put back."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from genelab import mdp
from genelab.envs import ManagerBasedRlEnv
from genelab.errors import GenelabError
from genelab.managers import (
    EventTermCfg,
    ObservationGroupCfg,
    ObservationTermCfg,
    RewardTermCfg,
    TermCfg,
    TerminationTermCfg,
)
from genelab.sim import EnvIds
from genelab.state import snapshot, state_of
from tests.futures import assert_same_future, through_a_file
from tests.narrow import as_kind, present

OFFSETS = {"position_range": (0.0, 0.0), "velocity_range": (0.0, 0.0)}
MakeEnv = Callable[..., ManagerBasedRlEnv]

# A third party's term


class Helper:
    def __init__(self) -> None:
        self.total = 0.0


class Remembers:
    """Has memory of every kind, and no code to keep it."""

    not_state = ("lock",)

    def __init__(self, cfg: TermCfg, env: ManagerBasedRlEnv) -> None:
        zeros = torch.zeros(env.num_envs, 1, dtype=env.dtype)
        self.robot, self.command, self.rng = env.robot, env.command_manager, env.rng
        self.calls = 0
        self.log: list[float] = []
        self.recent: deque[Tensor] = deque([zeros] * 3, maxlen=3)
        self.pair = (zeros, zeros)
        self.by_name: dict[str, tuple[float, Tensor] | None] = {"low": None, "high": (1.0, zeros)}
        self.helper = Helper()
        self.counts = zeros.clone()
        self.lock = threading.Lock()

    def __call__(self, env: ManagerBasedRlEnv) -> Tensor:
        place = self.robot.joint_pos[:, :1].clone()
        self.calls += 1
        self.log.append(place.sum().item())
        self.recent.append(place)
        self.pair = (self.pair[1], place)
        self.by_name["high"] = (present(self.by_name["high"])[0] + 0.5, place)
        self.helper.total += 1.0
        self.counts += 1.0
        self.first = getattr(self, "first", place)  # made on first use
        sums = self.calls + sum(self.log) + self.recent[0] + self.pair[0] + present(self.by_name["high"])[0]
        return torch.cat((sums + self.helper.total + self.first, self.counts), dim=1)

    def reset(self, env_ids: EnvIds) -> None:
        self.counts[slice(None) if env_ids is None else env_ids] = 0.0


def remembering() -> dict[str, Any]:
    return {
        "observations": {"policy": ObservationGroupCfg(terms={"it": ObservationTermCfg(func=Remembers)})},
        "actions": {"push": mdp.JointEffortActionCfg()},
        "terminations": {"time_out": TerminationTermCfg(func=mdp.time_out, time_out=True)},
    }


def test_a_third_partys_term_is_kept_without_code_of_its_own(make_env: MakeEnv) -> None:
    first, second = (make_env(**remembering()) for _ in range(2))
    first.reset()
    first.episode_length_buf = torch.tensor([0, 5, 10, 20])
    for _ in range(4):
        first.step(torch.ones(4, 2))
    second.load_state_dict(through_a_file(first.state_dict()))
    term = second.observation_manager.groups["policy"].terms["it"]
    assert term.instance is term._func  # not replaced
    kept = as_kind(term.instance, Remembers)
    assert (kept.calls, len(kept.log), kept.recent.maxlen, type(kept.pair)) == (6, 6, 3, tuple)
    assert isinstance(kept.recent, deque)
    assert kept.helper.total == 6.0
    assert assert_same_future(first, second, steps=30) > 4


def test_what_was_made_later_is_gone_again(make_env: MakeEnv) -> None:
    class Lazy:
        def __init__(self, cfg: TermCfg, env: ManagerBasedRlEnv) -> None:
            pass

        def __call__(self, env: ManagerBasedRlEnv) -> Tensor:
            self.start = getattr(self, "start", env.common_step_counter)
            return torch.full((env.num_envs,), float(self.start))

    env = make_env(rewards={"lazy": RewardTermCfg(func=Lazy, weight=50.0)})
    before = env.state_dict()
    assert env.step(torch.zeros(4, 0))[1].tolist() == [1.0] * 4
    env.load_state_dict(before)
    env.common_step_counter = 7
    assert env.step(torch.zeros(4, 0))[1].tolist() == [8.0] * 4


def test_a_term_may_keep_itself(make_env: MakeEnv) -> None:
    class Keeps:
        def __init__(self, cfg: TermCfg, env: ManagerBasedRlEnv) -> None:
            self.seen: set[int] = set()

        def __call__(self, env: ManagerBasedRlEnv) -> Tensor:
            self.seen.add(env.common_step_counter)
            return torch.full((env.num_envs,), float(len(self.seen)))

        def state_dict(self) -> dict[str, Any]:
            return {"seen": deque(sorted(self.seen))}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            assert isinstance(state["seen"], deque)
            self.seen = set(state["seen"])

    first, second = (make_env(rewards={"own": RewardTermCfg(func=Keeps, weight=1.0)}) for _ in range(2))
    for _ in range(3):
        first.step(torch.zeros(4, 0))
    second.load_state_dict(through_a_file(first.state_dict()))
    assert second.reward_manager.terms["own"].instance.seen == {1, 2, 3}


def holding(value: Any) -> type:
    class Holds:
        def __init__(self, cfg: TermCfg, env: ManagerBasedRlEnv) -> None:
            self.thing = value

        def __call__(self, env: ManagerBasedRlEnv) -> Tensor:
            return torch.zeros(env.num_envs)

    return Holds


@pytest.mark.parametrize(
    ("value", "where", "kind"),
    [
        ({1, 2}, "thing", "set"),
        ([1, {"a": iter(())}], r"thing\.1\.a", "tuple_iterator"),
        (Helper, None, None),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(
    make_env: MakeEnv, value: Any, where: str | None, kind: str | None
) -> None:
    env = make_env(rewards={"bonus": RewardTermCfg(func=holding(value), weight=1.0)})
    if where is None:  # a class is no memory
        env.state_dict()
        return
    with pytest.raises(GenelabError, match=rf"^reward_manager\.terms\.bonus\.{where} cannot be kept: it is a {kind}\."):
        env.state_dict()


def test_another_environments_state_is_refused(make_env: MakeEnv) -> None:
    term = RewardTermCfg(func=mdp.JointAccL2, weight=1.0)
    env = make_env(rewards={"a": term})
    state = env.state_dict()
    of = "^the saved state is of another environment: "
    with pytest.raises(GenelabError, match=of + r"episode_length_buf has the shape \(4,\) there and \(3,\) here"):
        make_env(rewards={"a": term}, num_envs=3).load_state_dict(state)
    noise = EventTermCfg(func=mdp.reset_joints_by_offset, mode="startup", params=OFFSETS)
    with pytest.raises(GenelabError, match=of + r"event_manager\.terms\.b is not in it"):
        make_env(rewards={"a": term}, events={"b": noise}).load_state_dict(state)
    with pytest.raises(GenelabError, match=of + r"there is no event_manager\.terms\.b here"):
        env.load_state_dict(make_env(rewards={"a": term}, events={"b": noise}).state_dict())
    del state["reward_manager"]["episode_sum"]
    with pytest.raises(GenelabError, match=of + r"reward_manager\.episode_sum is not in it"):
        env.load_state_dict(state)
    with pytest.raises(GenelabError, match=of):
        env.load_state_dict({})


@pytest.mark.parametrize("path", [("scene",), ("scene", "engine"), ("reward_manager",), ("reward_manager", "terms")])
@pytest.mark.parametrize("damage", [None, 3, [], {}, "text"])
def test_a_damaged_state_is_refused_in_one_line(make_env: MakeEnv, path: tuple[str, ...], damage: Any) -> None:
    env = make_env(rewards={"a": RewardTermCfg(func=mdp.JointAccL2, weight=1.0)})
    state = env.state_dict()
    owner = state
    for name in path[:-1]:
        owner = owner[name]
    owner[path[-1]] = damage
    with pytest.raises(GenelabError, match=r"^the saved state is of another environment: ") as caught:
        env.load_state_dict(state)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "value"), [("episode_length_buf", "text"), ("num_envs", torch.zeros(4))])
def test_a_value_of_another_kind_is_refused(make_env: MakeEnv, name: str, value: Any) -> None:
    env = make_env()
    with pytest.raises(GenelabError, match=f"{name} is a .+ there and a .+ here"):
        env.load_state_dict({**env.state_dict(), name: value})


class Calls:
    """Holds what is no memory: a function that no two instances share."""

    def __init__(self, cfg: TermCfg, env: ManagerBasedRlEnv) -> None:
        def function(value: float = 1.0) -> float:
            return value

        self.function = function

    def __call__(self, env: ManagerBasedRlEnv) -> Tensor:
        return torch.full((env.num_envs,), self.function())


def test_a_state_changes_memory_and_nothing_else(make_env: MakeEnv) -> None:
    """It may come from a file, which neither changes the config nor what a function is called with."""
    env = make_env(rewards={"a": RewardTermCfg(func=Calls, weight=1.0)})
    decimation = env.cfg.decimation
    of = "^the saved state is of another environment: "
    with pytest.raises(GenelabError, match=of + "cfg is no memory here"):
        env.load_state_dict({**env.state_dict(), "cfg": {"<object>": {"decimation": decimation + 1}}})
    assert env.cfg.decimation == decimation
    state = env.state_dict()
    state["reward_manager"]["terms"]["a"]["function"] = {"<object>": {"__defaults__": (2.0,)}}
    with pytest.raises(GenelabError, match=of + r"there is no reward_manager\.terms\.a\.function here"):
        env.load_state_dict(state)
    assert env.reward_manager.terms["a"].instance.function() == 1.0


def test_a_tensor_that_two_share_stays_shared() -> None:
    class Pair:
        def __init__(self) -> None:
            self.first = torch.zeros(2)
            self.second = self.first

    state = through_a_file(snapshot(state_of(Pair())))
    assert state["first"] is state["second"]


# Models


def test_models_drawn_at_a_reset_are_part_of_the_state(make_env: MakeEnv) -> None:
    params = {"mass_range": (0.5, 2.0), "operation": "scale"}
    terms = {
        **remembering(),
        "events": {"mass": EventTermCfg(func=mdp.randomize_mass, mode="reset", params=params)},
    }
    first, second = (make_env(**terms) for _ in range(2))
    first.reset()
    first.reset()
    assert not torch.equal(*(env.scene.engine.get_model_field("body_mass") for env in (first, second)))
    second.load_state_dict(through_a_file(first.state_dict()))
    for field in ("body_mass", "body_inertia", "body_subtreemass", "dof_invweight0"):
        assert torch.equal(*(env.scene.engine.get_model_field(field) for env in (first, second)))
    assert_same_future(first, second, steps=5)
    fresh = make_env(**{**terms, "events": {}})
    second.load_state_dict({**second.state_dict(), "scene": fresh.state_dict()["scene"]})
    assert torch.equal(
        second.scene.engine.get_model_field("body_mass"), fresh.scene.engine.get_model_field("body_mass")
    )


# Observations


def test_a_term_with_memory_counts_a_step_once(make_env: MakeEnv) -> None:
    env = make_env(**remembering())
    env.reset()
    env.episode_length_buf[0] = 22  # of 25: it times out in the third step
    counted = []
    for _ in range(5):
        observations, *_, info = env.step(torch.zeros(4, 2))
        counted.append(observations["policy"][:, 1].tolist())
        if "final_obs" in info:
            assert info["final_obs"]["policy"][:, 1].tolist() == [4.0] * 4
    # The reset's observation was the first.
    assert counted == [[2.0] * 4, [3.0] * 4, [1.0, 4.0, 4.0, 4.0], [2.0, 5.0, 5.0, 5.0], [3.0, 6.0, 6.0, 6.0]]
    term = env.observation_manager.groups["policy"].terms["it"].instance
    assert term.calls == len(term.log) == 1 + 1 + 5  # the width, the reset, the steps


def test_a_term_with_memory_moves_on_where_an_episode_begins_and_nowhere_else(make_env: MakeEnv) -> None:
    env = make_env(**remembering())
    env.reset()
    for _ in range(2):
        env.step(torch.zeros(4, 2))
    mask = torch.tensor([False, True, False, False])
    again, _ = env.reset(options={"reset_mask": mask})
    assert again["policy"][:, 1].tolist() == [3.0, 1.0, 3.0, 3.0]
    assert env.step(torch.zeros(4, 2))[0]["policy"][:, 1].tolist() == [4.0, 2.0, 4.0, 4.0]
    term = env.observation_manager.groups["policy"].terms["it"].instance
    assert term.calls == len(term.log) == 1 + 1 + 3  # the reset of some is no step of all


def test_a_look_keeps_the_tensors_that_others_hold(make_env: MakeEnv) -> None:
    env = make_env(**remembering())
    env.reset()
    term = env.observation_manager.groups["policy"].terms["it"].instance
    held = term.counts
    env.observation_manager.compute(keep=False)
    assert term.counts is held
    assert held.tolist() == [[1.0]] * 4
