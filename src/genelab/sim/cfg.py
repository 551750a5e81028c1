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
    """Constraint solver settings, as in MJCF's `<option>`; every engine reads them.

    What is None is as the models in the world say, which must not disagree. Where they say nothing either, the
    default holds.
    """

    integrator: Literal["euler", "rk4", "implicit", "implicitfast"] | None = None
    """Time integration. The default, `implicitfast`, is stable for stiff position and velocity actuators."""
    iterations: Count | None = None
    """Most Newton iterations per physics step; 100 by default, which costs nothing where fewer do."""
    ls_iterations: Count | None = None
    """Most line-search steps per Newton iteration; 50 by default."""
    tolerance: NonNegative | None = None
    """Newton stops below this scaled gradient; 1e-8 by default."""
    cone: Literal["pyramidal", "elliptic"] | None = None
    """Friction cone; pyramidal by default."""
    impratio: Positive | None = None
    """Frictional over normal constraint impedance, 1 by default; above 1 grips slip less."""


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
    """Bits of the tensors the MDP sees, and of Genesis; MuJoCo always computes in 64, MuJoCo Warp in 32."""
    threads: Annotated[int, Bounds(0, 4096)] = 0
    """Physics threads of the MuJoCo engine; 0 is one per core. Results do not depend on it."""
    fresh_kinematics: bool = True
    """Body poses and velocities are of the end of the step. False: of its last substep's start, one `dt` old, which
    saves the MuJoCo engine a pass over the bodies where somebody reads of them. Joint and root state are always of the
    end; Genesis and MuJoCo Warp always have both."""
    gravity: tuple[Finite, Finite, Finite] | None = None
    """Gravity, m/s². None, here and below: as the models in the world say, else 9.81 down."""
    density: NonNegative | None = None
    """Density of the medium, kg/m³; by default there is none."""
    viscosity: NonNegative | None = None
    """Viscosity of the medium, Pa·s; by default there is none."""
    wind: tuple[Finite, Finite, Finite] | None = None
    """Velocity of the medium, m/s; by default it rests."""
    solver: SolverCfg = field(default_factory=SolverCfg)
    """Constraint solver."""
    on_divergence: Literal["stop", "reset"] = "stop"
    """What happens to an environment whose physics diverges: a NaN stops the run (`stop`), or the environment starts
    anew, its episode counted as cut off, and the run goes on (`reset`). `Solver/diverged` counts them."""
    divergence_speed: Positive = 1000.0
    """With `reset`, an environment has diverged when a joint or a root is faster than this, m/s or rad/s, or a NaN, or
    when its reward is not a finite number."""

    def validate(self) -> None:
        """Refuse values no engine can run with."""
        check_values(self, "env.simulation")

    def resolved_engine(self) -> str:
        """The engine that `auto` stands for here."""
        return ENGINES.resolve(self.engine, "cuda" if self.gpu else "cpu")
