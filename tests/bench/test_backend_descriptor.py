"""Who does the work of a benchmark."""

from __future__ import annotations

import pytest

from genelab.bench.backend_descriptor import BackendDescriptor
from genelab.bench.library import agent_of
from genelab.rl.config import Sb3AgentCfg
from genelab.sim import SimulationCfg

ENGINE = BackendDescriptor.of_simulation(SimulationCfg())


def test_an_engine_alone_has_no_library() -> None:
    assert BackendDescriptor(physics="mujoco", device="cpu") == ENGINE
    on_a_gpu = BackendDescriptor.of_simulation(SimulationCfg(engine="genesis", gpu=True))
    assert (on_a_gpu.physics, on_a_gpu.device) == ("genesis", "cuda")


@pytest.mark.parametrize("library", ["rsl_rl", "rl_games", "skrl", "sb3"])
def test_each_library_says_its_algorithm_and_unit(library: str) -> None:
    described = ENGINE.with_agent(agent_of(library, None, num_envs=4))
    unit = "iterations" if library == "rsl_rl" else "timesteps"
    assert (described.framework, described.algorithm, described.unit) == (library, "PPO", unit)


def test_the_algorithm_is_the_agents_own() -> None:
    described = ENGINE.with_agent(Sb3AgentCfg(timesteps=1, algorithm="SAC"))
    config = described.run_config(["env.seed=1"])
    assert (config.physics_backend, config.device, config.algorithm) == ("mujoco", "cpu", "SAC")
    assert (config.budget_unit, config.overrides) == ("timesteps", ("env.seed=1",))


def test_an_exported_policy_says_itself_what_made_it() -> None:
    described = ENGINE.with_agent(Sb3AgentCfg(timesteps=1)).with_exported({"backend": "skrl", "algorithm": "TD3"})
    assert (described.framework, described.algorithm, described.unit) == ("skrl", "TD3", None)
