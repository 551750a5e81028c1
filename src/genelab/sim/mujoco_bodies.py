"""Poses and velocities of bodies in MuJoCo's environments, of the state as it is, computed when somebody reads them.

The native call that steps leaves them one substep old. Bringing them up to date in the same call also finds contacts,
builds constraints and reads sensors, for every environment and every step, read or not; and a forward pass of the same
batch would overwrite the forces of the last substep. So they have a batch of their own, whose model has no contacts,
constraints, actuators and sensors, on which they do not depend: half the work, to the bit the same numbers, and none
where nobody reads them.
"""

from __future__ import annotations

import copy

import mujoco
import numpy as np
from mujoco.batch import MODEL_FIELDS, Batch

BODY_FIELDS = ("xpos", "xquat", "cvel", "subtree_com", "xipos")
"""What is derived."""
_STATE = ("qpos", "qvel", "mocap_pos", "mocap_quat")
"""What it is derived from."""
_OFF = mujoco.mjtDisableBit
_UNNEEDED = _OFF.mjDSBL_CONTACT | _OFF.mjDSBL_CONSTRAINT | _OFF.mjDSBL_ACTUATION | _OFF.mjDSBL_SENSOR


class MujocoBodies:
    """The bodies of a batch."""

    def __init__(self, stepped: Batch) -> None:
        model = copy.copy(stepped.model)
        model.opt.disableflags |= int(_UNNEEDED)
        self._stepped = stepped
        self._batch = Batch(model, stepped.nsim, nthread=stepped.nthread)
        self._state = [(self._batch.bind(name), stepped.bind(name)) for name in _STATE]
        self.views = {name: self._batch.bind(name) for name in BODY_FIELDS}
        """The arrays by name, `(N, nbody, ...)`."""
        self.model_changed = True
        """Whether environments were given model fields of their own since the last time."""
        self._kept = np.zeros(stepped.nsim, dtype=bool)
        self._keeps = False

    def keep(self, ids: np.ndarray) -> None:
        """Take the state of these environments as it is: it is about to be written, and the bodies are to be derived
        from this one until `release`."""
        ids = ids[~self._kept[ids]]
        self._take_state(ids)
        self._kept[ids] = self._keeps = True

    def release(self) -> None:
        """Derive bodies from the state as it will be."""
        if self._keeps:
            self._kept[:] = self._keeps = False

    def derive(self, ids: np.ndarray | None) -> None:
        """Bring the bodies of these environments up to date."""
        if self.model_changed:
            self._take_model_fields()
        if not self._keeps:
            self._take_state(slice(None) if ids is None else ids)
        else:
            self._take_state(np.flatnonzero(~self._kept) if ids is None else ids[~self._kept[ids]])
        self._batch.forward(ids, stage=mujoco.mjtStage.mjSTAGE_VEL)

    def _take_state(self, rows: slice | np.ndarray) -> None:
        for mine, theirs in self._state:
            mine[rows] = theirs[rows]

    def _take_model_fields(self) -> None:
        for name in MODEL_FIELDS:
            values = None if name.startswith("opt.") else self._stepped.expanded(name)
            if values is not None:
                self._batch.expand(name)[:] = values
        self.model_changed = False
