"""Environments of a hopper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from genelab import mdp
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.mdp import VelocityCommandCfg
from genelab.scene import (
    ArticulationCfg,
    ContactSensorCfg,
    ImplicitPdActuatorCfg,
    InitialStateCfg,
    PlaneCfg,
    PointsSensorCfg,
    SceneCfg,
    mjcf_text,
)
from genelab.sim import SimulationCfg
from genelab.sim.cfg import EngineName
from tests.mdp.hopper import HOPPER, MakeEnv


@pytest.fixture
def make_env() -> Iterator[MakeEnv]:
    envs = []

    def make(
        num_envs: int = 4, height: float = 0.6, gravity: float = 0.0, engine: EngineName = "mujoco", **terms: Any
    ) -> ManagerBasedRlEnv:
        robot = ArticulationCfg(
            spec=mjcf_text,
            spec_args={"xml": HOPPER},
            init_state=InitialStateCfg(pos=(0.0, 0.0, height)),
            actuators={"legs": ImplicitPdActuatorCfg(joint_names=(".*",), stiffness=500.0, damping=20.0)},
        )
        sensors = {
            "contact": ContactSensorCfg(entity="robot", bodies=(".*_leg",), other="world"),
            "feet": PointsSensorCfg(entity="robot", bodies=(".*_leg",), pos=(0.0, 0.0, -0.1)),
        }
        command = VelocityCommandCfg(lin_vel_x=(1.0, 1.0), lin_vel_y=(0.5, 0.5), ang_vel_z=(-0.5, -0.5))
        settings: dict[str, Any] = {
            "commands": {"twist": command},
            "actions": {"legs": mdp.JointPositionActionCfg(scale=0.1)},
            **terms,
        }
        terrain = settings.pop("terrain", PlaneCfg())
        cfg = ManagerBasedRlEnvCfg(
            scene=SceneCfg(num_envs=num_envs, entities={"robot": robot}, sensors=sensors, terrain=terrain),
            simulation=SimulationCfg(engine=engine, precision=64, threads=1, gravity=(0.0, 0.0, -gravity)),
            decimation=2,
            episode_length_s=1.0,
            seed=1,
            **settings,
        )
        envs.append(ManagerBasedRlEnv(cfg))
        envs[-1].reset()
        return envs[-1]

    yield make
    for env in envs:
        env.close()
