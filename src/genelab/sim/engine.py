"""The door between the world and whatever steps it.

An engine owns `num_envs` independent copies of one compiled MJCF. All it takes and gives are torch tensors of shape
`(num_envs, ...)` on `device`, in the order of the compiled `model` (its joints, degrees of freedom, bodies and
actuators, by MuJoCo's ids), quaternions `w x y z`, everything in the world frame unless it says otherwise. Nothing
above it asks which engine is below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import mujoco
import torch
from torch import Tensor

from genelab.config import check_memory
from genelab.errors import GenelabError, UsageError
from genelab.sim.cfg import SimulationCfg
from genelab.sim.contacts import ContactQuery

if TYPE_CHECKING:
    from collections.abc import Callable

EnvIds = Tensor | None
"""Which environments: sorted indices of dtype int64, or None for all."""

Ids = Sequence[int] | Tensor | slice
"""Which columns: bodies, joints, degrees of freedom, geoms or actuators of the model."""


class EngineError(GenelabError):
    """The physics could not be built or stepped."""


class ModelError(EngineError, UsageError):
    """A model that does not compile, or that an engine cannot express."""


class Engine(Protocol):
    """Steps `num_envs` copies of one model."""

    name: str
    model: mujoco.MjModel
    num_envs: int
    device: torch.device
    dtype: torch.dtype
    version: int
    """Grows with every change of state, so that what was derived from a state can be cached until the next."""

    # -- state; fresh tensors, safe to keep

    @property
    def qpos(self) -> Tensor:
        """Joint positions, `(N, nq)`."""
        ...

    @property
    def qvel(self) -> Tensor:
        """Joint velocities, `(N, nv)`; a free joint's are world linear, then body angular, as MuJoCo has them."""
        ...

    @property
    def ctrl(self) -> Tensor:
        """Actuator inputs of the last step, `(N, nu)`."""
        ...

    @property
    def actuator_force(self) -> Tensor:
        """Forces the actuators applied in the last substep, `(N, nu)`."""
        ...

    @property
    def qacc(self) -> Tensor:
        """Joint accelerations of the last substep, `(N, nv)`."""
        ...

    @property
    def body_pos(self) -> Tensor:
        """Origins of the bodies, `(N, nbody, 3)`."""
        ...

    @property
    def body_quat(self) -> Tensor:
        """Orientations of the bodies, `(N, nbody, 4)`."""
        ...

    @property
    def body_lin_vel(self) -> Tensor:
        """Velocities of the bodies' origins, `(N, nbody, 3)`."""
        ...

    @property
    def body_ang_vel(self) -> Tensor:
        """Angular velocities of the bodies, `(N, nbody, 3)`."""
        ...

    def velocity_at(self, bodies: slice | Tensor, points: Tensor) -> Tensor:
        """Velocities of points `(N, B, 3)` in the world that move with these bodies, `(N, B, 3)`."""
        ...

    @property
    def body_com_pos(self) -> Tensor:
        """Centres of mass of the bodies, `(N, nbody, 3)`."""
        ...

    @property
    def contact_force(self) -> Tensor:
        """Net force on each queried body in the last substep, `(N, num_contacts, 3)`; of a query `within` a body, the
        sum of the absolute forces along each axis."""
        ...

    @property
    def contact_count(self) -> Tensor:
        """Number of contact points of each queried body in the last substep, `(N, num_contacts)`."""
        ...

    def jacobian(self, body: int, point: Tensor) -> tuple[Tensor, Tensor]:
        """Translational and rotational Jacobian of a world point `(N, 3)` on a body, `(N, 3, nv)` each."""
        ...

    # -- changes

    def step(self, n: int) -> None:
        """Advance every environment by `n` physics steps with the controls held."""
        ...

    def reset(self, env_ids: EnvIds) -> None:
        """Back to the model's initial state: default positions, no velocity, control, wrench or solver memory."""
        ...

    def write_qpos(self, values: Tensor, cols: Ids, env_ids: EnvIds) -> None:
        """Set joint positions; body poses follow at the next `refresh`."""
        ...

    def write_qvel(self, values: Tensor, cols: Ids, env_ids: EnvIds) -> None:
        """Set joint velocities; body velocities follow at the next `refresh`."""
        ...

    def write_ctrl(self, values: Tensor, cols: Ids, env_ids: EnvIds = None) -> None:
        """Set actuator inputs."""
        ...

    def write_wrench(self, force: Tensor, torque: Tensor, bodies: Ids, env_ids: EnvIds) -> None:
        """Set the force at the centre of mass and the torque on bodies, until set again or reset."""
        ...

    def refresh(self) -> None:
        """Recompute what derives from the state where it was written since the last step."""
        ...

    # -- model parameters, by MuJoCo's field names

    def set_model_field(self, field: str, values: Tensor, ids: Ids, env_ids: EnvIds) -> None:
        """Give environments their own values of a model field: `(len(env_ids), len(ids), ...)`."""
        ...

    def get_model_field(self, field: str) -> Tensor:
        """Values of a model field as the physics has them, `(N, ...)`."""
        ...

    # -- whole state, to stop and go on

    def state_dict(self) -> dict[str, Any]:
        """Everything the next step and the next reading depend on, model fields that were set included; copies."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to what `state_dict` gave; what follows is what followed then."""
        ...

    def close(self) -> None:
        """Free threads and memory."""
        ...


