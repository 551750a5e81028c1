"""Model fields of a built Genesis scene, by MuJoCo's names and ids, each environment with its own values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from genelab.errors import ConfigError, did_you_mean
from genelab.sim import genesis_mapping as mapping
from genelab.sim.engine import EnvIds, Ids, assign

MODEL_FIELDS = (
    "body_mass",
    "body_ipos",
    "body_inertia",
    "dof_armature",
    "dof_damping",
    "dof_frictionloss",
    "jnt_range",
    "geom_friction",
    "actuator_gainprm",
    "actuator_biasprm",
)


class ModelFields:
    """Reads and writes what Genesis keeps of the model."""

    def __init__(self, entity: Any, model: mujoco.MjModel, num_envs: int, like: Tensor, rows_type: torch.dtype) -> None:
        self._entity, self._solver = entity, entity.solver
        self._model = model
        self._num_envs = num_envs
        self._like = like
        self._rows_type = rows_type
        self._first = model.nbody - entity.n_links  # 1 where Genesis leaves the world body out
        self._actuated = mapping.actuator_dofs(model)
        self._reference = self._constant(mapping.actuator_reference(model))
        self._limited = np.flatnonzero(model.jnt_limited)
        self.geoms = np.concatenate(mapping.colliding_geoms(model))
        """Ids of the geoms that Genesis has, in its order."""
        friction = self._constant(model.geom_friction[self.geoms])
        self.friction = friction.expand(num_envs, *friction.shape).contiguous()
        """Of those geoms, `(N, geoms, 3)`; contacts look it up in every step."""

    def _constant(self, array: np.ndarray) -> Tensor:
        return torch.as_tensor(array).to(self._like)

    def actuate(self) -> None:
        """Make every actuator the affine law `gain * ctrl + bias . (1, position, velocity)`, within its force limits.

        Joints without an actuator get none.
        """
        model, zeros = self._model, self._like.new_zeros(self._num_envs, self._model.nv)
        self._solver.set_dofs_act_gain(zeros, slice(0, model.nv))
        self._solver.set_dofs_act_bias(zeros, zeros, zeros, slice(0, model.nv))
        if model.nu:
            rows = (self._num_envs, model.nu)
            _, force = mapping.actuator_limits(model)
            low, high = (self._constant(force[:, i]).expand(rows) for i in range(2))
            self._solver.set_dofs_force_range(low, high, as_slice(self._actuated))
            for field in ("actuator_gainprm", "actuator_biasprm"):
                values = self._constant(getattr(model, field)).expand(*rows, -1)
                self._write(field, values, list(range(model.nu)), None)

    def get(self, field: str) -> Tensor:
        """Values of a field as the physics has them, `(N, ...)`; a copy."""
        if field not in MODEL_FIELDS:
            raise ConfigError(
                f"the Genesis engine cannot randomise {field!r}.{did_you_mean(field, MODEL_FIELDS)} "
                f"It can: {', '.join(MODEL_FIELDS)}."
            )
        shared = self._constant(getattr(self._model, field))
        values = shared.expand(self._num_envs, *shared.shape).clone()
        entity, first = self._entity, self._first
        if field == "body_mass":
            values[:, first:] = entity.get_links_mass()
        elif field == "body_ipos":
            values[:, first:] = entity.get_links_COM()
        elif field == "body_inertia":
            values[:, first:] = entity.get_links_inertia().diagonal(dim1=-2, dim2=-1)
        elif field == "jnt_range":
            dofs = self._model.jnt_dofadr[self._limited]
            values[:, self._limited] = torch.stack(entity.get_dofs_limit(), dim=-1)[:, dofs]
        elif field == "geom_friction":
            values[:, self.geoms] = self.friction
        elif field == "actuator_gainprm":
            values[..., 0] = entity.get_dofs_act_gain()[:, self._actuated]
        elif field == "actuator_biasprm":
            terms = [term[:, self._actuated] for term in entity.get_dofs_act_bias()]
            terms[0] = terms[0] - terms[1] * self._reference
            values[..., :3] = torch.stack(terms, dim=-1)
        else:
            values[:] = getattr(entity, f"get_dofs_{field.removeprefix('dof_')}")()
        return values

    def set(self, field: str, values: Tensor, ids: Ids, env_ids: EnvIds) -> None:
        """Give environments their own values; what Genesis does not have is left out."""
        current = self.get(field)
        columns = _as_list(ids, current.shape[1])
        assign(current, values, columns, env_ids)
        rows = current if env_ids is None else current[env_ids.to(current.device)]
        usable = [i for i, entry in enumerate(columns) if self._has(field, entry)]
        if usable:
            self._write(field, rows[:, columns][:, usable], [columns[i] for i in usable], env_ids)

    def _has(self, field: str, entry: int) -> bool:
        """Whether Genesis has such a thing: not the world's mass, a joint without limits, a geom that is only seen."""
        if field.startswith("body_"):
            return entry > 0
        return {"jnt_range": entry in self._limited, "geom_friction": entry in self.geoms}.get(field, True)

    @mapping.in_any_mode
    def _write(self, field: str, values: Tensor, ids: list[int], env_ids: EnvIds) -> None:
        """Write whole entries of a field, `(rows, len(ids), ...)`."""
        solver = self._solver
        rows = None if env_ids is None else env_ids.to(self._like.device, self._rows_type)
        links = [body - self._first for body in ids]
        if field == "body_mass":
            solver.set_links_mass(values, links, rows)
        elif field == "body_ipos":
            solver.set_links_COM(values, links, rows)
        elif field == "body_inertia":
            solver.set_links_inertia(torch.diag_embed(values), links, rows)
        elif field == "jnt_range":
            solver.set_dofs_limit(values[..., 0], values[..., 1], self._model.jnt_dofadr[ids].tolist(), rows)
        elif field == "geom_friction":
            geoms = [int(np.flatnonzero(self.geoms == geom)[0]) for geom in ids]
            assign(self.friction, values, geoms, env_ids)
        elif field == "actuator_gainprm":
            solver.set_dofs_act_gain(values[..., 0], self._actuated[ids].tolist(), rows)
        elif field == "actuator_biasprm":
            bias, slope, damping = values[..., :3].unbind(dim=-1)
            bias = bias + slope * self._reference[ids]
            solver.set_dofs_act_bias(bias, slope, damping, self._actuated[ids].tolist(), rows)
        else:
            getattr(solver, f"set_dofs_{field.removeprefix('dof_')}")(values, ids, rows)


def _as_list(cols: Ids, width: int) -> list[int]:
    if isinstance(cols, slice):
        return list(range(width))[cols]
    return [int(col) for col in cols]


def as_slice(ids: Sequence[int] | np.ndarray) -> slice | list[int]:
    """Consecutive ids as a slice, which is a view where a list is a copy."""
    ids = [int(i) for i in ids]
    if ids and ids == list(range(ids[0], ids[0] + len(ids))):
        return slice(ids[0], ids[0] + len(ids))
    return ids
