"""A task from a ten-line model and the terms a test is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.scene import ActuatorCfg, ArticulationCfg, IdealPdActuatorCfg, InitialStateCfg, SceneCfg, mjcf_text
from genelab.sim import SimulationCfg

# A point of 1 kg that slides along x and y, weightless.
SLIDER = """
<mujoco>
  <worldbody>
    <body name="stage">
      <joint name="x" type="slide" axis="1 0 0"/>
      <geom size=".1" mass="1"/>
      <body name="table">
        <joint name="y" type="slide" axis="0 1 0" range="-1 1"/>
        <geom size=".1" mass="1"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.fixture
def make_env() -> Iterator[Callable[..., ManagerBasedRlEnv]]:
    """Build a task of four environments with a control step of 0.02 s and episodes of at most 0.5 s, not yet reset."""
    envs = []

    def make(
        *,
        num_envs: int = 4,
        actuator: ActuatorCfg | None = None,
        joint_pos: dict[str, float] | None = None,
        precision: Literal[32, 64] = 64,
        **terms: Any,
    ) -> ManagerBasedRlEnv:
        robot = ArticulationCfg(
            spec=mjcf_text,
            spec_args={"xml": SLIDER},
            init_state=InitialStateCfg(joint_pos=joint_pos or {}),
            actuators={"drive": actuator or IdealPdActuatorCfg(joint_names=(".*",))},
        )
        settings: dict[str, Any] = {"decimation": 2, "episode_length_s": 0.5, "seed": 1, **terms}
        cfg = ManagerBasedRlEnvCfg(
            scene=SceneCfg(num_envs=num_envs, entities={"robot": robot}),
            simulation=SimulationCfg(engine="mujoco", dt=0.01, precision=precision, threads=1, gravity=(0.0, 0.0, 0.0)),
            **settings,
        )
        env = ManagerBasedRlEnv(cfg)
        envs.append(env)
        return env

    yield make
    for env in envs:
        env.close()
