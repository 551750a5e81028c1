"""The RL environment: Gymnasium's contract, determinism, resets."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

from genelab import mdp
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, StepResult, rl_cfg
from genelab.errors import ConfigError
from genelab.managers import EventTermCfg, TerminationTermCfg
from genelab.scene import (
    ArticulationCfg,
    IdealPdActuatorCfg,
    ImplicitPdActuatorCfg,
    InitialStateCfg,
    SceneCfg,
    mjcf_text,
)
from genelab.scene.actuators import ActuatorCfg
from genelab.sim import SimulationCfg
from tests.narrow import as_kind

PENDULUM = "GeneLab-Inverted-Pendulum-v0"


def cfg_of(task: str = PENDULUM, num_envs: int = 8, **changes: object) -> ManagerBasedRlEnvCfg:
    cfg = rl_cfg(task)
    cfg.scene.num_envs = num_envs
    for name, value in changes.items():
        setattr(cfg, name, value)
    return cfg


def make(task: str = PENDULUM, num_envs: int = 8, **changes: object) -> ManagerBasedRlEnv:
    return ManagerBasedRlEnv(cfg_of(task, num_envs, **changes))


def rollout(env: ManagerBasedRlEnv, seed: int, steps: int = 200) -> list[Tensor]:
    """Everything the environment says, under actions that make episodes end."""
    generator = torch.Generator().manual_seed(99)
    observations, _ = env.reset(seed=seed)
    said = [*observations.values()]
    ends = 0
    for _ in range(steps):
        action = 2 * torch.rand(env.num_envs, env.action_dim, generator=generator) - 1
        observations, reward, terminated, truncated, _ = env.step(action)
        ends += int((terminated | truncated).sum())
        said += [*observations.values(), reward, terminated, truncated]
    assert ends > 10
    return said


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_same_seed_same_observations_bit_for_bit_whatever_the_threads() -> None:
    reference = rollout(make(), seed=5)
    for threads in (1, 2, 4):
        env = make()
        env.cfg.simulation.threads = threads
        assert same(reference, rollout(ManagerBasedRlEnv(env.cfg), seed=5))


def test_seeding_again_repeats_the_run_in_the_same_environment() -> None:
    env = make()
    assert same(rollout(env, seed=5), rollout(env, seed=5))


def test_another_seed_differs() -> None:
    env = make()
    assert not same(rollout(env, seed=5), rollout(env, seed=6))


def test_the_global_random_state_does_not_matter() -> None:
    torch.manual_seed(0)
    first = rollout(make(), seed=5)
    torch.manual_seed(1)
    assert same(first, rollout(make(), seed=5))


def test_an_unset_seed_is_drawn_and_known() -> None:
    env = make()
    again = make(seed=env.seed)
    assert env.seed != make().seed
    assert torch.equal(env.reset()[0]["policy"], again.reset()[0]["policy"])


def test_permuting_states_and_actions_permutes_the_results() -> None:
    order = torch.randperm(8, generator=torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(4)
    start = torch.rand(8, 2, generator=generator) * 0.1
    actions = 2 * torch.rand(40, 8, 1, generator=generator) - 1

    def run(order: Tensor) -> Tensor:
        cfg = cfg_of(terminations={})
        cfg.observations["policy"].enable_noise = False
        cfg.events = {}
        env = ManagerBasedRlEnv(cfg)
        env.reset(seed=0)
        env.robot.write_joint_state(start[order], None, None)
        return torch.stack([env.step(action[order])[0]["policy"] for action in actions])

    assert torch.equal(run(torch.arange(8))[:, order], run(order))


def test_it_is_a_gymnasium_vector_environment() -> None:
    env = gymnasium.make_vec(PENDULUM, num_envs=16)
    assert isinstance(env.unwrapped, gymnasium.vector.VectorEnv)
    assert env.num_envs == 16
    spaces = as_kind(env.observation_space, gymnasium.spaces.Dict)
    assert spaces["policy"].shape == (16, 8)
    assert as_kind(env.single_observation_space, gymnasium.spaces.Dict)["critic"].shape == (8,)
    assert env.action_space.shape == (16, 1)
    observations, info = env.reset(seed=3)
    assert observations["policy"].numpy() in spaces["policy"]
    assert info == {}
    result = env.step(env.action_space.sample())
    assert len(result) == 5
    observations, reward, terminated, truncated, _ = result
    assert reward.shape == terminated.shape == truncated.shape == (16,)
    assert terminated.dtype == truncated.dtype == torch.bool
    assert env.metadata["autoreset_mode"] == gymnasium.vector.AutoresetMode.SAME_STEP
    env.close()
    env.close()


def test_make_vec_takes_overrides_and_the_play_config() -> None:
    env = gymnasium.make_vec(PENDULUM, num_envs=2, play=True, seed=7, overrides={"env.simulation.dt": 0.002})
    made = as_kind(env.unwrapped, ManagerBasedRlEnv)
    assert (made.physics_dt, made.seed) == (0.002, 7)
    assert not made.cfg.observations["policy"].enable_noise
    with pytest.raises(ConfigError, match=r"env.simulation.dtt"):
        gymnasium.make_vec(PENDULUM, num_envs=2, overrides={"env.simulation.dtt": 0.002})


def test_numpy_actions_act_like_tensors() -> None:
    a, b = make(), make()
    a.reset(seed=0)
    b.reset(seed=0)
    action = np.linspace(-1, 1, 8, dtype=np.float32)[:, None]
    assert torch.equal(a.step(action)[0]["policy"], b.step(torch.from_numpy(action))[0]["policy"])


def quiet(**changes: Any) -> ManagerBasedRlEnvCfg:
    """No noise and no pushes, so that observations are the state."""
    cfg = cfg_of(**changes)
    for group in cfg.observations.values():
        group.enable_noise = False
    del cfg.events["push_cart"]
    return cfg


def fall(env: ManagerBasedRlEnv, env_id: int) -> StepResult:
    """Lay the pole of one environment down, then step."""
    env.robot.write_joint_state(torch.full((1, 1), 0.8), None, torch.tensor([env_id]), torch.tensor([1]))
    return env.step(torch.zeros(env.num_envs, 1))


def test_the_first_observation_after_a_reset_is_of_the_new_state() -> None:
    env = ManagerBasedRlEnv(quiet())
    env.reset(seed=0)
    observations, _, terminated, _, _ = fall(env, 3)
    assert terminated.tolist() == [False, False, False, True, False, False, False, False]
    assert torch.equal(observations["policy"][:, :2], env.robot.joint_pos)
    assert observations["policy"][3, :2].abs().max() <= 0.05
    # The velocity of the pole seen by the frame sensor is that of the new state, too.
    torch.testing.assert_close(observations["policy"][:, 5], 0.2 * env.robot.joint_vel[:, 1])
    assert observations["policy"][3, 7] == 0.0  # no last action


@pytest.mark.parametrize("actuator", [ImplicitPdActuatorCfg, IdealPdActuatorCfg])
def test_the_servos_hold_their_default_targets_from_the_reset_on(actuator: Callable[..., ActuatorCfg]) -> None:
    """100 N/m, put 0.1 m beyond the target of 0.5 m: the first observation feels −10 N, and not −60 N."""
    xml = """<mujoco><worldbody><body name="b"><joint name="j" type="slide" axis="1 0 0"/><geom size=".1"/></body>
        </worldbody></mujoco>"""
    robot = ArticulationCfg(
        spec=mjcf_text,
        spec_args={"xml": xml},
        init_state=InitialStateCfg(joint_pos={"j": 0.5}),
        actuators={"servo": actuator(joint_names=("j",), stiffness=100.0, damping=1.0)},
    )
    params = {"position_range": (0.1, 0.1), "velocity_range": (0.0, 0.0)}
    cfg = ManagerBasedRlEnvCfg(
        scene=SceneCfg(num_envs=2, entities={"robot": robot}),
        simulation=SimulationCfg(precision=64),
        episode_length_s=1.0,
        actions={"j": mdp.JointPositionActionCfg()},
        events={"move": EventTermCfg(func=mdp.reset_joints_by_offset, mode="reset", params=params)},
    )
    env = ManagerBasedRlEnv(cfg)
    env.reset()
    assert env.robot.joint_effort.flatten().tolist() == pytest.approx([-10.0, -10.0])
    env.step(torch.ones(2, 1))
    before = env.scene.engine.ctrl
    env._reset_envs(torch.tensor([1]))
    assert env.robot.joint_effort[1].item() == pytest.approx(-10.0)
    assert torch.equal(env.scene.engine.ctrl[0], before[0])  # the other goes on as it was
    env.close()


def test_final_obs_is_the_last_one_of_the_old_episode() -> None:
    env = ManagerBasedRlEnv(quiet())
    env.reset(seed=0)
    _, _, terminated, _, info = fall(env, 3)
    assert torch.equal(info["_final_obs"], terminated)
    assert info["final_obs"]["policy"][3, 1] > 0.8
    assert env.robot.joint_pos[3, 1].abs() <= 0.05


def test_last_observations_that_nobody_reads_are_not_made() -> None:
    env = ManagerBasedRlEnv(quiet())
    env.reset(seed=0)
    env.shows_final_obs = False
    _, _, terminated, _, info = fall(env, 3)
    assert terminated.any()
    assert "final_obs" not in info
    assert "log" in info


def test_nothing_ends_nothing_final() -> None:
    env = ManagerBasedRlEnv(quiet())
    env.reset(seed=0)
    *_, info = env.step(torch.zeros(8, 1))
    assert "final_obs" not in info
    assert "log" not in info


def test_a_reset_leaves_the_others_alone() -> None:
    with_reset, without = ManagerBasedRlEnv(quiet()), ManagerBasedRlEnv(quiet())
    for env in (with_reset, without):
        env.reset(seed=0)
    fall(with_reset, 3)
    without.step(torch.zeros(8, 1))
    others = [0, 1, 2, 4, 5, 6, 7]
    for _ in range(20):
        a = with_reset.step(torch.zeros(8, 1))[0]["policy"]
        b = without.step(torch.zeros(8, 1))[0]["policy"]
    assert torch.equal(a[others], b[others])
    assert not torch.equal(a[3], b[3])


def test_time_out_truncates_after_the_exact_number_of_steps() -> None:
    cfg = quiet(episode_length_s=0.1)
    env = ManagerBasedRlEnv(cfg)
    env.reset(seed=0)
    assert env.max_episode_length == 10
    for i in range(1, 31):
        _, _, terminated, truncated, info = env.step(torch.zeros(8, 1))
        assert not terminated.any()
        assert truncated.all() == truncated.any() == (i % 10 == 0)
        assert torch.equal(info["time_outs"], truncated)


def test_without_auto_reset_an_ended_environment_goes_on() -> None:
    env = ManagerBasedRlEnv(quiet(auto_reset=False))
    env.reset(seed=0)
    _, _, terminated, _, info = fall(env, 3)
    assert terminated[3]
    assert "final_obs" not in info
    assert env.robot.joint_pos[3, 1] > 0.8
    assert env.episode_length_buf[3] == 1


def test_the_log_of_ended_episodes_has_isaacs_keys() -> None:
    env = ManagerBasedRlEnv(quiet())
    env.reset(seed=0)
    *_, info = fall(env, 3)
    assert info["log"]["Episode_Termination/pole_fell"] == 1
    assert info["log"]["Episode_Termination/time_out"] == 0
    # One step with the pole fallen: nobody is alive, so nothing is earned for it.
    assert info["log"]["Episode_Reward/alive"] == 0.0
    assert info["log"]["Episode_Reward/upright"].item() == pytest.approx(3 * np.cos(0.8) * 0.01 / 10, rel=0.05)


def test_at_the_upright_rest_a_step_earns_four_hundredths() -> None:
    cfg = quiet()
    cfg.events = {}
    env = ManagerBasedRlEnv(cfg)
    env.reset(seed=0)
    _, reward, *_ = env.step(torch.zeros(8, 1))
    torch.testing.assert_close(reward, torch.full((8,), 0.04))


def test_a_term_publishes_success_in_info() -> None:
    cfg = quiet()
    cfg.terminations["goal"] = TerminationTermCfg(func=_success_at_home)
    env = ManagerBasedRlEnv(cfg)
    env.reset(seed=0)
    *_, info = env.step(torch.zeros(8, 1))
    assert info["is_success"].tolist() == [True] * 8


def _success_at_home(env: ManagerBasedRlEnv) -> Tensor:
    env.extras["is_success"] = env.robot.joint_pos[:, 0].abs() < 1.0
    return torch.zeros(env.num_envs, dtype=torch.bool)


def test_the_config_is_not_changed_by_running() -> None:
    cfg = cfg_of()
    before = copy.deepcopy(cfg)
    env = ManagerBasedRlEnv(cfg)
    rollout(env, seed=1)
    assert cfg == before


def test_a_step_leaves_torchs_threads_as_they_were() -> None:
    env = make()
    env.reset(seed=0)
    torch.set_num_threads(2)
    env.step(torch.zeros(8, 1))
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decimation": 0}, "env.decimation: must be at least 1, got 0"),
        ({"episode_length_s": 0.0}, "env.episode_length_s: must be positive"),
        ({"num_envs": 0}, "env.scene.num_envs: must be at least 1, got 0"),
    ],
)
def test_impossible_settings_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**change)
