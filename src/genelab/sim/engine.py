"""The door between the world and whatever steps it.

To bring an engine, subclass `Engine` in a file of your own and register it (`genelab.sim.registry`); the tests in
`genelab.testing` tell whether it keeps the contract.

An engine owns `num_envs` independent copies of one compiled MJCF. All it takes and gives are torch tensors of shape
`(num_envs, ...)` on `device`, in the order of the compiled `model` (its joints, degrees of freedom, bodies and
actuators, by MuJoCo's ids), quaternions `w x y z`, everything in the world frame unless it says otherwise. Nothing
above it asks which engine is below.
"""

from __future__ import annotations

import logging
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import mujoco
import torch
from torch import Tensor

from genelab.config import check_memory
from genelab.errors import GenelabError, UsageError
from genelab.sim.cfg import SimulationCfg
from genelab.sim.contacts import ContactQuery
from genelab.sim.registry import AUTO, ENGINES

EnvIds = Tensor | None
"""Which environments: sorted indices of dtype int64, or None for all."""

Ids = Sequence[int] | Tensor | slice
"""Which columns: bodies, joints, degrees of freedom, geoms or actuators of the model."""


class EngineError(GenelabError):
    """The physics could not be built or stepped."""


class ModelError(EngineError, UsageError):
    """A model that does not compile, or that an engine cannot express."""


Notify = Callable[[str], None]
"""Takes remarks to the user, a line each."""


