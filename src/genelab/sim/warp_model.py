"""The compiled model as MuJoCo Warp takes it: its flags, how much room it needs, fields with a row per environment."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from typing import Any

import mujoco
import numpy as np
import torch
from mujoco.batch import MODEL_FIELDS
from torch import Tensor

from genelab.errors import ConfigError, did_you_mean
from genelab.sim.engine import Ids, ModelError

_MEANS_NOTHING = ("AUTORESET", "MIDPHASE", "NATIVECCD")
"""Flags that switch off what Warp does not have: a silent reset, and the older of two ways to the same contacts."""
_POINTS = 4
"""Contact points that a moving geom is given room for, on average; on a height field twice as many."""
_FEWEST = 16
"""Contacts that there is always room for."""
_OF_FLEX = 256
"""Contacts of something soft."""
_PLACES = ("body_pos", "body_quat", "geom_pos", "geom_quat")
DERIVED = (
    *("body_subtreemass", "body_invweight0", "dof_invweight0", "tendon_invweight0", "tendon_length0", "actuator_acc0"),
    *("eq_data", "geom_aabb", "geom_rbound", "cam_pos0", "cam_poscom0", "cam_mat0"),
    *("light_pos0", "light_poscom0", "light_dir0"),
)
"""Model fields that are computed from others, in every environment from its own."""


def room(model: mujoco.MjModel) -> tuple[int, int]:
    """Contacts and rows of constraints that an environment of this model is given room for.

    Contacts of all environments lie in one pool, so that one with many may take what others do not need; the rows of
    an environment are its own.
    """
    solid = _solid(model)
    moving = int((solid & (model.body_weldid[model.geom_bodyid] != 0)).sum())
    contacts = max(_POINTS * moving * (2 if model.nhfield else 1), _FEWEST, _OF_FLEX * model.nflex)
    widest = int(max([1, *model.geom_condim[solid], *model.pair_dim]))
    rows = widest if model.opt.cone == mujoco.mjtCone.mjCONE_ELLIPTIC else max(1, 2 * (widest - 1))
    limits = int(np.count_nonzero(model.jnt_limited) + np.count_nonzero(model.tendon_limited))
    return contacts, contacts * rows + limits + model.nv + model.ntendon + 6 * model.neq


def has_height_field(model: mujoco.MjModel) -> bool:
    """Whether there is one that something can touch."""
    return bool((_solid(model) & (model.geom_type == mujoco.mjtGeom.mjGEOM_HFIELD)).any())


def _solid(model: mujoco.MjModel) -> np.ndarray:
    """Which geoms can touch others."""
    solid = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    solid[model.pair_geom1] = solid[model.pair_geom2] = True
    return solid


def put(model: mujoco.MjModel, num_envs: int, nconmax: int, njmax: int) -> tuple[Any, Any]:
    """Warp's model and its data, with room for so many contacts and rows of constraints; 0: as the model needs."""
    import mujoco_warp as mjw

    own = copy.copy(model)
    for flag in _MEANS_NOTHING:
        own.opt.disableflags &= ~int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}"))
    own.opt.jacobian = mujoco.mjtJacobian.mjJAC_AUTO  # dense or sparse, as Warp likes it
    contacts, rows = room(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            put_model = mjw.put_model(own)
        except (NotImplementedError, ValueError) as error:
            reason = str(error).rstrip(".")
            raise ModelError(
                f"the MuJoCo Warp engine cannot express this model ({reason}); use the MuJoCo engine"
            ) from error
        return put_model, mjw.make_data(own, nworld=num_envs, nconmax=nconmax or contacts, njmax=njmax or rows)


class ModelFields:
    """Fields of Warp's model by MuJoCo's names. One value for all environments, until they are given their own."""

    def __init__(self, model: mujoco.MjModel, of_warp: Any, num_envs: int) -> None:
        self._model, self._of_warp, self._num_envs = model, of_warp, num_envs
        fields = [(field.name, field) for field in dataclasses.fields(of_warp)]
        fields += [(f"opt.{field.name}", field) for field in dataclasses.fields(of_warp.opt)]
        batched = [name for name, field in fields if (getattr(field.type, "shape", ()) or ("",))[0] == "*"]
        self._names = tuple(name for name in batched if name in MODEL_FIELDS)
        self.own: dict[str, Tensor] = {}
        """Those with a row per environment: the memory that the physics reads."""

    def check(self, field: str) -> None:
        """Refuse a field that has one value for all."""
        if field not in self._names:
            raise ConfigError(f"the MuJoCo Warp engine cannot randomise {field!r}.{did_you_mean(field, self._names)}")

    def refuse_static(self, field: str, ids: Ids) -> None:
        """Refuse to move what never moves: Warp places it once."""
        if field not in _PLACES:
            return
        model = self._model
        body = np.arange(model.nbody) if field.startswith("body") else model.geom_bodyid
        chosen = body[ids if isinstance(ids, slice) else np.asarray(torch.as_tensor(ids).cpu())]
        still = (model.body_weldid[chosen] == 0) & (model.body_mocapid[model.body_rootid[chosen]] < 0)
        if still.any():
            name = model.body(int(chosen[still][0])).name
            raise ConfigError(f"the MuJoCo Warp engine cannot change {field} of what never moves: {name!r}")

    def _owner(self, field: str) -> tuple[Any, str]:
        holds = self._of_warp.opt if field.startswith("opt.") else self._of_warp
        return holds, field.removeprefix("opt.")

    def get(self, field: str) -> Tensor:
        """Values of a field, `(N, ...)`; a view."""
        import warp as wp

        owner, name = self._owner(field)
        values = wp.to_torch(getattr(owner, name), requires_grad=False)
        return values.expand(self._num_envs, *values.shape[1:])

    def expand(self, field: str) -> None:
        """Give every environment its own row; the model has another array then."""
        import warp as wp

        owner, name = self._owner(field)
        shared = getattr(owner, name)
        array = wp.zeros((self._num_envs, *shared.shape[1:]), dtype=shared.dtype)
        self.own[field] = wp.to_torch(array, requires_grad=False)
        self.own[field].copy_(self.get(field))
        setattr(owner, name, array)

    def as_compiled(self, field: str) -> Tensor:
        """The value that the compiled model has, for all environments."""
        holds = self._model.opt if field.startswith("opt.") else self._model
        return torch.as_tensor(np.asarray(getattr(holds, field.removeprefix("opt."))))
