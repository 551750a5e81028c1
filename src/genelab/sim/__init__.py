"""Engines: what steps the physics.

Names are imported when they are used, so that offering the choice of an engine imports neither torch nor a simulator.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from genelab.sim.registry import ENGINES, register_engine

if TYPE_CHECKING:
    from genelab.sim.cfg import SimulationCfg, SolverCfg
    from genelab.sim.contacts import ContactQuery, add_contact_sensor, may_collide
    from genelab.sim.engine import (
        Engine,
        EngineError,
        EnvIds,
        Ids,
        ModelError,
        compile_spec,
        create_engine,
    )
    from genelab.sim.options import Option, apply_options, resolve_options, write_options

_HOME = {
    "ContactQuery": "genelab.sim.contacts",
    "Engine": "genelab.sim.engine",
    "EngineError": "genelab.sim.engine",
    "EnvIds": "genelab.sim.engine",
    "Ids": "genelab.sim.engine",
    "ModelError": "genelab.sim.engine",
    "Option": "genelab.sim.options",
    "SimulationCfg": "genelab.sim.cfg",
    "SolverCfg": "genelab.sim.cfg",
    "add_contact_sensor": "genelab.sim.contacts",
    "apply_options": "genelab.sim.options",
    "compile_spec": "genelab.sim.engine",
    "create_engine": "genelab.sim.engine",
    "may_collide": "genelab.sim.contacts",
    "resolve_options": "genelab.sim.options",
    "write_options": "genelab.sim.options",
}

__all__ = [
    "ENGINES",
    "ContactQuery",
    "Engine",
    "EngineError",
    "EnvIds",
    "Ids",
    "ModelError",
    "Option",
    "SimulationCfg",
    "SolverCfg",
    "add_contact_sensor",
    "apply_options",
    "compile_spec",
    "create_engine",
    "may_collide",
    "register_engine",
    "resolve_options",
    "write_options",
]

register_engine("mujoco", "genelab.sim.mujoco_engine:MujocoEngine", packages=["mujoco"], default_on="cpu")
register_engine(
    "genesis",
    "genelab.sim.genesis_engine:GenesisEngine",
    extra="genesis",
    packages=["genesis-world"],
    default_on="cuda",
)
register_engine(
    "warp",
    "genelab.sim.warp_engine:WarpEngine",
    extra="warp",
    packages=["mujoco-warp", "warp-lang"],
    settings={"nconmax": 0, "njmax": 0, "contact_matches": 64, "deterministic": True},
)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
