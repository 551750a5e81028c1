"""The same task on both engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv, rl_cfg
from tests.futures import check_going_back

pytestmark = [pytest.mark.genesis, pytest.mark.xdist_group("genesis")]  # one process compiles the kernels

TASKS_ON_BOTH = ("GeneLab-Inverted-Pendulum-v0", "GeneLab-Double-Inverted-Pendulum-v0")


def make(engine: str, task: str) -> ManagerBasedRlEnv:
    cfg = rl_cfg(task, play=True)
    cfg.scene.num_envs = 4
    cfg.simulation.engine, cfg.simulation.precision = engine, 64
    return ManagerBasedRlEnv(cfg)


@pytest.fixture(scope="module", params=TASKS_ON_BOTH)
def envs(request: pytest.FixtureRequest) -> Iterator[tuple[ManagerBasedRlEnv, ManagerBasedRlEnv]]:
    genesis, mujoco = make("genesis", request.param), make("mujoco", request.param)
    yield genesis, mujoco
    genesis.close()


def trajectory(env: ManagerBasedRlEnv) -> list[Tensor]:
    """Half a second from the same state with the same actions."""
    env.reset(seed=0)
    generator = torch.Generator().manual_seed(1)
    start = 0.004 * torch.rand(env.robot.joint_pos.shape, generator=generator, dtype=torch.float64) - 0.002
    env.robot.write_joint_state(start, torch.zeros_like(start), None)
    said = []
    for _ in range(50):
        action = 0.02 * torch.rand(4, 1, generator=generator, dtype=torch.float64)
        observations, reward, terminated, _, _ = env.step(action)
        assert not terminated.any()
        said += [observations["policy"], reward, env.robot.body_pos_w, env.robot.body_lin_vel_w]
    assert env.robot.joint_pos.abs().max() > 0.02  # it moved, and hit no limit
    return said


def test_trajectories_agree(envs: tuple[ManagerBasedRlEnv, ManagerBasedRlEnv]) -> None:
    assert [env.scene.engine.name for env in envs] == ["genesis", "mujoco"]
    for a, b in zip(*(trajectory(env) for env in envs), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


def test_the_first_observation_after_a_reset_is_of_the_new_state(
    envs: tuple[ManagerBasedRlEnv, ManagerBasedRlEnv],
) -> None:
    env, _ = envs
    joints = len(env.robot.joint_names)
    env.reset(seed=0)
    env.robot.write_joint_state(torch.full((1, 1), 0.9).double(), None, torch.tensor([2]), torch.tensor([1]))
    observations, _, terminated, _, info = env.step(torch.zeros(4, 1).double())
    assert terminated.tolist() == [False, False, True, False]
    policy = observations["policy"]
    assert info["final_obs"]["policy"][2, 1] > 0.8
    assert torch.equal(policy[:, :joints], env.robot.joint_pos)
    assert policy[2, :joints].abs().max() <= 0.05
    # The tip's angular velocity is the sum of the hinges': the body's motion is that of the new state, too.
    torch.testing.assert_close(policy[:, 2 * joints + 1], 0.2 * env.robot.joint_vel[:, 1:].sum(dim=1))


def test_a_seed_repeats_on_genesis(envs: tuple[ManagerBasedRlEnv, ManagerBasedRlEnv]) -> None:
    first, second = trajectory(envs[0]), trajectory(envs[0])
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_a_saved_state_goes_on_as_it_would_have(envs: tuple[ManagerBasedRlEnv, ManagerBasedRlEnv]) -> None:
    check_going_back(envs[0])
