"""The scenes on both engines."""

from __future__ import annotations

import pytest
import torch

from genelab.envs import ManagerBasedEnvCfg, make_env
from genelab_showcase import rubiks, wuji_hand

pytestmark = [pytest.mark.genesis, pytest.mark.xdist_group("genesis")]  # one process compiles the kernels


def played(cfg: ManagerBasedEnvCfg, engine: str, steps: int) -> torch.Tensor:
    """Centres of mass of all bodies in the end, `(B, 3)`."""
    cfg.simulation.engine, cfg.simulation.precision, cfg.seed = engine, 64, 0  # type: ignore[assignment]
    assert cfg.playback is not None
    env = make_env(cfg)
    env.reset(seed=0)
    for step in range(steps):
        env.step(cfg.playback(env, step))
    places = env.scene.engine.body_com_pos[0].clone()
    env.close()
    return places


@pytest.mark.parametrize(
    ("make", "steps"),
    [(rubiks.env_cfg, 100), (wuji_hand.env_cfg, 120)],  # one turn and half of the next; four fingers of the wave
    ids=["cube", "hand"],
)
def test_genesis_plays_the_same(make: type[ManagerBasedEnvCfg], steps: int) -> None:
    mujoco, genesis = played(make(), "mujoco", steps), played(make(), "genesis", steps)
    torch.testing.assert_close(genesis, mujoco, atol=1e-3, rtol=0.0)
