"""The clock, the step it makes and the hand that helps, on both engines."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import Tensor

from genelab import mdp
from genelab.envs import ManagerBasedRlEnv
from genelab.managers import EventTermCfg, ScheduleCfg
from genelab.mdp import GaitClockCfg, ScriptedJointPositionActionCfg, VelocityCommandCfg
from genelab.mdp.clock import get_clock
from genelab.sim.cfg import EngineName
from genelab.sim.genesis_engine import GenesisEngine
from genelab.sim.mujoco_engine import MujocoEngine
from tests.mdp.hopper import MakeEnv, pose
from tests.narrow import as_kind

pytestmark = [pytest.mark.genesis, pytest.mark.xdist_group("genesis")]  # one process compiles the kernels


def helped_walker(make_env: MakeEnv, engine: EngineName) -> ManagerBasedRlEnv:
    """Legs that step by a clock, above the ground and without gravity, and a hand that lets go within eight steps."""
    params = {"schedule": "hand", "height": 1.6, "lead": (10.0, 5.0), "command": "twist"}
    env = make_env(
        engine=engine,
        commands={
            "twist": VelocityCommandCfg(lin_vel_x=(1.0, 1.0), lin_vel_y=(0.5, 0.5), ang_vel_z=(-0.5, -0.5)),
            "gait": GaitClockCfg(frequency=12.5, offsets={"left_leg": 0.0, "right_leg": 0.5}),
        },
        actions={"legs": ScriptedJointPositionActionCfg(scale=0.1, steps={"left_leg": {"left": 0.2}, "right_leg": {}})},
        events={"hand": EventTermCfg(func=mdp.HelpingWrench, mode="step", params=params)},
        schedules={"hand": ScheduleCfg(start=1.0, end=0.0, steps=8)},
    )
    pose(env, quat=(math.cos(0.1), math.sin(0.1), 0.0, 0.0), z=1.5)  # rolled by 0.2 rad
    get_clock(env, "gait").phase[:] = 0.0
    return env


def wrench(env: ManagerBasedRlEnv) -> Tensor:
    """Force and torque on the root, `(N, 6)`, as the engine holds them."""
    engine = env.scene.engine
    held = engine._wrench if isinstance(engine, GenesisEngine) else as_kind(engine, MujocoEngine)._views["xfrc_applied"]
    return held[:, env.robot.body_ids[0]].clone()


def test_a_helped_walker_goes_the_same_way_on_both_engines(make_env: MakeEnv) -> None:
    envs = [helped_walker(make_env, engine) for engine in ("genesis", "mujoco")]
    assert [env.scene.engine.name for env in envs] == ["genesis", "mujoco"]
    for env in envs:
        env.event_manager.advance(env.step_dt)
        force_and_torque = [10.0, 5.0, 80.0, -80.0 * math.sin(0.2)]  # at its best, 0.1 m too low
        assert wrench(env)[1, :4].tolist() == pytest.approx(force_and_torque)
    strengths, targets = [], []
    for _ in range(12):
        for env in envs:
            env.step(torch.full((4, 2), 0.5, dtype=torch.float64))
        genesis, mujoco = envs
        torch.testing.assert_close(wrench(genesis), wrench(mujoco), rtol=0, atol=1e-6)
        assert torch.equal(genesis.commands["gait"], mujoco.commands["gait"])
        assert torch.equal(genesis.robot.joint_pos_target, mujoco.robot.joint_pos_target)
        for name in ("joint_pos", "root_pos_w", "root_quat_w", "root_lin_vel_w", "root_ang_vel_w"):
            ours, theirs = getattr(genesis.robot, name), getattr(mujoco.robot, name)
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-8, msg=partial("{}: {}".format, name))
        strengths.append(wrench(genesis).abs().amax().item())
        targets.append(genesis.robot.joint_pos_target[1].tolist())
    assert strengths[0] > 10.0
    assert strengths[6] > 0.0
    assert strengths[8:] == [0.0] * 4
    assert not as_kind(genesis.scene.engine, GenesisEngine)._wrench_set
    left, right = zip(*targets, strict=True)
    # The action's 0.05 m, and 0.2 m more at the top of a swing: a period is eight steps.
    assert left[1:8] == pytest.approx([0.15, 0.25, 0.15, 0.05, 0.05, 0.05, 0.05], abs=1e-9)
    assert right == pytest.approx([0.05] * 12)
