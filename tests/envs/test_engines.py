"""The same task on both engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from genelab import TASKS
from genelab.envs import ManagerBasedRlEnv

pytestmark = pytest.mark.genesis

TASK = "GeneLab-Double-Inverted-Pendulum-v0"


def make(engine: str) -> ManagerBasedRlEnv:
    cfg = TASKS.get(TASK).play_env
    cfg.scene.num_envs = 4
    cfg.simulation.engine, cfg.simulation.precision = engine, 64
    return ManagerBasedRlEnv(cfg)


@pytest.fixture(scope="module")
def genesis() -> Iterator[ManagerBasedRlEnv]:
    env = make("genesis")
    yield env
    env.close()


def trajectory(env: ManagerBasedRlEnv) -> list[Tensor]:
    """Half a second from the same state with the same actions."""
    env.reset(seed=0)
    generator = torch.Generator().manual_seed(1)
    start = 0.02 * torch.rand(4, 3, generator=generator, dtype=torch.float64) - 0.01
    env.robot.write_joint_state(start, torch.zeros_like(start), None)
    said = []
    for _ in range(50):
        action = 0.1 * torch.rand(4, 1, generator=generator, dtype=torch.float64)
        observations, reward, terminated, _, _ = env.step(action)
        assert not terminated.any()
        said += [observations["policy"], reward, env.robot.body_pos_w, env.robot.body_lin_vel_w]
    assert env.robot.joint_pos.abs().max() > 0.05
    return said


def test_trajectories_agree(genesis: ManagerBasedRlEnv) -> None:
    assert genesis.scene.engine.name == "genesis"
    for a, b in zip(trajectory(genesis), trajectory(make("mujoco")), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


def test_the_first_observation_after_a_reset_is_of_the_new_state(genesis: ManagerBasedRlEnv) -> None:
    genesis.reset(seed=0)
    genesis.robot.write_joint_state(torch.full((1, 1), 0.9).double(), None, torch.tensor([2]), torch.tensor([1]))
    observations, _, terminated, _, info = genesis.step(torch.zeros(4, 1).double())
    assert terminated.tolist() == [False, False, True, False]
    policy = observations["policy"]
    assert info["final_obs"]["policy"][2, 1] > 0.8
    assert torch.equal(policy[:, :3], genesis.robot.joint_pos)
    assert policy[2, :3].abs().max() <= 0.05
    # The tip's angular velocity is the sum of the hinges': the body's motion is that of the new state, too.
    torch.testing.assert_close(policy[:, 7], 0.2 * genesis.robot.joint_vel[:, 1:].sum(dim=1))


def test_a_seed_repeats_on_genesis(genesis: ManagerBasedRlEnv) -> None:
    first, second = trajectory(genesis), trajectory(genesis)
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
