"""What the user may say about the simulation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from genelab.config import Amount, Count, Finite, NonNegative, Positive, check_values
from genelab.config.bounds import Bounds
from genelab.config.hints import OneOf
from genelab.sim.registry import ENGINES

EngineName = Annotated[str, OneOf(ENGINES.choices)]
"""`auto`, or an engine that is registered."""


@dataclass(kw_only=True)
class SolverCfg:
    """Constraint solver settings, as in MJCF's `<option>`; every engine reads them."""

    integrator: Literal["euler", "implicitfast"] = "implicitfast"
    """Time integration. `implicitfast` is stable for stiff position and velocity actuators."""
    iterations: Count = 10
    """Most Newton iterations per physics step."""
    ls_iterations: Count = 20
    """Most line-search steps per Newton iteration."""
    tolerance: NonNegative = 1e-8
    """Newton stops below this scaled gradient."""
    cone: Literal["pyramidal", "elliptic"] = "pyramidal"
    """Friction cone."""
    impratio: Positive = 1.0
    """Frictional over normal constraint impedance; above 1 grips slip less."""


@dataclass(kw_only=True)
class SimulationCfg:
    """How the world is stepped and shown."""

    vis: bool = False
    """Show a viewer."""
    gpu: bool = False
    """Tensors, and physics where the engine can, on the GPU."""
    steps: Amount = 240
    """Length of a headless playback, in control steps; a viewer ignores it."""
    dt: Positive = 0.005
    """Physics step, s. The control step is `dt * decimation`."""
    engine: EngineName = "auto"
    """Which engine steps the physics; `auto` is Genesis on a GPU and MuJoCo on the CPU."""
    engine_settings: dict[str, dict[str, Any]] = field(default_factory=ENGINES.settings)
    """What only one engine knows, by its name: a third party's buffer sizes, say. See `register_engine`."""
    precision: Literal[32, 64] = 32
    """Bits of the tensors the MDP sees, and of Genesis; MuJoCo always computes in 64."""
    threads: Annotated[int, Bounds(0, 4096)] = 0
    """Physics threads of the MuJoCo engine; 0 is one per core. Results do not depend on it."""
    fresh_kinematics: bool = True
    """Body poses and velocities are of the end of the step. False: of its last substep's start, one `dt` old, which
    saves the MuJoCo engine a seventh of a quadruped's physics and a quarter of a cart-pole's. Joint and root state are
    always of the end; Genesis always has both."""
    gravity: tuple[Finite, Finite, Finite] = (0.0, 0.0, -9.81)
    """Gravity, m/s²."""
    solver: SolverCfg = field(default_factory=SolverCfg)
    """Constraint solver."""

    def validate(self) -> None:
        """Refuse values no engine can run with."""
        check_values(self, "env.simulation")

    def resolved_engine(self) -> str:
        """The engine that `auto` stands for here."""
        return ENGINES.resolve(self.engine, "cuda" if self.gpu else "cpu")
