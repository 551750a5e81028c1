"""The scenes on both engines."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from genelab.envs import ManagerBasedEnvCfg, make_env
from genelab_showcase import rubiks, wuji_hand

pytestmark = [pytest.mark.genesis, pytest.mark.xdist_group("genesis")]  # one process compiles the kernels


def played(cfg: ManagerBasedEnvCfg, engine: str, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Centres of mass of all bodies in the beginning and in the end, `(B, 3)` each."""
    cfg.simulation.engine, cfg.simulation.precision, cfg.seed = engine, 64, 0
    assert cfg.playback is not None
    env = make_env(cfg)
    assert env.scene.engine.name == engine
    env.reset(seed=0)
    start = env.scene.engine.body_com_pos[0].clone()
    for step in range(steps):
        env.step(cfg.playback(env, step))
    end = env.scene.engine.body_com_pos[0].clone()
    env.close()
    return start, end


@pytest.mark.parametrize(
    ("make", "steps"),
    [(rubiks.env_cfg, 100), (wuji_hand.env_cfg, 120)],  # one turn and half of the next; four fingers of the wave
    ids=["cube", "hand"],
)
def test_genesis_plays_the_same(make: Callable[[], ManagerBasedEnvCfg], steps: int) -> None:
    (start, mujoco), (_, genesis) = played(make(), "mujoco", steps), played(make(), "genesis", steps)
    assert (genesis - start).norm(dim=1).max() > 0.05
    torch.testing.assert_close(genesis, mujoco, atol=1e-9, rtol=0.0)
