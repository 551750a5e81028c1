"""Engines: what steps the physics."""

from genelab.sim.cfg import SimulationCfg, SolverCfg
from genelab.sim.engine import (
    ContactQuery,
    Engine,
    EngineError,
    EnvIds,
    Ids,
    ModelError,
    apply_options,
    compile_spec,
    create_engine,
)

__all__ = [
    "ContactQuery",
    "Engine",
    "EngineError",
    "EnvIds",
    "Ids",
    "ModelError",
    "SimulationCfg",
    "SolverCfg",
    "apply_options",
    "compile_spec",
    "create_engine",
]
