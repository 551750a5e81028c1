"""The arm on both engines."""

from __future__ import annotations

import pytest
import torch

from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab_franka.collect_demos import Script
from genelab_franka.pick_place import cube_pos, ee_pos, is_success
from tests.futures import check_going_back

pytestmark = [pytest.mark.genesis, pytest.mark.xdist_group("genesis")]  # one process compiles the kernels


def test_the_script_places_cubes_on_genesis_too() -> None:
    cfg = rl_cfg("GeneLab-Franka-Pick-And-Place-v0")
    cfg.scene.num_envs, cfg.seed = 2, 0
    cfg.simulation.engine, cfg.simulation.precision = "genesis", 64
    env = ManagerBasedRlEnv(cfg)
    env.reset(seed=0)
    start = ee_pos(env).clone()
    for _ in range(5):
        env.step(torch.zeros(2, 4))
    assert (ee_pos(env) - start).norm(dim=1).max() < 1e-3  # its weight is carried
    script = Script(env)
    for _ in range(80):
        env.step(script.act())
    assert is_success(cube_pos(env), env.commands["goal"]).all()
    assert (cube_pos(env) - ee_pos(env)).norm(dim=1).max() < 0.02
    check_going_back(env)
    env.close()
