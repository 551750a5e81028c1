"""The same task on both engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from genelab import TASKS, mdp
from genelab.envs import ManagerBasedRlEnv
from genelab.managers import EventTermCfg
from tests.futures import assert_same_future, make_far, through_a_file

pytestmark = [pytest.mark.genesis, pytest.mark.xdist_group("genesis")]  # one process compiles the kernels

KEPT = ("GeneLab-Inverted-Pendulum-v0", "GeneLab-Franka-Pick-And-Place-v0", "Genelab-Velocity-Flat-Unitree-Go1-v0")
TASKS_ON_BOTH = ("GeneLab-Inverted-Pendulum-v0", "GeneLab-Double-Inverted-Pendulum-v0")


def make(engine: str, task: str) -> ManagerBasedRlEnv:
    cfg = TASKS.get(task).play_env
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


@pytest.mark.parametrize("task", KEPT)
def test_a_saved_state_goes_on_as_it_would_have(task: str) -> None:
    cfg = TASKS.get(task).env
    cfg.simulation.engine = "genesis"
    params = {"mass_range": (0.8, 1.2), "operation": "scale"}
    cfg.events["mass"] = EventTermCfg(func=mdp.randomize_mass, mode="reset", params=params)
    first, second = make_far(cfg)
    second.load_state_dict(through_a_file(first.state_dict()))
    for field in ("body_mass", "body_inertia"):
        assert torch.equal(*(env.scene.engine.get_model_field(field) for env in (first, second)))
    assert assert_same_future(first, second, steps=10) > 0
    first.close()
    second.close()