@contextmanager
def told_if_slow(notify: Notify, message: str, seconds: float) -> Iterator[None]:
    """Say why it takes so long, if it does: kernels are being compiled, say."""
    timer = threading.Timer(seconds, notify, (message,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Engine(ABC):
    """Steps `num_envs` copies of one model."""

    # -- what the engine is

    name: ClassVar[str]
    """The name it is registered by."""
    title: ClassVar[str] = ""
    """How messages call it; "": by its name."""

    @classmethod
    def called(cls) -> str:
        """How messages call it."""
        return cls.title or cls.name

    @classmethod
    def cannot_run(cls) -> str | None:
        """Why it cannot run on this machine although its packages are installed; None if it can."""
        return None

    @classmethod  # noqa: B027
    def start(cls, cfg: SimulationCfg, notify: Notify) -> None:
        """What it does once per process: import the simulator, choose device and precision. Called for every world."""

    @classmethod
    def cannot_express(cls, model: mujoco.MjModel) -> Iterable[str]:
        """What of this model it would step as something else, each by the name a user knows it by: "tendons"."""
        return ()

    # -- the world

    model: mujoco.MjModel
    num_envs: int
    device: torch.device
    dtype: torch.dtype
    version: int
    """Grows with every change of state, so that what was derived from a state can be cached until the next."""
    solved: int = 0
    """Physics steps of single environments whose solver was looked at: the last of every `step`. 0: nobody looks."""
    unconverged: int = 0
    """Of those, how many ended at the most iterations that the solver may make."""

    def __init__(
        self,
        cfg: SimulationCfg,
        spec: mujoco.MjSpec,
        num_envs: int,
        device: torch.device,
        contacts: Sequence[ContactQuery] = (),
        *,
        env_spacing: float = 0.0,
        notify: Notify = lambda message: None,
    ) -> None:
        """Compile the spec, refuse what cannot be stepped, and start; what is built on it is the subclass's.

        `contacts` are the columns of `contact_force`; `env_spacing` is for an engine that has all environments in one
        scene, m.
        """
        self.model = compile_spec(spec)
        check_size(self.model, num_envs, device)
        self.refuse(self.model)
        self.start(cfg, notify)
        self.num_envs = num_envs
        self.device = device
        self.dtype = torch.float64 if cfg.precision == 64 else torch.float32
        self.version = 0

    @classmethod
    def refuse(cls, model: mujoco.MjModel) -> None:
        """Refuse a model that it cannot express, with a line that names what and where to go."""
        for what in cls.cannot_express(model):
            other = ENGINES.load(ENGINES.resolve(AUTO, "cpu"))
            hint = "" if other is cls else f"; use the {other.called()} engine"
            raise ModelError(f"the {cls.called()} engine cannot express {what}{hint}")

    # -- state; fresh tensors, safe to keep

    @property
    @abstractmethod
    def qpos(self) -> Tensor:
        """Joint positions, `(N, nq)`."""

    @property
    @abstractmethod
    def qvel(self) -> Tensor:
        """Joint velocities, `(N, nv)`; a free joint's are world linear, then body angular, as MuJoCo has them."""

    @property
    @abstractmethod
    def ctrl(self) -> Tensor:
        """Actuator inputs of the last step, `(N, nu)`."""

    @property
    @abstractmethod
    def actuator_force(self) -> Tensor:
        """Forces the actuators applied in the last substep, `(N, nu)`."""

    @property
    @abstractmethod
    def qacc(self) -> Tensor:
        """Joint accelerations of the last substep, `(N, nv)`."""

    @property
    @abstractmethod
    def body_pos(self) -> Tensor:
        """Origins of the bodies, `(N, nbody, 3)`."""

    @property
    @abstractmethod
    def body_quat(self) -> Tensor:
        """Orientations of the bodies, `(N, nbody, 4)`."""

    @property
    @abstractmethod
    def body_lin_vel(self) -> Tensor:
        """Velocities of the bodies' origins, `(N, nbody, 3)`."""

    @property
    @abstractmethod
    def body_ang_vel(self) -> Tensor:
        """Angular velocities of the bodies, `(N, nbody, 3)`."""

    def velocity_at(self, bodies: slice | Tensor, points: Tensor) -> Tensor:
        """Velocities of points `(N, B, 3)` in the world that move with these bodies, `(N, B, 3)`."""
        arm = points - self.body_pos[:, bodies]
        return self.body_lin_vel[:, bodies] + torch.linalg.cross(self.body_ang_vel[:, bodies], arm)

    @property
    @abstractmethod
    def body_com_pos(self) -> Tensor:
        """Centres of mass of the bodies, `(N, nbody, 3)`."""

    @property
    @abstractmethod
    def contact_force(self) -> Tensor:
        """Net force on each queried body in the last substep, `(N, num_contacts, 3)`; of a query `within` a body, the
        sum of the absolute forces along each axis."""

    def contact_force_on(self, queries: slice) -> Tensor:
        """The same of some of the queries, for engines that have less to do then."""
        return self.contact_force[:, queries]

    @property
    @abstractmethod
    def contact_count(self) -> Tensor:
        """Number of contact points of each queried body in the last substep, `(N, num_contacts)`."""

    # -- changes

    @abstractmethod
    def step(self, n: int) -> None:
        """Advance every environment by `n` physics steps with the controls held."""

    @abstractmethod
    def reset(self, env_ids: EnvIds) -> None:
        """Back to the model's initial state: default positions, no velocity, control, wrench or solver memory."""

    @abstractmethod
    def write_qpos(self, values: Tensor, cols: Ids, env_ids: EnvIds) -> None:
        """Set joint positions; body poses follow at the next `refresh`."""

    @abstractmethod
    def write_qvel(self, values: Tensor, cols: Ids, env_ids: EnvIds) -> None:
        """Set joint velocities; body velocities follow at the next `refresh`."""

    @abstractmethod
    def write_ctrl(self, values: Tensor, cols: Ids, env_ids: EnvIds = None) -> None:
        """Set actuator inputs."""

    @abstractmethod
    def write_wrench(self, force: Tensor, torque: Tensor, bodies: Ids, env_ids: EnvIds) -> None:
        """Set the force at the centre of mass and the torque on bodies, until set again or reset."""

    @abstractmethod
    def refresh(self) -> None:
        """Let what derives from the state follow it where it was written since the last step; at the latest when it is
        read."""

    # -- model parameters, by MuJoCo's field names

    @abstractmethod
    def set_model_field(self, field: str, values: Tensor, ids: Ids, env_ids: EnvIds) -> None:
        """Give environments their own values of a model field: `(len(env_ids), len(ids), ...)`."""

    @abstractmethod
    def get_model_field(self, field: str) -> Tensor:
        """Values of a model field as the physics has them, `(N, ...)`."""

    # -- whole state, to stop and go on

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything the next step and the next reading depend on, model fields that were set included; copies."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to what `state_dict` gave; what follows is what followed then."""

    @abstractmethod
    def close(self) -> None:
        """Free threads and memory."""


def create_engine(
    cfg: SimulationCfg,
    spec: mujoco.MjSpec,
    num_envs: int,
    contacts: Sequence[ContactQuery] = (),
    *,
    env_spacing: float = 0.0,
    notify: Notify | None = None,
) -> Engine:
    """Compile the spec and build the engine the config asks for."""
    device, engine = device_of(cfg), engine_of(cfg)
    say = notify or (lambda message: None)
    return engine(cfg, spec, num_envs, device, contacts, env_spacing=env_spacing, notify=say)


def engine_of(cfg: SimulationCfg) -> type[Engine]:
    """The engine the config asks for, if it can run here."""
    return ENGINES.load(cfg.resolved_engine())


def assign(target: Tensor, values: Tensor, cols: Ids, env_ids: EnvIds) -> None:
    """`target[env_ids, cols] = values` with rows and columns chosen independently."""
    values = values.to(target.device, target.dtype)
    rows = slice(None) if env_ids is None else env_ids.to(target.device)
    if isinstance(cols, slice):
        target[rows, cols] = values
    else:
        columns = torch.as_tensor(cols, device=target.device)
        target[rows if isinstance(rows, slice) else rows[:, None], columns] = values


def device_of(cfg: SimulationCfg) -> torch.device:
    """Where the tensors are, if there is such a place."""
    if cfg.gpu and not torch.cuda.is_available():
        name = "`env.simulation.gpu`"
        raise UsageError(f"{name}: no CUDA device was found here. Leave {name} out to run on the CPU.")
    return torch.device("cuda" if cfg.gpu else "cpu")


def remark_on_idle_gpu(cfg: SimulationCfg, overrides: Mapping[str, Any], notify: Callable[[str], None]) -> None:
    """Say so if there is a CUDA device and the CPU is used because nothing was said."""
    # The count comes from the driver's library, without the memory and the time of a CUDA context.
    if not cfg.gpu and "env.simulation.gpu" not in overrides and torch.cuda.device_count():
        notify("a CUDA device is here and unused: pass `env.simulation.gpu=True`")


def compile_spec(spec: mujoco.MjSpec, what: str = "the model") -> mujoco.MjModel:
    """The compiled model, or one line that says why there is none. What MuJoCo warns of is logged."""
    try:
        with warnings.catch_warnings(record=True) as remarks:
            warnings.simplefilter("always")
            model = spec.compile()
    except ValueError as error:
        raise ModelError(f"{what} does not compile: {' '.join(str(error).split())}") from error
    for remark in remarks:
        log_warning(f"{what}: {remark.message}")
    return model


def log_warning(message: str) -> None:
    """Keep what MuJoCo warns of, for those who ask for it."""
    logging.getLogger("genelab.mujoco").info("%s", " ".join(message.split()))


# MuJoCo would write warnings into a file in the working directory.
mujoco.set_mju_user_warning(log_warning)


def check_size(model: mujoco.MjModel, num_envs: int, device: torch.device) -> None:
    """Refuse more copies of a model than memory holds: each is rows of numbers for its joints and bodies."""
    if device.type == "cpu":
        # Measured: 1.6 kB for an inverted pendulum, 8.9 kB for a quadruped; this is three quarters of it.
        check_memory(
            "env.scene.num_envs", f"{num_envs:,}", 24.0 * num_envs * (model.nq + 2 * model.nv + 16 * model.nbody)
        )
