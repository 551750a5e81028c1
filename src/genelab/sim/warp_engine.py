"""MuJoCo Warp: MuJoCo's physics as kernels, made for NVIDIA GPUs; the same kernels run on the CPU, on one core.

What is read are copies of Warp's own arrays, made on the device; what is written goes straight into them. All physics
steps of a control step are recorded once, as one graph, and replayed from then on: on CUDA that is a CUDA graph, on the
CPU Warp's own list of calls, so that the code here is the same. Nothing in a step waits for the device.

It computes in 32 bits: a step is MuJoCo's to about the seventh digit. What else is not as in MuJoCo:

- The solver stops at a tolerance of 1e-6 at the finest.
- Contacts and constraints have room for as many as `nconmax` and `njmax` say; those beyond are dropped, counted and
  remarked on.
- A geom has at most four points of contact with a height field, where MuJoCo keeps up to fifty.
- Body poses and velocities are always of the end of the step (`fresh_kinematics`).
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from genelab import math as gm
from genelab.sim.cfg import SimulationCfg
from genelab.sim.contacts import SLOTS_WITHIN, WIDTH_WITHIN, ContactQuery
from genelab.sim.engine import Engine, EngineError, EnvIds, Ids, Notify, told_if_slow
from genelab.sim.warp_counts import Counts
from genelab.sim.warp_model import DERIVED, ModelFields, has_height_field, put

_STATE = (
    *("time", "qpos", "qvel", "act", "history", "plastic", "qacc_warmstart", "ctrl", "qfrc_applied", "xfrc_applied"),
    *("eq_active", "mocap_pos", "mocap_quat", "userdata"),
)
"""What the next step starts from: MuJoCo's integration state."""
_BODIES = ("xpos", "xquat", "cvel", "subtree_com", "xipos")
"""What positions and velocities alone decide."""
_FORCES = ("actuator_force", "qacc", "sensordata")
"""What takes a whole step forward to know."""
FEW_POINTS = (
    "MuJoCo Warp keeps at most four points of contact between a geom and a height field, MuJoCo up to fifty: forces on "
    "rough ground are not quite MuJoCo's"
)
_NO_DRIVER = b"Could not find or load the NVIDIA CUDA driver"


