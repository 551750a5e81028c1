"""Engines: what steps the physics."""

from genelab.sim.cfg import SimulationCfg, SolverCfg
from genelab.sim.contacts import ContactQuery, add_contact_sensor
from genelab.sim.engine import (
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
    "add_contact_sensor",
    "apply_options",
    "compile_spec",
    "create_engine",
]
