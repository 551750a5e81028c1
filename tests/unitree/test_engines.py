"""Go1 and the walking tasks on both engines."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.mdp.sensors import get_sensor
from genelab.scene import ContactSensor, PlaneCfg, Scene, SceneCfg
from genelab.scene.names import resolve_values
from genelab.scene.terrains import TerrainGeneratorCfg
from genelab.sim import SimulationCfg
from genelab_unitree.go2w import POSE, STANCE, STANCE_HEIGHT
from genelab_unitree.robots.go1 import go1_cfg
from genelab_unitree.robots.go2w import LEGS, WHEELS, go2w_cfg

pytestmark = [pytest.mark.genesis, pytest.mark.xdist_group("genesis")]  # one process compiles the kernels


def test_a_swinging_go1_goes_the_same_way_on_both_engines() -> None:
    """It stands for a second, then its targets swing by 0.15 rad at 1.5 Hz for two."""
    paths = {engine: swing(engine) for engine in ("genesis", "mujoco")}
    for path in paths.values():
        assert path[49, 2].item() == pytest.approx(0.22, abs=0.01)
    apart = paths["genesis"] - paths["mujoco"]
    assert apart[50:, 2].abs().max() < 0.01
    assert (apart[50:, :2] - apart[49, :2]).norm(dim=1).max() < 0.02  # from where each stood
    assert paths["mujoco"][50:, 2].std() > 1e-3  # it did move


def swing(engine: str) -> Tensor:
    """Positions of the trunk after each control step, `(150, 3)`."""
    cfg = go1_cfg()
    cfg.init_state.pos = (0.0, 0.0, 0.29)
    settings = SimulationCfg(engine=engine, precision=64, dt=0.005)
    scene = Scene(SceneCfg(entities={"robot": cfg}, terrain=PlaneCfg()), settings)
    scene.reset(None)
    robot = scene.articulation("robot")
    path = []
    for step in range(150):
        offset = 0.15 * math.sin(2 * math.pi * 1.5 * (step - 50) * 0.02) if step >= 50 else 0.0
        robot.joint_pos_target[:] = robot.default_joint_pos + offset
        scene.step(4)
        path.append(robot.root_pos_w[0].cpu().clone())
    scene.engine.close()
    return torch.stack(path).float()


def test_a_go2w_rolls_the_same_way_on_both_engines() -> None:
    """It stands for a second; then its wheels speed up to 4 rad/s, which is 0.34 m/s, within a second."""
    paths = {engine: roll(engine) for engine in ("genesis", "mujoco")}
    for path in paths.values():
        assert path[49, 2].item() == pytest.approx(0.37, abs=0.01)
        assert (path[149, 0] - path[49, 0]).item() == pytest.approx(0.34 * 1.5, abs=0.08)
    apart = paths["genesis"] - paths["mujoco"]
    assert apart[50:, 2].abs().max() < 0.015
    assert (apart[50:, :2] - apart[49, :2]).norm(dim=1).max() < 0.03


def roll(engine: str) -> Tensor:
    """Positions of the trunk after each control step, `(150, 3)`."""
    cfg = go2w_cfg()
    rest = dict(zip(("hip", "thigh", "calf"), (0.0, 0.9, -1.8), strict=True))
    stance = {f"{end}._{name}_joint": rest[name] + POSE[end][i] for end in POSE for i, name in enumerate(rest)}
    cfg.init_state.pos, cfg.init_state.joint_pos = (0.0, 0.0, STANCE_HEIGHT), stance
    settings = SimulationCfg(engine=engine, precision=64, dt=0.005)
    scene = Scene(SceneCfg(entities={"robot": cfg}, terrain=PlaneCfg()), settings)
    scene.reset(None)
    robot = scene.articulation("robot")
    legs, wheels = robot.find_joints(LEGS), robot.find_joints(WHEELS)
    names = [robot.joint_names[i] for i in legs]
    aim = torch.tensor(resolve_values(STANCE, names, "stance"), dtype=torch.float64)
    aim += torch.tensor([rest[name.split("_")[1]] for name in names])
    path = []
    for step in range(150):
        robot.joint_pos_target[:, legs] = aim
        robot.joint_vel_target[:, wheels] = min(max(step - 50, 0) * 0.08, 4.0)
        scene.step(4)
        path.append(robot.root_pos_w[0].cpu().clone())
    scene.engine.close()
    return torch.stack(path).float()


@pytest.mark.parametrize("robot", ["Go1", "G1"])
@pytest.mark.parametrize("ground", ["Flat", "Rough"])
def test_a_task_steps_on_genesis(robot: str, ground: str) -> None:
    cfg = rl_cfg(f"Genelab-Velocity-{ground}-Unitree-{robot}-v0")
    cfg.scene.num_envs, cfg.seed = 2, 0
    cfg.simulation.engine, cfg.simulation.precision = "genesis", 64
    if isinstance(cfg.scene.terrain, TerrainGeneratorCfg):  # a field of ten by ten cells takes Genesis minutes to build
        cfg.scene.terrain.rows, cfg.scene.terrain.columns = 1, ("stairs_up",)
    env = ManagerBasedRlEnv(cfg)
    observations, _ = env.reset(seed=0)
    for _ in range(20):
        observations, reward, *_ = env.step(torch.rand(2, env.action_dim) - 0.5)
    assert all(group.isfinite().all() for group in (*observations.values(), reward))
    assert get_sensor(env, "feet_contact", ContactSensor).touching.any()
    env.close()
