"""Levels of a generated terrain in a running environment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.managers import CurriculumTermCfg, ObservationGroupCfg, ObservationTermCfg, TerminationTermCfg
from genelab.scene import ArticulationCfg, GeneratedTerrain, SceneCfg, TerrainGeneratorCfg, mjcf_text
from genelab.scene.terrains import FlatCfg, SlopeCfg
from genelab.sim import SimulationCfg

BOX = """
<mujoco><worldbody><body name="box"><freejoint/><geom type="box" size=".1 .1 .1" mass="1"/></body></worldbody></mujoco>
"""


def root(env: ManagerBasedRlEnv) -> Tensor:
    return env.robot.root_pos_w


def every_fifth(env: ManagerBasedRlEnv) -> Tensor:
    return env.episode_length_buf >= 5


def even_ones_rise(env: ManagerBasedRlEnv, env_ids: Tensor) -> Tensor:
    """Up for those of even number, down for the others, once they have had an episode."""
    terrain = env.scene.terrain
    assert isinstance(terrain, GeneratedTerrain)
    judged = env.episode_length_buf[env_ids] > 0
    terrain.move(env_ids, (env_ids % 2 == 0) & judged, (env_ids % 2 == 1) & judged, env.rng)
    return terrain.levels.double().mean()


@pytest.fixture
def env() -> Iterator[ManagerBasedRlEnv]:
    ground = TerrainGeneratorCfg(
        sub_terrains={"up": SlopeCfg(slope=(0.0, 0.4)), "flat": FlatCfg()},
        rows=3,
        columns=2,
        horizontal_scale=0.5,
        max_init_level=1,
    )
    robot = ArticulationCfg(spec=mjcf_text, spec_args={"xml": BOX})
    env = ManagerBasedRlEnv(
        ManagerBasedRlEnvCfg(
            scene=SceneCfg(num_envs=4, entities={"robot": robot}, terrain=ground),
            simulation=SimulationCfg(engine="mujoco", precision=64, threads=1),
            episode_length_s=1.0,
            observations={"policy": ObservationGroupCfg(terms={"root": ObservationTermCfg(func=root)})},
            terminations={"fifth": TerminationTermCfg(func=every_fifth)},
            curriculum={"levels": CurriculumTermCfg(func=even_ones_rise)},
            seed=0,
        )
    )
    yield env
    env.close()


def run(env: ManagerBasedRlEnv, steps: int) -> list[Tensor]:
    return [env.step(torch.zeros(4, 0))[0]["policy"] for _ in range(steps)]


def levels(env: ManagerBasedRlEnv) -> list[int]:
    assert isinstance(env.scene.terrain, GeneratedTerrain)
    return env.scene.terrain.levels.tolist()


def test_a_reset_puts_the_robot_where_its_level_is(env: ManagerBasedRlEnv) -> None:
    env.reset()
    assert levels(env) == [0, 1, 0, 1]
    assert env.robot.root_pos_w.tolist() == [[-8, -4, 0], [0, -4, pytest.approx(0.6)], [-8, 4, 0], [0, 4, 0]]
    observations = run(env, 5)[-1]
    assert levels(env) == [1, 0, 1, 0]
    assert torch.equal(observations, env.scene.env_origins)
    assert observations[:, 0].tolist() == [0.0, -8.0, 0.0, -8.0]


def test_a_seed_forgets_the_levels_of_before(env: ManagerBasedRlEnv) -> None:
    env.reset(seed=3)
    first = run(env, 17)
    assert levels(env)[0] != 0
    env.reset(seed=3)
    assert levels(env) == [0, 1, 0, 1]
    assert torch.equal(torch.stack(run(env, 17)), torch.stack(first))


def test_a_saved_state_goes_on_as_it_would_have(env: ManagerBasedRlEnv) -> None:
    env.reset(seed=1)
    run(env, 7)
    state, before = env.state_dict(), levels(env)
    future = run(env, 13)  # two more moves, one of them beyond the hardest row
    run(env, 8)
    env.load_state_dict(state)
    assert levels(env) == before == [1, 0, 1, 0]
    assert torch.equal(torch.stack(run(env, 13)), torch.stack(future))
    assert env.robot.env_origins is env.scene.env_origins
    assert list(state["scene"]["terrain"]) == ["levels", "kinds"]