def create_engine(
    cfg: SimulationCfg,
    spec: mujoco.MjSpec,
    num_envs: int,
    contacts: Sequence[ContactQuery] = (),
    *,
    env_spacing: float = 0.0,
    notify: Callable[[str], None] | None = None,
) -> Engine:
    """Compile the spec and build the engine the config asks for."""
    device = device_of(cfg)
    if cfg.resolved_engine() == "mujoco":
        from genelab.sim.mujoco_engine import MujocoEngine

        return MujocoEngine(cfg, spec, num_envs, device, contacts)
    from genelab.sim.genesis_engine import GenesisEngine

    return GenesisEngine(cfg, spec, num_envs, device, contacts, env_spacing=env_spacing, notify=notify)


def device_of(cfg: SimulationCfg) -> torch.device:
    """Where the tensors are, if there is such a place."""
    if cfg.gpu and not torch.cuda.is_available():
        raise UsageError("--gpu: no CUDA device was found here. Leave --gpu out to run on the CPU.")
    return torch.device("cuda" if cfg.gpu else "cpu")


def compile_spec(spec: mujoco.MjSpec) -> mujoco.MjModel:
    """The compiled model, or one line that says why there is none."""
    try:
        return spec.compile()
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"the model does not compile: {reason}") from error


def check_size(model: mujoco.MjModel, num_envs: int, device: torch.device) -> None:
    """Refuse more copies of a model than memory holds: each is rows of numbers for its joints and bodies."""
    if device.type == "cpu":
        # Measured: 1.6 kB for an inverted pendulum, 8.9 kB for a quadruped; this is three quarters of it.
        check_memory(
            "env.scene.num_envs", f"{num_envs:,}", 24.0 * num_envs * (model.nq + 2 * model.nv + 16 * model.nbody)
        )


def apply_options(cfg: SimulationCfg, spec: mujoco.MjSpec) -> None:
    """Write the simulation settings into the spec, so that the MJCF says all there is to say."""
    option, solver = spec.option, cfg.solver
    option.timestep = cfg.dt
    option.gravity = list(cfg.gravity)
    option.integrator = {
        "euler": mujoco.mjtIntegrator.mjINT_EULER,
        "implicitfast": mujoco.mjtIntegrator.mjINT_IMPLICITFAST,
    }[solver.integrator]
    option.iterations = solver.iterations
    option.ls_iterations = solver.ls_iterations
    option.tolerance = solver.tolerance
    option.cone = {
        "pyramidal": mujoco.mjtCone.mjCONE_PYRAMIDAL,
        "elliptic": mujoco.mjtCone.mjCONE_ELLIPTIC,
    }[solver.cone]
    option.impratio = solver.impratio
    # MuJoCo 4.0.0 factors the Hessian of its solver wrongly where the Jacobian is sparse, as `auto` has it above 60
    # degrees of freedom.
    option.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    # A diverged state must stay visible: MuJoCo would otherwise reset it silently in the middle of an episode.
    option.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
