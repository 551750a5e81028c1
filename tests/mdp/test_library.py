"""The terms of `genelab.mdp` on a state that is set by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from genelab import mdp
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, play_cfg, rl_cfg
from genelab.errors import ConfigError
from genelab.managers import (
    EventTermCfg,
    ObservationGroupCfg,
    ObservationTermCfg,
    RewardTermCfg,
    SceneEntityCfg,
    TerminationTermCfg,
)
from genelab.scene import (
    ArticulationCfg,
    ContactSensorCfg,
    FrameSensorCfg,
    IdealPdActuatorCfg,
    InitialStateCfg,
    SceneCfg,
    mjcf_text,
)
from genelab.sim import SimulationCfg

MakeEnv = Callable[..., ManagerBasedRlEnv]

CARTPOLE = """
<mujoco>
  <worldbody>
    <body name="cart">
      <joint name="slide" type="slide" axis="1 0 0" range="-1 1"/>
      <geom size=".1" mass="1"/>
      <body name="pole">
        <joint name="hinge" axis="0 1 0"/>
        <geom size=".05" pos="0 0 .5" mass=".1"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
SLIDE = SceneEntityCfg(joint_names=("slide",))


@pytest.fixture
def make_env() -> Iterator[MakeEnv]:
    envs = []

    def make(num_envs: int = 4, **terms: Any) -> ManagerBasedRlEnv:
        robot = ArticulationCfg(
            spec=mjcf_text,
            spec_args={"xml": CARTPOLE},
            init_state=InitialStateCfg(joint_pos={"slide": 0.5}, joint_vel={"hinge": 0.25}),
            actuators={"motor": IdealPdActuatorCfg(joint_names=("slide",))},
        )
        sensors = {
            "tip": FrameSensorCfg(entity="robot", body="pole"),
            "touch": ContactSensorCfg(entity="robot", bodies=("pole",)),
        }
        cfg = ManagerBasedRlEnvCfg(
            scene=SceneCfg(num_envs=num_envs, entities={"robot": robot}, sensors=sensors),
            simulation=SimulationCfg(engine="mujoco", precision=64, threads=1, gravity=(0.0, 0.0, 0.0)),
            episode_length_s=0.05,
            seed=1,
            actions={"push": mdp.JointEffortActionCfg(joint_names=("slide",))},
            **terms,
        )
        envs.append(ManagerBasedRlEnv(cfg))
        return envs[-1]

    yield make
    for env in envs:
        env.close()


def value(env: ManagerBasedRlEnv, func: Callable[..., Tensor], **params: Any) -> Any:
    """What an observation or a reward term says now, of the second environment."""
    group = func in (mdp.joint_pos_rel, mdp.joint_vel_rel, mdp.last_action, mdp.frame_ang_vel)
    if group:
        groups = {"policy": ObservationGroupCfg(terms={"term": ObservationTermCfg(func=func, params=params)})}
        return type(env.observation_manager)(groups, env).compute()["policy"][1].tolist()
    manager = type(env.reward_manager)({"term": RewardTermCfg(func=func, params=params, weight=1 / env.step_dt)}, env)
    return manager.compute()[1].item()


def posed(env: ManagerBasedRlEnv) -> ManagerBasedRlEnv:
    """Slide at 0.75 m and −2 m/s, hinge at 60° and 3 rad/s."""
    env.reset()
    pos = torch.tensor([[0.75, math.pi / 3]], dtype=torch.float64)
    vel = torch.tensor([[-2.0, 3.0]], dtype=torch.float64)
    env.robot.write_joint_state(pos.repeat(env.num_envs, 1), vel.repeat(env.num_envs, 1), None)
    env.scene.engine.refresh()
    return env


def test_observations(make_env: MakeEnv) -> None:
    env = posed(make_env())
    assert value(env, mdp.joint_pos_rel) == pytest.approx([0.25, math.pi / 3])
    assert value(env, mdp.joint_pos_rel, asset=SLIDE) == pytest.approx([0.25])
    assert value(env, mdp.joint_vel_rel) == pytest.approx([-2.0, 2.75])
    assert value(env, mdp.frame_ang_vel, sensor="tip") == pytest.approx([0.0, 3.0, 0.0])
    env.step(torch.full((4, 1), 0.5))
    assert value(env, mdp.last_action) == [0.5]


def test_a_contact_has_no_angular_velocity(make_env: MakeEnv) -> None:
    with pytest.raises(ConfigError, match=r"^the sensor 'touch' is a ContactSensor, not a FrameSensor$"):
        value(make_env(), mdp.frame_ang_vel, sensor="touch")


