"""Tasks on MuJoCo Warp, beside MuJoCo."""

from __future__ import annotations

import pytest
import torch

from genelab import TASKS
from genelab.envs import ManagerBasedEnv, make_env
from genelab.sim.warp_engine import FEW_POINTS, WarpEngine
from tests.narrow import as_kind
from tests.transfers import Transfers

pytestmark = pytest.mark.xdist_group("warp")  # one process compiles the kernels

LANDS = {"Genelab-Velocity-Rough-Unitree-G1-v0": 4}
"""When feet land on a height field, where Warp keeps four points of contact and MuJoCo more; compared till then."""
LOOSE = {"GeneLab-Franka-Pick-And-Place-v0": 1e-3}
"""How far things may be apart, m, where one is dropped on another."""
EPS = torch.finfo(torch.float32).eps
"""How far apart two neighbouring numbers of 32 bits are, as a share of them: Warp has no others."""


def made(task: str, engine: str) -> ManagerBasedEnv:
    cfg = TASKS.get(task).env
    cfg.scene.num_envs, cfg.seed = 2, 0
    cfg.simulation.engine, cfg.simulation.vis = engine, False
    cfg.simulation.fresh_kinematics = True  # which Warp always has
    return make_env(cfg)


@pytest.mark.parametrize("task", TASKS.ids())
def test_a_task_goes_as_on_mujoco(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the same seed by the same actions, randomised models included: what is seen, and where everything is."""
    monkeypatch.setattr(WarpEngine, "_remarks", set())
    mujoco, warp = envs = [made(task, engine) for engine in ("mujoco", "warp")]
    seen = [env.reset(seed=0)[0] for env in envs]
    draw = torch.Generator().manual_seed(0)
    for step in range(LANDS.get(task, 5)):
        place = LOOSE.get(task, 1e-5) if step else 1e-5
        for name, group in seen[0].items():
            assert (seen[1][name] - group).abs().max() < 20 * place, (step, name)
        for name, unit in (("qpos", 1), ("body_pos", 1), ("qvel", 20), ("body_lin_vel", 20)):
            there, here = (getattr(env.scene.engine, name) for env in (warp, mujoco))
            spacing = 2 * EPS * here.abs()  # on generated ground robots stand 60 m from the origin
            assert ((there - here).abs() < unit * place + spacing).all(), (step, name)
        playback = mujoco.cfg.playback
        action = playback(mujoco, step) if playback else torch.rand(2, mujoco.action_dim, generator=draw) - 0.5
        seen = [env.step(action)[0] for env in envs]
    assert as_kind(warp.scene.engine, WarpEngine).overflows == {}
    assert (FEW_POINTS in WarpEngine._remarks) == ("Rough" in task)  # where there is a height field
    for env in envs:
        env.close()


WAITS = (
    "aten::_local_scalar_dense in envs/manager_based_rl_env.py:_is_finite",
    "aten::nonzero in envs/manager_based_rl_env.py:_step",
    "aten::nonzero in managers/events.py:advance",
)
"""The environment asks who ended, the events whose interval is over; actions are looked at on the CPU alone."""
OF_WALKERS = (
    "aten::lift_fresh in managers/rewards.py:_set_weights",
    "aten::nonzero in managers/commands.py:advance",
)
"""A weight that a schedule moves is sent to the device, and commands are asked whose time is over."""


@pytest.mark.parametrize(
    ("task", "waits"),
    [
        ("GeneLab-Double-Inverted-Pendulum-v0", WAITS),
        ("Genelab-Velocity-Flat-Unitree-Go1-v0", WAITS + OF_WALKERS),
    ],
)
def test_few_waits_for_the_device_are_left_above_the_engine(task: str, waits: tuple[str, ...]) -> None:
    env = made(task, "warp")
    env.reset(seed=0)
    for _ in range(4):
        action = torch.zeros(2, env.action_dim)
        with Transfers() as transfers:
            env.step(action)
    assert sorted(transfers.found) == sorted(waits)
    env.close()
