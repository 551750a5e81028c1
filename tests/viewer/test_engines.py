"""Both engines look the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.viewer import Film, FilmCfg

pytestmark = [pytest.mark.genesis, pytest.mark.xdist_group("genesis")]  # one process compiles the kernels


def test_the_same_pose_makes_the_same_picture(tmp_path: Path) -> None:
    pictures = []
    for engine in ("genesis", "mujoco"):
        cfg = rl_cfg("GeneLab-Inverted-Pendulum-v0", play=True)
        cfg.simulation.engine, cfg.simulation.precision, cfg.scene.num_envs = engine, 64, 4
        env = ManagerBasedRlEnv(cfg)
        env.reset(seed=0)
        env.robot.write_joint_state(torch.tensor([[0.3, 0.4]]).double(), torch.zeros(1, 2).double(), torch.tensor([0]))
        env.scene.engine.refresh()
        film = Film(env, FilmCfg(path=tmp_path / "f.mp4", size=(160, 120)))
        pictures.append(film.picture().astype(int))
        film.close()
        env.close()
    assert pictures[0].std() > 10
    assert abs(pictures[0] - pictures[1]).max() <= 1