def test_rewards(make_env: MakeEnv) -> None:
    env = posed(make_env())
    assert value(env, mdp.joint_pos_l2) == pytest.approx(0.75**2 + (math.pi / 3) ** 2)
    assert value(env, mdp.joint_pos_l2, asset=SLIDE) == pytest.approx(0.75**2)
    assert value(env, mdp.joint_vel_l2) == pytest.approx(4.0 + 9.0)
    assert value(env, mdp.joint_cos) == pytest.approx((math.cos(0.75) + 0.5) / 2)
    assert value(env, mdp.is_alive) == pytest.approx(1.0)
    env.step(torch.full((4, 1), 0.5))
    env.step(torch.full((4, 1), -1.0))
    assert value(env, mdp.action_rate_l2) == pytest.approx(1.5**2)


def test_who_failed_is_not_alive_and_who_ran_out_of_time_is(make_env: MakeEnv) -> None:
    beyond = TerminationTermCfg(func=mdp.joint_pos_beyond, params={"bound": 0.6, "asset": SLIDE})
    env = make_env(
        rewards={"alive": RewardTermCfg(func=mdp.is_alive, weight=200.0)},
        terminations={"time_out": TerminationTermCfg(func=mdp.time_out, time_out=True), "beyond": beyond},
    )
    env.reset()
    env.robot.write_joint_state(torch.tensor([[0.7], [-0.7]]), None, torch.tensor([1, 2]), torch.tensor([0]))
    _, reward, terminated, truncated, _ = env.step(torch.zeros(4, 1))
    assert terminated.tolist() == [False, True, True, False]
    assert reward.tolist() == pytest.approx([1.0, 0.0, 0.0, 1.0])
    for _ in range(9):  # 0.05 s are ten steps
        assert not truncated.any()
        _, reward, terminated, truncated, _ = env.step(torch.zeros(4, 1))
    assert truncated.tolist() == [True, False, False, True]
    assert reward.tolist() == pytest.approx([1.0] * 4)


def test_joints_are_reset_near_their_default_and_inside_their_limits(make_env: MakeEnv) -> None:
    params = {"position_range": (-0.25, 1.0), "velocity_range": (2.0, 2.5)}
    event = EventTermCfg(func=mdp.reset_joints_by_offset, mode="reset", params=params)
    env = make_env(num_envs=500, events={"joints": event})
    env.reset()
    slide, hinge = env.robot.joint_pos.unbind(dim=1)
    assert slide.max() == 1.0  # the limit, where 0.5 + 1 would be beyond
    assert slide.min().item() == pytest.approx(0.25, abs=0.02)
    assert hinge.min().item() == pytest.approx(-0.25, abs=0.02)
    assert hinge.max().item() == pytest.approx(1.0, abs=0.02)
    speed = env.robot.joint_vel
    assert speed.amin(dim=0).tolist() == pytest.approx([2.0, 2.25], abs=0.02)
    assert speed.amax(dim=0).tolist() == pytest.approx([2.5, 2.75], abs=0.02)


def test_a_joint_gets_another_velocity(make_env: MakeEnv) -> None:
    params = {"velocity_range": (3.0, 3.0), "asset": SLIDE}
    event = EventTermCfg(func=mdp.set_joint_velocity, mode="interval", interval_range_s=(0.01, 0.01), params=params)
    env = make_env(events={"push": event})
    env.reset()
    env.step(torch.zeros(4, 1))
    assert env.robot.joint_vel.tolist() == [[pytest.approx(0.0, abs=1e-2), pytest.approx(0.25, abs=1e-2)]] * 4
    position = env.robot.joint_pos.clone()
    env.step(torch.zeros(4, 1))
    assert env.robot.joint_vel[:, 0].tolist() == [3.0] * 4
    assert env.robot.joint_vel[0, 1].item() == pytest.approx(0.25, abs=1e-2)  # the hinge keeps its own
    assert torch.allclose(env.robot.joint_pos, position, atol=2e-3)


def test_a_play_config_has_the_model_as_it_was_written() -> None:
    cfg = rl_cfg("GeneLab-Inverted-Pendulum-v0")
    params = {"mass_range": (0.5, 2.0), "operation": "scale"}
    cfg.events["mass"] = EventTermCfg(func=mdp.randomize_mass, mode="reset", params=params)
    cfg.events["own"] = EventTermCfg(func=mdp.changes_model(lambda env, env_ids: None), mode="reset")
    assert list(play_cfg(cfg).events) == ["reset_joints"]
