"""Genesis: its own batched solver, on the GPU or the CPU.

Genesis is handed the compiled MuJoCo model itself, so every number is the one MuJoCo computed, and it keeps MuJoCo's
order of bodies and degrees of freedom and MuJoCo's convention for a free joint (world linear, body angular velocity).
Tensors stay on the device; nothing in `step` waits for it, but for Genesis's own look at its error flags every tenth
substep.

In 64 bits a step is MuJoCo's to about the fifteenth digit, contacts between most primitives included: their friction
and solver parameters are combined by MuJoCo's rule (`genesis_contacts`), priorities and all. What remains:

- After `reset` or `write_qpos`, contacts and joint accelerations of those environments are zero until the next step.
- An actuator at its force limit keeps its implicit damping; MuJoCo drops it there.
- A body with no joint but a free one is integrated by the midpoint rule while nothing touches it.
- A sliding friction below 0.01 counts as 0.01; that of geoms which do not collide cannot be changed.
- A model that Genesis would step as something else is refused.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from genelab.sim import genesis_mapping as mapping
from genelab.sim.cfg import SimulationCfg
from genelab.sim.contacts import ContactQuery
from genelab.sim.engine import Engine, EngineError, EnvIds, Ids, Notify, assign, told_if_slow
from genelab.sim.genesis_fields import ModelFields, as_slice
from genelab.sim.genesis_mapping import in_any_mode

_READINGS = ("actuator_force", "contact_force", "contact_count")
"""Readings of the last substep that the state does not determine."""
_COMPILING = "Genesis compiles its kernels for this model: that takes minutes, and seconds from the next start on"
_COMPILES_AFTER = 20.0
"""A build from the cache of kernels has ended by then, s."""

_engines: weakref.WeakSet[GenesisEngine] = weakref.WeakSet()


class GenesisEngine(Engine):
    """Steps all environments with Genesis; see `Engine` for the meaning of each member."""

    name = "genesis"
    title = "Genesis"

    @classmethod
    def start(cls, cfg: SimulationCfg, notify: Notify) -> None:
        mapping.start_genesis(cfg, in_use=len(_engines) > 0)

    @classmethod
    def cannot_express(cls, model: mujoco.MjModel) -> Iterable[str]:
        return mapping.inexpressible(model)

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
        import genesis as gs

        self._gs = gs
        self._cache: dict[str, Tensor] = {}
        with told_if_slow(notify, _COMPILING, _COMPILES_AFTER):
            self._scene, self._entity, terrain = mapping.build_scene(
                self._gs, cfg, spec, self.model, num_envs, env_spacing
            )
        _engines.add(self)
        self._solver = self._scene.rigid_solver
        self._first = self.model.nbody - self._entity.n_links  # 1 where Genesis leaves the world body out
        self._prepare()
        mapping.combine_as_mujoco(self._solver, self.model, self._fields.geoms, self._fields.friction)
        self._fields.actuate()
        self._queries = [(*self._contact_masks(query, terrain is not None), query.within) for query in contacts]
        self.reset(None)
        self.refresh()

    def _prepare(self) -> None:
        model = self.model
        self._qpos0 = self._constant(model.qpos0)
        self._fields = ModelFields(self._entity, model, self.num_envs, self._qpos0, self._gs.tc_int)
        self._actuated = as_slice(mapping.actuator_dofs(model))
        control, _ = mapping.actuator_limits(model)
        self._ctrl_low, self._ctrl_high = self._constant(control[:, 0]), self._constant(control[:, 1])
        self._ctrl = torch.zeros(self.num_envs, model.nu, dtype=self.dtype, device=self.device)
        self._ctrl_changed = True
        self._wrench = torch.zeros(self.num_envs, model.nbody, 6, dtype=self.dtype, device=self.device)
        self._wrench_set = False
        self._stale = False  # body frames are not of the state
        self._has_own_fields = False  # environments have their own values of model fields
        self._moved = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)  # placed since the last step
        self._any_moved = False
        # On the GPU read all contact slots: asking how many are in use would wait for the device.
        self._padded = self.device.type != "cpu"
        self._held: dict[str, Tensor] = {}  # readings that came with a state, until the next step

    def _contact_masks(self, query: ContactQuery, terrain: bool) -> tuple[Tensor, Tensor]:
        """Which of Genesis's links are the body, and which the other; the ground is part of the world."""
        every = np.ones(self.model.nbody, dtype=bool)
        body = mapping.body_mask(self.model, query.body, query.subtree)
        subtree = query.subtree and query.other != "world"  # the world's subtree would be everything
        other = every if query.other is None else mapping.body_mask(self.model, query.other, subtree)
        masks = [np.append(mask[self._first :], mask[:1] if terrain else []).astype(bool) for mask in (body, other)]
        return torch.as_tensor(masks[0], device=self.device), torch.as_tensor(masks[1], device=self.device)

    def _constant(self, array: np.ndarray) -> Tensor:
        return torch.as_tensor(array).to(self.device, self.dtype)

    # -- state

    def _read(self, name: str, compute: Callable[[], Tensor]) -> Tensor:
        """What `compute` gives, made once per version."""
        value = self._cache.get(name)
        if value is None:
            value = self._cache[name] = compute()
        return value

    def _array(self, array: Any, width: int) -> Tensor:
        """A copy of one of the solver's own arrays, environments first."""
        from genesis.utils.misc import qd_to_torch

        return qd_to_torch(array, transpose=True, copy=True)[:, :width]

    def _bodies(self, links: Tensor) -> Tensor:
        """Values of links as values of bodies, with zeros for a world that Genesis leaves out."""
        return torch.nn.functional.pad(links, (0, 0, self._first, 0))

    @property
    def qpos(self) -> Tensor:
        return self._read("qpos", self._entity.get_qpos)

    @property
    def qvel(self) -> Tensor:
        return self._read("qvel", self._entity.get_dofs_velocity)

    @property
    def ctrl(self) -> Tensor:
        return self._read("ctrl", self._ctrl.clone)

    @property
    def actuator_force(self) -> Tensor:
        return self._read("actuator_force", self._actuator_force)

    def _actuator_force(self) -> Tensor:
        applied = self._held.get("actuator_force")
        if applied is None:
            applied = self._array(self._solver.dyn_state.dofs.qf_applied, self.model.nv)[:, self._actuated]
        if self._any_moved:
            self._apply_ctrl()
            fresh = self._entity.get_dofs_control_force()[:, self._actuated]
            applied = torch.where(self._moved[:, None], fresh, applied)
        return applied

    @property
    def qacc(self) -> Tensor:
        return self._read("qacc", self._acceleration)

    def _acceleration(self) -> Tensor:
        # The constraint solver's, which is MuJoCo's `qacc`; `get_dofs_acc` is after the implicit damping.
        acceleration = self._array(self._solver.constraint_solver.qacc, self.model.nv)
        return acceleration.masked_fill(self._moved[:, None], 0.0)

    @property
    def body_pos(self) -> Tensor:
        return self._read("body_pos", lambda: self._bodies(self._entity.get_links_pos()))

    @property
    def body_quat(self) -> Tensor:
        return self._read("body_quat", self._body_quat)

    def _body_quat(self) -> Tensor:
        quat = self._bodies(self._entity.get_links_quat())
        quat[:, : self._first, 0] = 1.0
        return quat

    @property
    def body_lin_vel(self) -> Tensor:
        return self._read("body_lin_vel", lambda: self._bodies(self._entity.get_links_vel()))

    @property
    def body_ang_vel(self) -> Tensor:
        return self._read("body_ang_vel", lambda: self._bodies(self._entity.get_links_ang()))

    @property
    def body_com_pos(self) -> Tensor:
        centre = self._gs.link_ref_frame.link_COM
        return self._read("body_com_pos", lambda: self._bodies(self._entity.get_links_pos(ref=centre)))

    @property
    def contact_force(self) -> Tensor:
        return self._read("contact_force", lambda: self._contacts("contact_force"))

    @property
    def contact_count(self) -> Tensor:
        return self._read("contact_count", lambda: self._contacts("contact_count"))

    def _contacts(self, name: str) -> Tensor:
        if name in self._held:
            held = self._held[name]
            return torch.where(self._moved.view(-1, *[1] * (held.dim() - 1)), 0.0, held)
        contacts = self._solver.collider.get_contacts(is_padded=self._padded)
        first, second = contacts["link_a"].long(), contacts["link_b"].long()  # (N, slots)
        if self._padded:
            used = torch.arange(first.shape[1], device=self.device) < contacts["n_contacts"][:, None]
        else:
            used = first >= 0
        first, second = first * used, second * used
        push = contacts["force"].masked_fill(~used[..., None], 0.0)  # on the second
        forces, counts = [push.new_zeros(self.num_envs, 0, 3)], [push.new_zeros(self.num_envs, 0)]
        for body, other, within in self._queries:
            on_first = body[first] & other[second] & used
            on_second = body[second] & other[first] & used
            sign = on_second.to(self.dtype) - on_first.to(self.dtype)
            felt = on_first[..., None] * push.abs() if within else sign[..., None] * push
            forces.append(felt.sum(dim=1, keepdim=True))
            counts.append((on_first | on_second).sum(dim=1, keepdim=True).to(self.dtype))
        self._cache["contact_force"], self._cache["contact_count"] = torch.cat(forces, 1), torch.cat(counts, 1)
        return self._cache[name]

    # -- changes

    def _changed(self) -> None:
        self.version += 1
        self._cache.clear()

    @in_any_mode
    def _apply_ctrl(self) -> None:
        if self._ctrl_changed and self.model.nu:
            ctrl = torch.clamp(self._ctrl, self._ctrl_low, self._ctrl_high)
            self._solver.control_dofs_position(ctrl, self._actuated)
        self._ctrl_changed = False

    @in_any_mode
    def step(self, n: int) -> None:
        self._apply_ctrl()
        links = slice(0, self._entity.n_links)
        force, torque = self._wrench[:, self._first :].split(3, dim=-1)
        try:
            for _ in range(n):
                if self._wrench_set:
                    self._solver.apply_links_external_wrench(force, torque, links, ref=self._gs.link_ref_frame.link_COM)
                self._scene.step(update_visualizer=False, refresh_visualizer=False)
        except self._gs.GenesisException as error:
            raise EngineError(f"Genesis: {error}") from error
        finally:
            self._stale = self._any_moved = False
            self._moved.zero_()
            self._held.clear()
            self._changed()

    @in_any_mode
    def reset(self, env_ids: EnvIds) -> None:
        every = slice(None) if env_ids is None else env_ids.to(self.device)
        self._solver.collider.reset(self._rows(env_ids), cache_only=False)
        self.write_qpos(self._qpos0, slice(0, self.model.nq), env_ids)
        self.write_qvel(torch.zeros(self.model.nv), slice(0, self.model.nv), env_ids)
        self._ctrl[every] = 0.0
        self._ctrl_changed = True
        if self._wrench_set:
            self._wrench[every] = 0.0
            self._wrench_set = bool(self._wrench.any())

    def write_qpos(self, values: Tensor, cols: Ids, env_ids: EnvIds) -> None:
        self._write(self._solver.set_qpos, values, cols, env_ids)
        self._moved[slice(None) if env_ids is None else env_ids.to(self.device)] = True
        self._any_moved = True

    def write_qvel(self, values: Tensor, cols: Ids, env_ids: EnvIds) -> None:
        self._write(self._solver.set_dofs_velocity, values, cols, env_ids)

    @in_any_mode
    def _write(self, setter: Callable[..., None], values: Tensor, cols: Ids, env_ids: EnvIds) -> None:
        rows = self._rows(env_ids)
        count = self.num_envs if rows is None else len(rows)
        if count > 0:
            columns = cols if isinstance(cols, slice | Tensor) else as_slice(cols)
            values = values.to(self.device, self.dtype).expand(count, values.shape[-1])
            setter(values, columns, rows, skip_forward=True)
            self._stale = True
            self._changed()

    def _rows(self, env_ids: EnvIds) -> Tensor | None:
        return None if env_ids is None else env_ids.to(self.device, self._gs.tc_int)

    def write_ctrl(self, values: Tensor, cols: Ids, env_ids: EnvIds = None) -> None:
        assign(self._ctrl, values, cols, env_ids)
        self._ctrl_changed = True
        self._cache.pop("ctrl", None)

    def write_wrench(self, force: Tensor, torque: Tensor, bodies: Ids, env_ids: EnvIds) -> None:
        assign(self._wrench, torch.cat((force, torque), dim=-1), bodies, env_ids)
        self._wrench_set = bool(self._wrench.any())

    @in_any_mode
    def refresh(self) -> None:
        if self._stale:
            # Positions and velocities together; Genesis would leave velocities alone after a write of only those.
            self._solver._is_forward_pos_updated = False
            self._solver.update_forward_pos()
            self._stale = False
            self._changed()

    # -- model parameters

    def set_model_field(self, field: str, values: Tensor, ids: Ids, env_ids: EnvIds) -> None:
        if env_ids is not None and len(env_ids) == 0:
            return
        self._has_own_fields = True
        try:
            self._fields.set(field, values, ids, env_ids)
        except self._gs.GenesisException as error:
            raise EngineError(f"Genesis: {field}: {error}") from error
        self._stale = True
        self._changed()

    def get_model_field(self, field: str) -> Tensor:
        return self._fields.get(field)

    # -- whole state

    def state_dict(self) -> dict[str, Any]:
        from genesis.utils.misc import data_to_array

        arrays = {name: data_to_array(array, to_torch=True, copy=True) for name, array in self._state_arrays()}
        own = {"ctrl": self._ctrl, "wrench": self._wrench, "moved": self._moved, "friction": self._fields.friction}
        readings = {name: getattr(self, name) for name in _READINGS}
        copies = {name: value.detach().to("cpu", copy=True) for name, value in {**arrays, **own, **readings}.items()}
        return {**copies, "own_fields": self._has_own_fields}

    def _state_arrays(self) -> Iterator[tuple[str, Any]]:
        """What the solver's next step starts from, by its own account: state, and model fields where some were set."""
        from genesis.utils.array_class import ArrayItem

        kinds = self._state_kinds()
        for item in self._solver.data:
            if isinstance(item, ArrayItem) and item.kind in kinds:
                yield item.name, item.array

    def _state_kinds(self) -> frozenset[Any]:
        from genesis.utils.array_class import DataKind

        return frozenset({DataKind.STATE, DataKind.INFO} if self._has_own_fields else {DataKind.STATE})

    @in_any_mode
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        from genesis.engine.states.solvers import SolverCheckpoint

        self._has_own_fields = state["own_fields"]
        arrays = {name: state[name].to(self.device) for name, _ in self._state_arrays()}
        self._solver.__setstate__(SolverCheckpoint(arrays=arrays, configs={}, kinds=self._state_kinds()))
        self._ctrl.copy_(state["ctrl"])
        self._wrench.copy_(state["wrench"])
        self._moved.copy_(state["moved"])
        self._fields.friction.copy_(state["friction"])
        self._ctrl_changed = self._any_moved = True
        self._wrench_set = bool(self._wrench.any())
        self._stale = False
        self._held = {name: state[name].to(self.device) for name in _READINGS}
        self._changed()

    def close(self) -> None:
        _engines.discard(self)
        self._cache.clear()
        self._scene.destroy()
