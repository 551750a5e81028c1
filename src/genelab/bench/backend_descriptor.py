"""Who does the work of a benchmark: what steps the physics, where, and which library and algorithm learn or act."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from genelab.bench.schema import RunConfig

if TYPE_CHECKING:
    from genelab.sim.cfg import SimulationCfg


@dataclass(frozen=True, kw_only=True)
class BackendDescriptor:
    """What a bundle says of the engine and of the RL library; None where no library is involved."""

    physics: str
    """The engine in use, whatever `auto` was asked for."""
    device: str
    """Where the tensors are: cpu or cuda."""
    framework: str | None = None
    """The RL library."""
    algorithm: str | None = None
    """What the library learns with, or learned with."""
    unit: str | None = None
    """What the library's own budget counts."""

    @classmethod
    def of_simulation(cls, cfg: SimulationCfg) -> BackendDescriptor:
        """The engine alone."""
        return cls(physics=cfg.resolved_engine(), device="cuda" if cfg.gpu else "cpu")

    def with_agent(self, agent: Any) -> BackendDescriptor:
        """The same with the library that an agent config asks for, which must be installed."""
        from genelab.rl.backends import select_backend

        backend = select_backend(agent)
        return dataclasses.replace(self, framework=backend.name, algorithm=backend.algorithm(agent), unit=backend.unit)

    def with_exported(self, metadata: Mapping[str, Any]) -> BackendDescriptor:
        """The same with the library that made an exported policy, by what the policy says about itself."""
        return dataclasses.replace(
            self, framework=metadata.get("backend"), algorithm=metadata.get("algorithm"), unit=None
        )

    def run_config(self, overrides: Sequence[str]) -> RunConfig:
        """What a bundle says was chosen."""
        return RunConfig(
            physics_backend=self.physics,
            overrides=tuple(overrides),
            device=self.device,
            algorithm=self.algorithm,
            budget_unit=self.unit,
        )
