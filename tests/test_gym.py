"""Tasks as Gymnasium environments: the official checks, its wrappers, and other libraries on top."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import wrappers as single
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as wrappers

from genelab import TASKS
from genelab.envs import NotFiniteError
from genelab.errors import UsageError
from genelab.gym import VectorTask
from tests.lacking import lacking

TASK = "GeneLab-Inverted-Pendulum-v0"
SHORT = {"env.episode_length_s": 0.1}


@pytest.fixture
def vec() -> Iterator[Any]:
    """Makes vector environments of three, and closes them."""
    made: list[Any] = []

    def make(**options: Any) -> Any:
        made.append(gymnasium.make_vec(TASK, num_envs=3, **options))
        return made[-1]

    yield make
    for env in made:
        env.close()


def torchrl_envs() -> Any:
    """`torchrl.envs`, which the extra `dev` brings."""
    try:
        return importlib.import_module("torchrl.envs")
    except ImportError as error:
        lacking(str(error))


def zeros(env: Any) -> np.ndarray:
    return np.zeros(env.action_space.shape, np.float32)


def test_one_environment_passes_gymnasiums_checks() -> None:
    env = gymnasium.make(TASK)
    check_env(env.unwrapped, skip_render_check=True)
    observation, _ = env.reset(seed=3)
    assert env.observation_space.contains(observation)
    observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
    assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
    assert observation.dtype == np.float32
    env.close()


def test_a_task_that_comes_later_is_known_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)
    with TASKS.temporarily():
        TASKS.register("Mine-v0", lambda: TASKS.get(TASK))
        TASKS.register("no id of Gymnasium's", lambda: TASKS.get(TASK))
        env = gymnasium.make_vec("Mine-v0", num_envs=2, numpy=True, group="policy")
        assert env.reset(seed=0)[0].shape[0] == 2
        env.close()
    assert "no id of Gymnasium's" not in gymnasium.registry


def test_arrays_and_one_group(vec: Any) -> None:
    env = vec(numpy=True, group="policy", overrides=SHORT)
    assert isinstance(env, VectorTask)
    assert env.observation_space.contains(env.reset(seed=0)[0])
    both = vec(numpy=True)
    assert both.observation_space.contains(both.reset(seed=0)[0])
    for _ in range(10):
        observation, reward, terminated, truncated, info = env.step(zeros(env))
    assert {type(part) for part in (observation, reward, terminated, truncated)} == {np.ndarray}
    assert truncated.tolist() == info["_final_obs"].tolist() == [True] * 3
    assert np.stack(info["final_obs"]).shape == observation.shape
    assert "log" not in info
    with pytest.raises(UsageError, match=r"^group: no observation group is called 'polcy'\. Did you mean 'policy'\?$"):
        vec(group="polcy")


def test_an_episode_that_ended_is_reset_in_the_next_step(vec: Any) -> None:
    env = vec(numpy=True, group="policy", autoreset_mode="next_step", overrides=SHORT)
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    env.reset(seed=0)
    results = [env.step(zeros(env)) for _ in range(11)]
    assert [bool(step[3].any()) for step in results] == [False] * 9 + [True, False]
    assert (results[10][1] == 0.0).all()
    assert env.env.episode_length_buf.tolist() == [0, 0, 0]
    assert [bool(env.step(zeros(env))[3].any()) for _ in range(10)] == [False] * 9 + [True]


STACKED = {
    "env.observations.policy.history_length": 3,
    "env.observations.policy.terms.joint_pos.delay": (1, 3),
    "env.actions.cart.delay": (0, 2),
}


def test_a_reset_in_the_next_step_leaves_the_others_alone(vec: Any) -> None:
    """One environment times out early: noise-free, all that differs between the modes is that it is a step behind."""
    runs, logs = [], []
    for mode in ("same_step", "next_step"):
        env = vec(numpy=True, group="policy", autoreset_mode=mode, play=True, overrides=STACKED)
        env.reset(seed=0)
        env.env.episode_length_buf[1] = env.env.max_episode_length - 6
        actions = np.random.default_rng(0).uniform(-0.3, 0.3, (30, 3, 1)).astype(np.float32)
        actions[:, 1] = 0.1
        steps = []
        for action in actions:
            steps.append(env.step(action))
            logs += [env.env.extras["log"]] if "log" in env.env.extras else []
        runs.append(steps)
    same, later = runs
    ends = [step[3].tolist() for step in later]
    assert ends == [step[3].tolist() for step in same]
    assert ends[5] == [False, True, False]
    for one, two in zip(same, later, strict=True):
        assert (one[0][[0, 2]] == two[0][[0, 2]]).all()
        assert (one[1][[0, 2]] == two[1][[0, 2]]).all()
    assert (later[5][0][1] == same[5][4]["final_obs"][1]).all()
    assert all((one[0][1] == two[0][1]).all() for one, two in zip(same[5:-1], later[6:], strict=True))
    assert later[6][1][1] == 0.0
    assert all(one[1][1] == two[1][1] for one, two in zip(same[6:-1], later[7:], strict=True))
    assert logs[0].keys() == logs[1].keys()
    assert all(logs[0][key] == logs[1][key] for key in logs[0]), "the step of the reset does not count"


def test_noise_and_history_move_on_once_in_every_step(vec: Any) -> None:
    env = vec(numpy=True, group="policy", autoreset_mode="next_step", overrides=STACKED)
    before, _ = env.reset(seed=0)
    env.env.episode_length_buf[1] = env.env.max_episode_length - 3
    frame = before.shape[1] // 3
    for step in range(8):
        observation, *_, truncated, _ = env.step(zeros(env))
        assert truncated.tolist() == [False, step == 2, False]
        others = [0, 2] if step == 3 else [0, 1, 2]
        assert (observation[others, :-frame] == before[others, frame:]).all()
        assert (observation[:, -frame:] != before[:, -frame:]).any(axis=1).all()
        before = observation


def test_arrays_belong_to_the_caller(vec: Any) -> None:
    env = vec(numpy=True, group="policy", autoreset_mode="disabled", overrides=STACKED)
    seen, _ = env.reset(seed=0)
    kept = seen.copy()
    seen[:] = 7.0
    again, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert (again[[0, 2]] == kept[[0, 2]]).all()


def test_what_was_told_of_the_last_step_is_told_as_gymnasium_does(vec: Any) -> None:
    def make() -> Any:
        return gymnasium.make(TASK, play=True, overrides=SHORT)

    theirs: Any = gymnasium.vector.SyncVectorEnv([make] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    ours = vec(numpy=True, group="policy", play=True, overrides=SHORT)
    infos = []
    for env in (theirs, ours):
        env.reset(seed=0)
        (theirs.envs[0].unwrapped if env is theirs else env).env.episode_length_buf[0] = 5
        infos.append([env.step(zeros(env))[4] for _ in range(5)][-1])
    theirs.close()
    for info in infos:
        assert info["_final_obs"].tolist() == info["_final_info"].tolist() == [True, False, False]
        assert info["final_obs"].dtype == object
        assert [last is None for last in info["final_obs"]] == [False, True, True]
        assert info["final_obs"][0].shape == (8,)
        assert info["final_info"]["time_outs"][0]
        assert info["final_info"]["_time_outs"].tolist() == [True, False, False]
    assert set(infos[0]["final_info"]) == set(infos[1]["final_info"])
    tensors = vec(overrides=SHORT)
    tensors.reset(seed=0)
    info = [tensors.step(torch.zeros(3, 1))[4] for _ in range(10)][-1]
    assert info["final_obs"]["policy"].shape == (3, 8)
    assert info["final_info"]["time_outs"].tolist() == [True] * 3


def test_a_number_that_is_not_finite_is_named_and_not_handed_on(vec: Any) -> None:
    for options in ({}, {"numpy": True, "group": "policy"}):
        env = vec(**options)
        env.reset(seed=0)
        engine = getattr(env, "env", env).scene.engine
        engine.write_qvel(torch.full((1, 1), torch.nan), [0], torch.tensor([1]))
        with pytest.raises(NotFiniteError, match=r"^not a finite number in environment 1: the physics, reward "):
            env.step(np.zeros((3, 1), np.float32))


def test_some_environments_start_anew(vec: Any) -> None:
    env = vec(numpy=True, group="policy", autoreset_mode=AutoresetMode.DISABLED, play=True)  # without noise
    env.reset(seed=0)
    before = [env.step(zeros(env))[0] for _ in range(5)][-1]
    after, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert (after[[0, 2]] == before[[0, 2]]).all()
    assert (after[1] != before[1]).any()
    assert env.env.episode_length_buf.tolist() == [5, 0, 5]
    with pytest.raises(UsageError, match=r"reset_mask must be 3 booleans, got \(2,\)"):
        env.reset(options={"reset_mask": np.array([True, False])})


def test_seeds_of_all_kinds(vec: Any) -> None:
    env = vec(numpy=True, group="policy")
    starts = [env.reset(seed=seed)[0] for seed in (5, np.int64(5), [1, 2, 3], (1, 2, 3), [1, 2, 4])]
    assert (starts[0] == starts[1]).all()
    assert (starts[2] == starts[3]).all()
    assert (starts[3] != starts[4]).any()
    assert env.reset(seed=[None] * 3)[0].shape == starts[0].shape
    with pytest.raises(UsageError, match=r"^reset: 2 seeds for 3 environments$"):
        env.reset(seed=[1, 2])
    with pytest.raises(UsageError, match=r"^reset: a seed is an integer, or one for each environment, got 1\.5$"):
        env.reset(seed=1.5)


def test_what_makes_no_sense_is_refused(vec: Any) -> None:
    env = vec()
    env.reset(seed=0)
    with pytest.raises(NotFiniteError, match=r"^not a finite number in environment 0 \(and 2 more\): the action\."):
        env.step(torch.full((3, 1), torch.nan))
    env.close()
    for use in (lambda: env.step(zeros(env)), env.reset):
        with pytest.raises(UsageError, match=r"^this environment is closed: make a new one$"):
            use()
    with pytest.raises(UsageError, match=r"^render_mode: 'human' is not known"):
        vec(render_mode="human")
    with pytest.raises(UsageError, match=r"^render_size: must be width and height in pixels, got \(0, 48\)$"):
        vec(render_mode="rgb_array", render_size=(0, 48))
    with pytest.raises(UsageError, match=r"^autoreset_mode: 'later' is none of next_step, same_step, disabled$"):
        vec(autoreset_mode="later")


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
def test_gymnasiums_wrappers_work_on_it(vec: Any, mode: str) -> None:
    env = vec(numpy=True, group="policy", autoreset_mode=mode, overrides=SHORT)
    for wrap in (
        wrappers.RecordEpisodeStatistics,
        wrappers.NormalizeReward,
        lambda env: wrappers.RescaleAction(env, -1.0, 1.0),
        wrappers.ClipAction,
        lambda env: wrappers.ClipReward(env, -1.0, 1.0),
        lambda env: wrappers.TransformReward(env, lambda reward: 2.0 * reward),
        wrappers.DictInfoToList,
    ):
        env = wrap(env)
    env.reset(seed=0)
    infos = [env.step(zeros(env))[4] for _ in range(11)]
    assert any("episode" in info for step in infos for info in step)


@pytest.mark.parametrize("mode", ["next_step", "disabled"])
def test_gymnasiums_wrappers_of_observations_do_not_want_the_same_step(vec: Any, mode: str) -> None:
    env: Any = wrappers.FlattenObservation(vec(numpy=True, group="policy", autoreset_mode=mode, overrides=SHORT))
    if mode == "next_step":
        env = wrappers.NormalizeObservation(env)
    env = wrappers.DtypeObservation(env, np.float64)
    env.reset(seed=0)
    observations = [env.step(zeros(env))[0] for _ in range(20)]
    assert observations[-1].dtype == np.float64


def test_one_environment_among_gymnasiums_own() -> None:
    def make() -> Any:
        return single.NormalizeObservation(single.ClipAction(gymnasium.make(TASK, overrides=SHORT)))

    env = single.vector.RecordEpisodeStatistics(gymnasium.vector.SyncVectorEnv([make, make]))
    env.reset(seed=0)
    infos = [env.step(zeros(env))[4] for _ in range(11)]
    assert any("episode" in info for info in infos)
    env.close()


def test_films_of_gymnasium(vec: Any, tmp_path: Path) -> None:
    pytest.importorskip("moviepy", reason="gymnasium's RecordVideo writes with moviepy")
    env = wrappers.RecordVideo(vec(numpy=True, group="policy", render_mode="rgb_array"), str(tmp_path), video_length=3)
    env.reset(seed=0)
    for _ in range(4):
        env.step(zeros(env))
    env.close()
    assert list(tmp_path.glob("*.mp4"))


def test_pictures(vec: Any) -> None:
    env = vec(render_mode="rgb_array", render_size=(64, 48))
    assert env.reset(seed=0)[0]["policy"].shape[0] == 3
    pictures = env.render()
    assert [picture.shape for picture in pictures] == [(48, 64, 3)] * 3
    assert pictures[0].std() > 5
    single: Any = gymnasium.make(TASK, render_mode="rgb_array", render_size=(64, 48))
    single.reset(seed=0)
    assert single.render().shape == (48, 64, 3)
    assert single.metadata["render_fps"] == 100
    single.close()


def test_skrls_own_wrapper_sees_the_policys_group_alone(vec: Any) -> None:
    wrap_env = pytest.importorskip("skrl.envs.wrappers.torch").wrap_env
    env = vec(numpy=True, group="policy")
    wrapped = wrap_env(env, wrapper="gymnasium")
    observations, _ = wrapped.reset()
    assert observations.shape == (3, env.env.observation_manager.groups["policy"].dim)
    observations, reward, *_ = wrapped.step(torch.zeros(3, 1))
    assert (observations.shape[0], reward.shape) == (3, (3, 1))


def test_sb3_takes_it_as_it_is() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    pytest.importorskip("stable_baselines3.common.env_checker").check_env(gymnasium.make(TASK).unwrapped)
    model = sb3.PPO("MlpPolicy", gymnasium.make(TASK), n_steps=16, batch_size=16, n_epochs=1, device="cpu")
    model.learn(32)
    assert model.num_timesteps == 32


def test_torchrls_own_wrapper(vec: Any) -> None:
    envs = torchrl_envs()
    env = envs.GymWrapper(vec(numpy=True, group="policy", overrides=SHORT))
    envs.check_env_specs(env)
    rollout = env.rollout(12, break_when_any_done=False)
    assert rollout["observation"].shape == (3, 12, env.observation_spec["observation"].shape[-1])
    assert rollout["next", "truncated"][0, :, 0].tolist() == [False] * 9 + [True, False, False]
    # The last observation of an episode is its own; the next one begins with another.
    after, before = rollout["next", "observation"][:, :-1], rollout["observation"][:, 1:]
    assert (after == before).all(dim=(0, 2)).tolist() == [True] * 9 + [False, True]


@pytest.mark.parametrize("options", [{}, {"numpy": True, "autoreset_mode": "disabled"}])
def test_torchrl_takes_all_groups_and_resets_by_itself(vec: Any, options: dict[str, Any]) -> None:
    envs = torchrl_envs()
    rollout = envs.GymWrapper(vec(**options, overrides=SHORT)).rollout(12, break_when_any_done=False)
    assert {"policy", "critic"} <= set(rollout.keys())
    assert rollout["next", "done"][0, :, 0].tolist() == [False] * 9 + [True, False, False]


def test_torchrl_makes_a_task_by_its_id() -> None:
    env = torchrl_envs().GymEnv(TASK)
    assert env.rollout(4, break_when_any_done=False)["observation"].shape[0] == 4
    env.close()
