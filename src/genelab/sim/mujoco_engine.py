"""Native MuJoCo on all cores of the CPU.

`mujoco.batch` keeps every environment as one row of state and runs all of them through all substeps of a control step
in one native call, on a persistent pool of threads. The arrays are allocated once; what is read here are views of them.
A randomised model field is one array with a row per environment, and everything else of the model (a height field,
say) is shared. What is stepped is a leaner model of the same physics (`mujoco_model.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
import torch
from mujoco.batch import MODEL_FIELDS, Batch, SimulationError
from torch import Tensor

from genelab import math as gm
from genelab.errors import ConfigError, did_you_mean
from genelab.sim.cfg import SimulationCfg
from genelab.sim.contacts import SLOTS_WITHIN, WIDTH_WITHIN, ContactQuery
from genelab.sim.engine import Engine, EngineError, EnvIds, Ids, Notify, assign
from genelab.sim.mujoco_bodies import BODY_FIELDS, MujocoBodies
from genelab.sim.mujoco_model import lean_model, touching

_INPUTS = ("qpos", "qvel", "ctrl", "xfrc_applied")
_MASKS = ("geom_contype", "geom_conaffinity")
_FIELDS_OF_THE_START = ("qpos0", "eq_active0", "body_pos", "body_quat")
"""Model fields that the initial state is made of."""
MANY = 8
"""From so many points on, arithmetic on planes is faster."""
_FORCES = ("actuator_force", "qacc", "sensordata")
_OF_FORCES = (*_FORCES, "net_contact_force", "contact_force", "contact_count")


class MujocoEngine(Engine):
    """Steps all environments with MuJoCo; see `Engine` for the meaning of each member."""

    name = "mujoco"
    title = "MuJoCo"

    @classmethod
    def cannot_express(cls, model: mujoco.MjModel) -> Iterable[str]:
        if model.opt.enableflags & mujoco.mjtEnableBit.mjENBL_SLEEP:
            yield 'bodies that fall asleep (the flag sleep="enable")'

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
        self._is_fresh = cfg.fresh_kinematics
        stepped, self._geoms = lean_model(spec, self.model)
        self._batch = Batch(stepped, num_envs, nthread=cfg.threads)
        self._of_geoms: dict[str, np.ndarray] = {}
        """Fields of which environments have their own values, of all geoms, `(N, ngeom, ...)`."""
        self._bodies: MujocoBodies | None = None  # until somebody reads of them
        self._start = self._batch.state[0].copy()
        self._views: dict[str, Tensor] = {}
        self._cache: dict[str, Tensor] = {}
        self._stale = np.zeros(num_envs, dtype=bool)
        self._pending = np.zeros(num_envs, dtype=bool)
        self._is_pending = False
        self._moved = np.ones(num_envs, dtype=bool)
        self._has_moved = True
        self._has_own_fields = False
        self._roots = self.model.body_rootid.tolist()
        self._root = torch.tensor(self._roots, device=device)
        columns = [int(self.model.sensor(query.sensor).adr[0]) for query in contacts]
        self._contact_columns = torch.tensor(columns, dtype=torch.int64)
        self._force_columns = (self._contact_columns[:, None] + torch.arange(1, 4)).flatten()
        self._spacing = gm.columns(columns, self._contact_columns.device)
        width = SLOTS_WITHIN * WIDTH_WITHIN
        self._within = {i: slice(columns[i], columns[i] + width) for i, query in enumerate(contacts) if query.within}
        self._bind_outputs()
        self._stale[:] = True
        self.refresh()

    def _bind_outputs(self) -> None:
        """Name what the native call copies out; binding later would leave it empty until the next step."""
        self._inputs = {name: self._batch.bind(name) for name in _INPUTS}
        self._views |= {name: torch.from_numpy(view) for name, view in self._inputs.items()}
        self._outputs = _FORCES if self._is_fresh else (*BODY_FIELDS, *_FORCES)
        self._add_views({name: self._batch.bind(name) for name in self._outputs})
        self._iterations, self._islands = self._batch.bind("solver_niter"), self._batch.bind("nisland")

    def _add_views(self, outputs: Mapping[str, np.ndarray]) -> None:
        for name, view in outputs.items():
            view.flags.writeable = True  # torch accepts no read-only memory; only `load_state_dict` writes
            self._views[name] = torch.from_numpy(view)

    # -- state

    def _read(self, name: str, compute: Callable[[], Tensor] | None = None) -> Tensor:
        """A copy of an array in our type and on our device, made once per version."""
        value = self._cache.get(name)
        if value is None:
            if name not in _INPUTS:
                self._derive(name)
            value = compute() if compute else self._views[name]
            value = value.to(self.device, self.dtype, copy=compute is None)
            self._cache[name] = value
        return value

    def _derive(self, name: str) -> None:
        """Bring up to date what derives from the state."""
        if self._is_fresh and name.partition("/")[0] not in _OF_FORCES:
            if self._has_moved:
                self._derive_bodies()
        elif self._is_pending:
            self._forward()

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
        return self._read("body_lin_vel", lambda: self.velocity_at(slice(None), self.body_pos))

    def velocity_at(self, bodies: slice | Tensor, points: Tensor) -> Tensor:
        velocity = gm.take(self._read("cvel"), bodies)  # of a point at the tree's centre of mass
        away = points - self._tree_centre(bodies)
        if points.shape[1] < MANY:
            return velocity[..., 3:] + torch.linalg.cross(velocity[..., :3], away)
        planes = gm.planes(velocity)
        return (planes[3:] + gm.cross(planes[:3], gm.planes(away))).movedim(0, -1)

    def _tree_centre(self, bodies: slice | Tensor) -> Tensor:
        """Centre of mass of the tree that each body hangs on; of one tree, one that broadcasts."""
        if isinstance(bodies, slice) and len(roots := set(self._roots[bodies])) == 1:
            root = roots.pop()
            name = f"tree_com/{root}"
            self._derive("subtree_com")
            self._views.setdefault(name, self._views["subtree_com"][:, root, None])
            return self._read(name)
        return self._read("subtree_com")[:, self._root[bodies]]

    @property
    def contact_force(self) -> Tensor:
        return self._read("contact_force", self._contact_force)

    def contact_force_on(self, queries: slice) -> Tensor:
        asked = range(*queries.indices(len(self._contact_columns)))
        if len(asked) == 1 and asked[0] in self._within:
            return self._within_force(asked[0])[:, None]
        within = any(i in self._within for i in asked)
        force = self.contact_force if within else self._read("net_contact_force", self._net_contact_force)
        return force[:, queries]

    def _net_contact_force(self) -> Tensor:
        # The sensor reports what the body does to the other; we report what is done to the body.
        return -self._forces(self._views["sensordata"]).to(self.dtype)

    def _contact_force(self) -> Tensor:
        force = self._read("net_contact_force", self._net_contact_force)
        if self._within:
            force = force.clone()
        for i in self._within:
            force[:, i] = self._within_force(i)
        return force

    def _within_force(self, i: int) -> Tensor:
        """Sum of the absolute forces of a body that touches itself along each axis, `(N, 3)`."""
        return self._read(f"contact_force/{i}", lambda: torch.from_numpy(self._sum_within(self._within[i])))

    def _sum_within(self, columns: slice) -> np.ndarray:
        data = self._views["sensordata"].numpy()
        total = np.zeros((self.num_envs, 3))
        touching = np.flatnonzero(data[:, columns.start])  # few do, most of the time
        slots = data[touching, columns].reshape(len(touching), SLOTS_WITHIN, WIDTH_WITHIN).transpose(2, 0, 1)
        push, normal, tangent = slots[1:4], slots[4:7], slots[7:10]  # (3, touching, slots)
        binormal = np.stack([normal[j] * tangent[k] - normal[k] * tangent[j] for j, k in ((1, 2), (2, 0), (0, 1))])
        forces = push[0] * normal + push[1] * tangent + push[2] * binormal
        total[touching] = np.abs(forces).sum(axis=2).T
        return total

    def _forces(self, data: Tensor) -> Tensor:
        """The three numbers after the count of each contact sensor, `(N, contacts, 3)`."""
        shape = (self.num_envs, len(self._contact_columns), 3)
        if isinstance(self._spacing, slice):  # a view costs nothing
            return data.as_strided(shape, (data.stride(0), self._spacing.step, 1), self._spacing.start + 1)
        return data.index_select(1, self._force_columns).view(shape)

    @property
    def contact_count(self) -> Tensor:
        return self._read("contact_count", lambda: self._views["sensordata"].index_select(1, self._contact_columns))

    # -- changes

    def _changed(self) -> None:
        self.version += 1
        self._cache.clear()

    def step(self, n: int) -> None:
        self._run(lambda: self._batch.step(nstep=n))
        self._all_derived()
        self.solved += self.num_envs
        most = max(int(self._islands.max()), 1)  # what is beyond the last island is of another environment
        self.unconverged += int(np.count_nonzero((self._iterations[:, :most] >= self.model.opt.iterations).any(axis=1)))

    def _all_derived(self) -> None:
        self._stale[:] = False
        self._pending[:] = False
        self._is_pending = False
        self._moved[:] = self._has_moved = True
        self._release_bodies()

    def _release_bodies(self) -> None:
        if self._bodies is not None:
            self._bodies.release()

    def _run(self, call: Callable[[], None]) -> None:
        try:
            call()
        except SimulationError as error:
            raise EngineError(f"MuJoCo: {error}") from error
        finally:
            self._changed()

    def reset(self, env_ids: EnvIds) -> None:
        ids = None if env_ids is None else _array(env_ids)
        self._about_to_write(ids)
        if self._has_own_fields and any(self._batch.expanded(field) is not None for field in _FIELDS_OF_THE_START):
            self._batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE)
        else:  # all start alike, and a copy is fifty times faster
            self._batch.state[slice(None) if ids is None else ids] = self._start
        self._mark(ids)

    def _about_to_write(self, ids: np.ndarray | None) -> None:
        """Until `refresh`, bodies are where they were: who reads of them must not see a state that is being written."""
        if self._has_moved and self._bodies is not None:
            self._bodies.keep(np.flatnonzero(self._moved) if ids is None else ids[self._moved[ids]])

    def _mark(self, ids: np.ndarray | None) -> None:
        self._stale[slice(None) if ids is None else ids] = True
        self._changed()

    def write_qpos(self, values: Tensor, cols: Ids, env_ids: EnvIds) -> None:
        self._write("qpos", values, cols, env_ids)

    def write_qvel(self, values: Tensor, cols: Ids, env_ids: EnvIds) -> None:
        self._write("qvel", values, cols, env_ids)

    def _write(self, name: str, values: Tensor, cols: Ids, env_ids: EnvIds) -> None:
        ids = None if env_ids is None else _array(env_ids)
        if self._has_moved:
            self._about_to_write(ids)
        self._assign(name, values, cols, ids)
        self._mark(ids)

    def _assign(self, name: str, values: Tensor, cols: Ids, ids: np.ndarray | None) -> None:
        """Write into an array, without torch: for a few rows its calls cost more than the work."""
        columns = _array(cols) if isinstance(cols, Tensor) else cols
        rows = slice(None) if ids is None else ids if isinstance(columns, slice) else ids[:, None]
        self._inputs[name][rows, columns] = _array(values)

    def write_ctrl(self, values: Tensor, cols: Ids, env_ids: EnvIds = None) -> None:
        self._assign("ctrl", values, cols, None if env_ids is None else _array(env_ids))
        self._cache.pop("ctrl", None)

    def write_wrench(self, force: Tensor, torque: Tensor, bodies: Ids, env_ids: EnvIds) -> None:
        ids = None if env_ids is None else _array(env_ids)
        self._assign("xfrc_applied", torch.cat((force, torque), dim=-1), bodies, ids)

    def refresh(self) -> None:
        """It is done when something is read that derives from the state; pushes in every step cost nothing where nobody
        reads any before the next one."""
        if self._stale.any():
            self._pending |= self._stale
            self._moved |= self._stale
            self._stale[:] = False
            self._is_pending = self._has_moved = True
            self._release_bodies()
            self._changed()

    def _forward(self) -> None:
        try:
            # Up to accelerations, or a reset environment would still show the contacts of its old state.
            self._batch.forward(_rows(self._pending), stage=mujoco.mjtStage.mjSTAGE_ACC)
        except SimulationError as error:
            raise EngineError(f"MuJoCo: {error}") from error
        finally:
            self._pending[:] = self._is_pending = False

    def _derive_bodies(self, among: np.ndarray | None = None) -> None:
        """Bring bodies up to date where they have moved, in all environments or among these."""
        if self._bodies is None:
            self._bodies = MujocoBodies(self._batch)
            self._add_views(self._bodies.views)
        ids = _rows(self._moved) if among is None else among[self._moved[among]]
        try:
            if ids is None or len(ids):
                self._bodies.derive(ids)
        except SimulationError as error:
            raise EngineError(f"MuJoCo: {error}") from error
        finally:
            self._moved[slice(None) if among is None else among] = False
            self._has_moved = among is not None

    # -- model parameters

    def set_model_field(self, field: str, values: Tensor, ids: Ids, env_ids: EnvIds) -> None:
        _check_field(field)
        rows = None if env_ids is None else env_ids.cpu().numpy()
        if self._has_moved and self._bodies is not None:
            self._derive_bodies(rows)
        own = self._own_field(field)
        assign(torch.from_numpy(own), values, ids, env_ids)
        if field in self._of_geoms:
            self._step_geoms(field)
        self._model_changed()
        if field in mujoco.MjModel._setconst_inputs:
            self._run(lambda: self._batch.set_const(rows))
        self._mark(rows)

    def _own_field(self, field: str) -> np.ndarray:
        """Room for a value of each environment, of all geoms if it is of those."""
        if not field.startswith("geom_"):
            return self._batch.expand(field)
        shared = np.asarray(getattr(self.model, field))
        return self._of_geoms.setdefault(field, np.repeat(shared[None], self.num_envs, axis=0))

    def _step_geoms(self, field: str) -> None:
        """Let those that are stepped have the values of a field."""
        values = self._of_geoms[field]
        if field in _MASKS:
            masks = (self._of_geoms.get(name, getattr(self.model, name)) for name in _MASKS)
            if np.delete(touching(self.model, *masks), self._geoms, axis=-1).any():
                raise ConfigError(
                    f"{field}: a geom that could touch nothing cannot begin to collide; give it a contype in its MJCF"
                )
        self._batch.expand(field)[:] = values[:, self._geoms]

    def _model_changed(self) -> None:
        self._has_own_fields = True
        if self._bodies is not None:
            self._bodies.model_changed = True

    def get_model_field(self, field: str) -> Tensor:
        _check_field(field)
        values = self._of_geoms.get(field, self._batch.expanded(field))
        if values is None:
            shared = np.asarray(getattr(self.model, field))
            values = np.broadcast_to(shared, (self.num_envs, *shared.shape))
        return torch.tensor(values, device=self.device)

    # -- whole state

    def state_dict(self) -> dict[str, Any]:
        if self._is_pending:
            self._forward()
        outputs = {name: self._views[name].clone() for name in self._outputs}
        return {"state": torch.tensor(self._batch.state), **outputs, "model": self._own_fields()}

    def _own_fields(self) -> dict[str, Tensor]:
        """The model fields of which environments have their own values, and what was derived from them."""
        fields = {name: self._batch.expanded(name) for name in MODEL_FIELDS} if self._has_own_fields else {}
        fields |= self._of_geoms
        return {name: torch.tensor(values) for name, values in fields.items() if values is not None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        saved, here = state["model"], self._own_fields()
        for name in dict.fromkeys((*here, *saved)):
            shared = getattr(self._batch.model if name.startswith("bvh_") else self.model, name)
            values, own = saved[name].cpu().numpy() if name in saved else shared, self._own_field(name)
            if name in saved and values.shape != own.shape:
                raise EngineError(f"the saved state is of another model: its {name} is {values.shape}, not {own.shape}")
            own[:] = values
            if name in self._of_geoms:
                self._step_geoms(name)
        if saved or here:
            self._model_changed()
        self._batch.state[:] = state["state"].cpu().numpy()
        for name in self._outputs:
            self._views[name].copy_(state[name])
        self._all_derived()
        self._changed()

    def close(self) -> None:
        self._inputs.clear()
        self._views.clear()
        self._cache.clear()
        del self._batch, self._bodies, self._iterations, self._islands


def _array(values: Tensor) -> np.ndarray:
    """A tensor's numbers, not copied where they lie in this memory."""
    return values.numpy(force=values.requires_grad or values.device.type != "cpu")


def _rows(chosen: np.ndarray) -> np.ndarray | None:
    """Which environments a mask chooses; None: all."""
    return None if chosen.all() else np.flatnonzero(chosen)


def _check_field(field: str) -> None:
    if field not in MODEL_FIELDS:
        raise ConfigError(f"{field!r} is not a field of the model.{did_you_mean(field, MODEL_FIELDS)}")
