"""Scenes without rewards."""

from __future__ import annotations

import torch
from torch import Tensor

from genelab.envs import ManagerBasedEnv, ManagerBasedEnvCfg, ManagerBasedRlEnv, make_env
from genelab.managers import ObservationGroupCfg, ObservationTermCfg
from genelab.mdp import JointPositionActionCfg, joint_pos_rel
from genelab.scene import SceneCfg
from genelab_pendulum.robots import single_pendulum_cfg


def swing(env: ManagerBasedEnv, step: int) -> Tensor:
    return torch.full((env.num_envs, 1), 0.1 * step)


def scene_cfg() -> ManagerBasedEnvCfg:
    return ManagerBasedEnvCfg(
        scene=SceneCfg(num_envs=2, entities={"robot": single_pendulum_cfg()}),
        decimation=2,
        actions={"cart": JointPositionActionCfg(joint_names=("cart",))},
        observations={"policy": ObservationGroupCfg(terms={"joints": ObservationTermCfg(func=joint_pos_rel)})},
        playback=swing,
    )


def test_a_scene_steps_without_rewards() -> None:
    env = make_env(scene_cfg())
    assert not isinstance(env, ManagerBasedRlEnv)
    env.reset(seed=0)
    for step in range(10):
        observations, info = env.step(swing(env, step))
    assert observations["policy"].shape == (2, 2)
    assert observations["policy"][0, 0] > 0
    assert info == {}
    assert env.common_step_counter == 10
    env.close()
