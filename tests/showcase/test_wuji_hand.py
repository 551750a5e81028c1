"""The hand that plays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from genelab.envs import ManagerBasedEnv, make_env
from genelab.errors import ConfigError
from genelab.math import quat_rotate_inverse
from genelab_showcase.robots.wuji_hand import JOINTS
from genelab_showcase.trajectory import load_trajectory
from genelab_showcase.wuji_hand import WujiHandEnvCfg, env_cfg, play_trajectory


def make(num_envs: int = 1, **fields: object) -> ManagerBasedEnv:
    cfg = env_cfg()
    cfg.scene.num_envs = num_envs
    for name, value in fields.items():
        setattr(cfg, name, value)
    env = make_env(cfg)
    env.reset(seed=0)
    return env


def written(tmp_path: Path, rows: np.ndarray) -> str:
    np.savez(tmp_path / "rows.npz", joint_pos=rows)
    return str(tmp_path / "rows.npz")


def in_palm(env: ManagerBasedEnv, body: str) -> torch.Tensor:
    """Where a body is, as seen from the palm."""
    hand = env.robot
    way = hand.body_pos_w[0, hand.find_bodies(body)[0]] - hand.root_pos_w[0]
    return quat_rotate_inverse(hand.root_quat_w[0], way)


def test_numbers() -> None:
    cfg = env_cfg()
    assert not hasattr(cfg, "rewards")
    assert (cfg.simulation.dt, cfg.decimation, cfg.reset_interval, cfg.side) == (0.01, 1, 500, "right")
    env = make(2)
    assert env.action_dim == 20
    assert tuple(env.robot.joint_names) == JOINTS
    env.close()


def test_the_hand_follows_the_wave() -> None:
    env = make(2)
    rows = torch.as_tensor(load_trajectory("wave", JOINTS), dtype=env.dtype)
    errors = []
    for step in range(500):
        action = play_trajectory(env, step)
        assert torch.equal(action, rows[step].expand(2, -1))
        env.step(action)
        errors.append((env.robot.joint_pos - rows[step]).abs().max().item())
    assert max(errors[:20]) < 0.1  # open: the thumb, held out level, is the heaviest to carry
    assert np.median(errors) < 0.15
    assert max(errors) < 0.4  # servos are late by damping over stiffness, 0.05 s, and fingers touch in a fist
    assert max(errors[-70:-60]) < 0.05  # the OK sign stands
    env.close()


def test_it_loops_and_starts_anew_where_it_is_told(tmp_path: Path) -> None:
    rows = np.linspace(0.0, 0.6, 7)[:, None] * np.ones(20)
    env = make(trajectory=written(tmp_path, rows), reset_interval=10)
    played = [round(play_trajectory(env, step)[0, 0].item(), 3) for step in range(22)]
    once = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.0, 0.1, 0.2]
    assert played == [*once, *once, 0.0, 0.1]
    env.close()
    env = make(trajectory=written(tmp_path, rows), reset_interval=0)
    assert play_trajectory(env, 10)[0, 0].item() == pytest.approx(0.3)
    assert play_trajectory(env, 700)[0, 0].item() == pytest.approx(0.0)
    env.close()


def test_a_new_start_puts_the_hand_into_the_first_pose(tmp_path: Path) -> None:
    rows = np.full((4, 20), 0.4)
    rows[:, 1::4] = 0.1
    env = make(2, trajectory=written(tmp_path, rows), reset_interval=3)
    env.robot.write_joint_state(torch.zeros(2, 20), torch.ones(2, 20), None)
    play_trajectory(env, 1)
    assert env.robot.joint_pos.abs().max() == 0
    play_trajectory(env, 3)
    torch.testing.assert_close(env.robot.joint_pos, torch.as_tensor(rows[:2], dtype=env.dtype))
    assert env.robot.joint_vel.abs().max() == 0
    env.close()


def test_the_side_is_a_field() -> None:
    right, left = make(), make(side="left")
    for env in (right, left):
        for step in range(100):
            env.step(play_trajectory(env, step))
    thumbs = [in_palm(env, "thumb_distal") for env in (right, left)]
    assert thumbs[0][0] > 0.05
    torch.testing.assert_close(thumbs[1], thumbs[0] * torch.tensor([-1.0, 1.0, 1.0]), atol=1e-3, rtol=0.0)
    right.close()
    left.close()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("trajectory", "nowhere.csv", "env.trajectory: no trajectory 'nowhere.csv'"),
        ("reset_interval", -1, "env.reset_interval: must not be negative, got -1"),
    ],
)
def test_what_cannot_be_played_is_refused_before_anything_is_built(field: str, value: object, message: str) -> None:
    cfg: WujiHandEnvCfg = env_cfg()
    setattr(cfg, field, value)
    with pytest.raises(ConfigError, match=message):
        make_env(cfg)