class WarpEngine(Engine):
    """Steps all environments with MuJoCo Warp; see `Engine` for the meaning of each member."""

    name = "warp"
    title = "MuJoCo Warp"

    _remarks: set[str] = set()  # noqa: RUF012  what was said once in this process

    @classmethod
    def start(cls, cfg: SimulationCfg, notify: Notify) -> None:
        import warp as wp

        wp.config.log_level = 40  # errors: its remarks on devices and modules are not for users
        with no_word_of_cuda(quiet=not cfg.gpu):
            wp.init()
        if cfg.gpu and not wp.is_cuda_available():
            raise EngineError("MuJoCo Warp finds no CUDA device although torch does: is the driver too old for it?")
        if not cfg.gpu:
            cls._say_once(
                notify,
                "MuJoCo Warp runs on one core of the CPU here, to check what it does on a GPU; "
                "the MuJoCo engine is the fast one on CPUs",
            )
        if cfg.precision == 64:
            cls._say_once(notify, "MuJoCo Warp computes in 32 bits; env.simulation.precision 64 is of the tensors only")

    @classmethod
    def _say_once(cls, notify: Notify, remark: str) -> None:
        if remark not in cls._remarks:
            cls._remarks.add(remark)
            notify(remark)

    @classmethod
    def cannot_express(cls, model: mujoco.MjModel) -> Iterable[str]:
        """What a user may well have; the rest is refused by MuJoCo Warp itself, when it takes the model over."""
        if model.opt.enableflags & mujoco.mjtEnableBit.mjENBL_SLEEP:
            yield 'bodies that fall asleep (the flag sleep="enable")'
        if model.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
            yield 'the solver PGS (<option solver="PGS">)'
        if model.nplugin:
            yield "plugins"

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
        super().__init__(cfg, spec, num_envs, device, contacts, env_spacing=env_spacing, notify=notify)
        import mujoco_warp as mjw
        import warp as wp

        self._wp, self._mjw = wp, mjw
        self._notify = notify
        self._announced = False
        self._settings = cfg.engine_settings["warp"]
        self.device = torch.empty(0, device=device).device  # with its index
        self._on = wp.device_from_torch(self.device)
        self._graphs: dict[Hashable, Any] = {}
        self._loaded: set[Hashable] = set()
        self._cache: dict[str, Tensor] = {}
        with torch.inference_mode(False):
            self._build()
            self._prepare()
            self._find_contacts(contacts)
        self.refresh()
        self._see_forces()  # most kernels are compiled here

    def _build(self) -> None:
        settings, mjw = self._settings, self._mjw
        with self._device():
            self._m, self._d = put(self.model, self.num_envs, settings["nconmax"], settings["njmax"])
        options = self._m.opt
        options.warn_overflow = 0  # it would print from within the kernels
        options.contact_sensor_maxmatch = settings["contact_matches"]
        options.deterministic = int(mjw.DeterminismType.ALL if settings["deterministic"] else 0)
        if self._on.is_cuda:
            options.graph_conditional = self._wp.is_conditional_graph_supported()
            if not options.graph_conditional:
                self._notify(
                    f"this CUDA driver is older than 12.4, so the solver always makes all {self.model.opt.iterations} "
                    "iterations: update it, or lower `env.simulation.solver.iterations`"
                )
        if has_height_field(self.model):
            self._say_once(self._notify, FEW_POINTS)
        self._fields = ModelFields(self.model, self._m, self.num_envs)
        sizes = {"nconmax": self._d.naconmax // self.num_envs, "njmax": self._d.njmax}
        self._counts = Counts({**settings, **sizes}, self.device)

    def _prepare(self) -> None:
        arrays = (*_STATE, *_BODIES, *_FORCES, "solver_niter", "overflow")
        self._views = {name: self._view(getattr(self._d, name)) for name in arrays}
        self._start = {name: self._views[name].clone() for name in _STATE}
        self._stale = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)  # written since `refresh`
        self._pending = torch.ones_like(self._stale)  # what derives from the state has yet to follow
        self._any_stale, self._bodies_due, self._forces_due = False, True, True
        self._roots = torch.tensor(self.model.body_rootid, dtype=torch.int64, device=self.device)
        self._columns_of: dict[tuple[int, ...], Tensor] = {}

    def _view(self, array: Any) -> Tensor:
        """One of Warp's arrays as a tensor on the same memory."""
        return self._wp.to_torch(array, requires_grad=False)

    def _find_contacts(self, contacts: Sequence[ContactQuery]) -> None:
        """Where MuJoCo's sensors write the contacts that are asked for."""
        columns = [int(self.model.sensor(query.sensor).adr[0]) for query in contacts]
        self._counts_at = torch.tensor(columns, dtype=torch.int64, device=self.device)
        self._forces_at = (self._counts_at[:, None] + torch.arange(1, 4, device=self.device)).flatten()
        width = SLOTS_WITHIN * WIDTH_WITHIN
        self._within = {i: slice(columns[i], columns[i] + width) for i, query in enumerate(contacts) if query.within}

    # -- what runs on the device

    @contextmanager
    def _device(self) -> Iterator[None]:
        """Let Warp allocate and launch where and when torch does: on its device, and on its stream, if it has some."""
        wp = self._wp
        with wp.ScopedDevice(self._on):
            if self._on.is_cuda:
                with wp.ScopedStream(wp.stream_from_torch(self.device), sync_enter=False):
                    yield
            else:
                yield

    def _run(self, key: Hashable, work: Callable[[], None]) -> None:
        """Do work of Warp's; from the second time on, replay it as a graph."""
        with self._device():
            if key not in self._loaded:
                where = self._wp.config.kernel_cache_dir
                compiling = "MuJoCo Warp compiles its kernels for this model: that takes a minute, and seconds from the"
                with told_if_slow(self._announce, f"{compiling} next start on, for they are kept in {where}", 10.0):
                    work()
                self._loaded.add(key)
                return
            if key not in self._graphs:
                self._graphs[key] = self._record(work)
            self._wp.capture_launch(self._graphs[key], self._wp.get_stream() if self._on.is_cuda else None)

    def _announce(self, compiling: str) -> None:
        """Say once what takes so long: kernels are compiled at several places."""
        if not self._announced:
            self._announced = True
            self._notify(compiling)

    def _record(self, work: Callable[[], None]) -> Any:
        """A graph of the work; on CUDA on a stream of its own, since torch's first one cannot be recorded."""
        wp = self._wp
        stream = wp.Stream(self._on) if self._on.is_cuda else None
        with wp.ScopedCapture(device=self._on, stream=stream) as capture:
            if stream is None:
                work()
            else:
                with wp.ScopedStream(stream, sync_enter=False):
                    work()
        return capture.graph

    def _kinematics(self) -> None:
        for stage in (self._mjw.kinematics, self._mjw.com_pos, self._mjw.com_vel):
            stage(self._m, self._d)

    def _advance(self, n: int) -> None:
        for _ in range(n):
            self._mjw.step(self._m, self._d)
        self._kinematics()

    # -- state

    def _read(self, name: str, compute: Callable[[], Tensor] | None = None, *, of: str | None = None) -> Tensor:
        """A copy of an array in our type, made once per version; what is computed is a copy already."""
        value = self._cache.get(name)
        if value is None:
            source = of or name
            if source in _BODIES:
                self._see_bodies()
            elif source in _FORCES:
                self._see_forces()
            value = compute() if compute else self._views[name]
            value = self._cache[name] = value.to(self.dtype, copy=compute is None)
        return value

    def _see_bodies(self) -> None:
        """Let bodies follow joints. Where nothing was written they are what they were, bit for bit."""
        if self._bodies_due:
            self._run("kinematics", self._kinematics)
            self._bodies_due = False

    def _see_forces(self) -> None:
        """Let forces follow a state that was written; those of the other environments stay what the last step made."""
        if self._forces_due:
            last = {name: self._views[name].clone() for name in _FORCES}
            self._run("forward", lambda: self._mjw.forward(self._m, self._d))
            for name, value in last.items():
                view = self._views[name]
                view.copy_(torch.where(self._pending[:, None], view, value))
            self._bodies_due = self._forces_due = False
            self._pending.zero_()

    @property
    def qpos(self) -> Tensor:
        return self._read("qpos")

    @property
    def qvel(self) -> Tensor:
        return self._read("qvel")

    @property
    def ctrl(self) -> Tensor:
        return self._read("ctrl")

    @property
    def actuator_force(self) -> Tensor:
        return self._read("actuator_force")

    @property
    def qacc(self) -> Tensor:
        return self._read("qacc")

    @property
    def body_pos(self) -> Tensor:
        return self._read("xpos")

    @property
    def body_quat(self) -> Tensor:
        return self._read("xquat")

    @property
    def body_com_pos(self) -> Tensor:
        return self._read("xipos")

    @property
    def body_ang_vel(self) -> Tensor:
        return self._read("cvel")[..., :3]

    @property
    def body_lin_vel(self) -> Tensor:
        return self._read("body_lin_vel", lambda: self.velocity_at(slice(None), self.body_pos), of="cvel")

    def velocity_at(self, bodies: slice | Tensor, points: Tensor) -> Tensor:
        velocity = gm.take(self._read("cvel"), bodies)  # of a point at the tree's centre of mass
        centre = self._read("subtree_com")[:, self._roots[bodies]]
        return velocity[..., 3:] + torch.linalg.cross(velocity[..., :3], points - centre)

    @property
    def contact_force(self) -> Tensor:
        return self._read("contact_force", self._contact_force, of="sensordata")

    def _contact_force(self) -> Tensor:
        data = self._views["sensordata"]
        # The sensor reports what the body does to the other; we report what is done to the body.
        force = -data.index_select(1, self._forces_at).view(self.num_envs, len(self._counts_at), 3)
        for i, columns in self._within.items():
            slots = data[:, columns].unflatten(1, (SLOTS_WITHIN, WIDTH_WITHIN))
            _, push, normal, tangent = slots.split((1, 3, 3, 3), dim=-1)  # (N, slots, ...); no contact, all zero
            frame = torch.stack((normal, tangent, torch.linalg.cross(normal, tangent)), dim=-1)
            force[:, i] = (frame @ push[..., None]).squeeze(-1).abs().sum(dim=1)
        return force

    @property
    def contact_count(self) -> Tensor:
        def counts() -> Tensor:
            return self._views["sensordata"].index_select(1, self._counts_at)

        return self._read("contact_count", counts, of="sensordata")

    # -- changes

    def _changed(self) -> None:
        self.version += 1
        self._cache.clear()

    def step(self, n: int) -> None:
        self._tell()
        self._run(("step", n), lambda: self._advance(n))
        self._counts.add(self._views["solver_niter"] >= self.model.opt.iterations, self._views["overflow"])
        self.solved += self.num_envs
        self._all_derived()
        self._changed()

    def _tell(self) -> None:
        for remark in self._counts.remarks():
            self._notify(remark)

    @property
    def unconverged(self) -> int:  # type: ignore[override]
        return self._counts.unconverged

    @property
    def overflows(self) -> dict[str, int]:
        """Control steps of single environments in which a buffer was too small, by what overflowed; zeros left out."""
        return self._counts.overflows

    def _all_derived(self) -> None:
        self._any_stale = self._bodies_due = self._forces_due = False
        self._stale.zero_()
        self._pending.zero_()

    def reset(self, env_ids: EnvIds) -> None:
        for name, start in self._start.items():
            _write_rows(self._views[name], start, env_ids)
        self._mark(env_ids)

    def _mark(self, env_ids: EnvIds) -> None:
        """Remember which environments were written."""
        if env_ids is None:
            self._stale.fill_(True)
        else:
            self._stale.index_fill_(0, env_ids.to(self.device), True)
        self._any_stale = self._any_stale or env_ids is None or len(env_ids) > 0
        self._changed()

    def write_qpos(self, values: Tensor, cols: Ids, env_ids: EnvIds) -> None:
        self._assign(self._views["qpos"], values, cols, env_ids)
        self._mark(env_ids)

    def write_qvel(self, values: Tensor, cols: Ids, env_ids: EnvIds) -> None:
        self._assign(self._views["qvel"], values, cols, env_ids)
        self._mark(env_ids)

    def write_ctrl(self, values: Tensor, cols: Ids, env_ids: EnvIds = None) -> None:
        self._assign(self._views["ctrl"], values, cols, env_ids)
        self._cache.pop("ctrl", None)

    def write_wrench(self, force: Tensor, torque: Tensor, bodies: Ids, env_ids: EnvIds) -> None:
        self._assign(self._views["xfrc_applied"], torch.cat((force, torque), dim=-1), bodies, env_ids)

    def _assign(self, target: Tensor, values: Tensor, cols: Ids, env_ids: EnvIds) -> None:
        """`target[env_ids, cols] = values` with rows and columns chosen independently."""
        values = values.to(target.device, target.dtype)
        rows = slice(None) if env_ids is None else env_ids.to(target.device)
        if isinstance(cols, slice):
            target[rows, cols] = values
        else:
            columns = self._on_device(cols)
            target[rows if isinstance(rows, slice) else rows[:, None], columns] = values

    def _on_device(self, ids: Sequence[int] | Tensor) -> Tensor:
        """Columns as a tensor; numbers are brought to the device once, since that waits for it."""
        if isinstance(ids, Tensor):
            return ids.to(self.device)
        key = tuple(int(i) for i in ids)
        if key not in self._columns_of:
            self._columns_of[key] = torch.tensor(key, dtype=torch.int64, device=self.device)
        return self._columns_of[key]

    def refresh(self) -> None:
        """It is done when something is read that derives from the state."""
        if self._any_stale:
            self._pending |= self._stale
            self._stale.zero_()
            self._any_stale = False
            self._bodies_due = self._forces_due = True
            self._changed()

    # -- model parameters

    def set_model_field(self, field: str, values: Tensor, ids: Ids, env_ids: EnvIds) -> None:
        self._fields.check(field)
        if env_ids is not None and len(env_ids) == 0:
            return
        self._fields.refuse_static(field, ids)
        self._assign(self._expand(field), values, ids, env_ids)
        if field in mujoco.MjModel._setconst_inputs:
            for derived in DERIVED:
                self._expand(derived)
            self._run("constants", lambda: self._mjw.set_const(self._m, self._d))
        self._begin_anew(field)
        self._mark(env_ids)

    def _expand(self, field: str) -> Tensor:
        """A model field with a row per environment; graphs that know the old array are recorded anew."""
        if field not in self._fields.own:
            with torch.inference_mode(False), self._device():
                self._fields.expand(field)
            self._graphs.clear()
        return self._fields.own[field]

    def _begin_anew(self, field: str) -> None:
        """Let `reset` lead to what the model now says."""
        mocap = [int(i) for i in np.argsort(self.model.body_mocapid) if self.model.body_mocapid[i] >= 0]
        if field == "qpos0":
            self._start["qpos"].copy_(self._fields.own[field])
        elif field in ("body_pos", "body_quat") and mocap:
            self._start[field.replace("body", "mocap")].copy_(self._fields.own[field][:, self._on_device(mocap)])

    def get_model_field(self, field: str) -> Tensor:
        self._fields.check(field)
        return self._fields.get(field).to(self.dtype, copy=True)

    # -- whole state

    def state_dict(self) -> dict[str, Any]:
        self._see_bodies()
        self._see_forces()
        arrays = {name: self._views[name].clone() for name in (*_STATE, *_BODIES, *_FORCES)}
        return {**arrays, "model": {name: values.clone() for name, values in self._fields.own.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        saved = state["model"]
        for name in dict.fromkeys((*self._fields.own, *saved)):
            self._expand(name).copy_(saved[name] if name in saved else self._fields.as_compiled(name))
            self._begin_anew(name)
        for name in (*_STATE, *_BODIES, *_FORCES):
            self._views[name].copy_(state[name])
        self._all_derived()
        self._changed()

    def close(self) -> None:
        self._tell()
        for kept in (self._graphs, self._views, self._cache, self._start, self._fields.own):
            kept.clear()
        del self._m, self._d


def _write_rows(target: Tensor, values: Tensor, env_ids: EnvIds) -> None:
    if env_ids is None:
        target.copy_(values)
    else:
        rows = env_ids.to(target.device)
        target.index_copy_(0, rows, values.index_select(0, rows))


@contextmanager
def no_word_of_cuda(*, quiet: bool) -> Iterator[None]:
    """Keep back the line that Warp's library writes where there is no CUDA driver, for who asked for none.

    It goes straight to the process's stderr, whatever `wp.config` says. Everything else that is written meanwhile is
    written afterwards.
    """
    try:
        terminal = os.dup(2) if quiet else None
    except OSError:  # nobody listens
        terminal = None
    if terminal is None:
        yield
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
            held.seek(0)
            rest = b"".join(line for line in held if _NO_DRIVER not in line)
            if rest:
                os.write(2, rest)
