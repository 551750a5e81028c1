"""The velocity tasks: what goes in and out, and what randomises them."""

from __future__ import annotations

import pytest
import torch

from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.mdp import ScriptedJointPositionActionCfg
from genelab.mdp.sensors import get_sensor
from genelab.scene import ContactSensor
from genelab.scene.terrains import GeneratedTerrain
from tests.narrow import as_kind

WIDTHS = {
    "Genelab-Velocity-Flat-Unitree-Go1-v0": (47, 50, 12),
    "Genelab-Velocity-Rough-Unitree-Go1-v0": (47 + 187, 50 + 187, 12),
    "Genelab-Velocity-Flat-Unitree-G1-v0": (98, 113, 29),
    "Genelab-Velocity-Rough-Unitree-G1-v0": (98 + 187, 113 + 187, 29),
    "Genelab-Velocity-Flat-Unitree-Go2W-v0": (5 * 57, 5 * 60, 16),
    "Genelab-Velocity-Flat-Unitree-Go2W-CrabStage1-v0": (5 * 57, 5 * 60, 16),
}


@pytest.mark.parametrize(("task", "widths"), WIDTHS.items())
def test_widths_and_a_second_of_random_actions(task: str, widths: tuple[int, int, int]) -> None:
    cfg = rl_cfg(task)
    cfg.scene.num_envs, cfg.seed = 4, 0
    env = ManagerBasedRlEnv(cfg)
    observations, _ = env.reset(seed=0)
    assert (observations["policy"].shape[1], observations["critic"].shape[1], env.action_dim) == widths
    assert "base_lin_vel" not in cfg.observations["policy"].terms  # no robot has such a sensor
    for _ in range(50):
        observations, reward, *_ = env.step(2 * torch.rand(4, env.action_dim) - 1)
        assert all(group.isfinite().all() for group in observations.values())
        assert reward.isfinite().all()
    env.close()


def test_who_stands_still_as_asked_earns_all_of_the_tracking_rewards() -> None:
    cfg = rl_cfg("Genelab-Velocity-Flat-Unitree-Go1-v0", play=True)
    cfg.scene.num_envs = 2
    action = as_kind(cfg.actions["joint_pos"], ScriptedJointPositionActionCfg)
    action.offset = 0.0  # low on its soft servos, where it needs no policy to keep its balance
    env = ManagerBasedRlEnv(cfg)
    env.reset(seed=0)
    env.commands.term("twist").fix(torch.zeros(2, 3))
    for _ in range(200):
        env.step(torch.zeros(2, 12))
    paid = dict(zip(env.reward_manager.terms, env.reward_manager.step_reward[:, 0].tolist(), strict=True))
    assert paid["track_lin_vel"] == pytest.approx(2.0 * 0.02, rel=1e-3)
    assert paid["track_ang_vel"] == pytest.approx(1.0 * 0.02, rel=1e-3)
    assert paid["air_time"] == paid["foot_slip"] == paid["thigh_contact"] == 0.0
    assert get_sensor(env, "feet_contact", ContactSensor).touching.all()
    env.close()


def test_g1_has_models_of_its_own_in_training_only() -> None:
    for randomised in (True, False):
        cfg = rl_cfg("Genelab-Velocity-Flat-Unitree-G1-v0", play=not randomised)
        cfg.scene.num_envs, cfg.seed = 4, 0
        env = ManagerBasedRlEnv(cfg)
        engine = env.scene.engine
        foot = engine.get_model_field("geom_friction")[:, engine.model.geom("robot/left_foot_2_collision").id, 0]
        torso = engine.get_model_field("body_ipos")[:, engine.model.body("robot/torso_link").id]
        for values in (foot, torso[:, 0], env.robot.encoder_bias[:, 0]):
            assert (len(set(values.tolist())) == 4) is randomised
        env.close()


def test_rough_ground_is_easy_to_begin_with_and_judged_on_all_levels() -> None:
    levels = []
    for play in (False, True):
        cfg = rl_cfg("Genelab-Velocity-Rough-Unitree-Go1-v0", play=play)
        cfg.scene.num_envs = 20
        env = ManagerBasedRlEnv(cfg)
        env.reset(seed=0)
        terrain = as_kind(env.scene.terrain, GeneratedTerrain)
        levels.append(set(terrain.levels.tolist()))
        height = env.robot.root_pos_w[:, 2] - terrain.height_at(env.robot.root_pos_w)
        assert height.min() > 0.3  # nobody starts inside a step
        env.close()
    assert levels == [{0}, set(range(10))]
