"""MuJoCo's rule for the parameters of a contact, for Genesis.

Two geoms that touch have one friction and one set of solver parameters. Genesis takes the larger friction and the mean
of the solver parameters. MuJoCo takes both from the geom of higher `priority`; of equals, the larger `condim`, the
larger friction of each kind, and the mean of the solver parameters weighted by `solmix`. Here a kernel between the
collision detection and the solver of Genesis writes what MuJoCo would have.

Genesis must have been started before this is imported.
"""
# mypy: disable-error-code="valid-type"
# Quadrants reads the annotations of a kernel, so they must not be strings.

from collections.abc import Callable
from typing import Any

import genesis as gs
import genesis.utils.array_class as array_class
import mujoco
import numpy as np
import quadrants as qd
import torch
from torch import Tensor


@qd.func
def _share(mix_a: float, mix_b: float) -> float:
    """What the first of two geoms of equal priority gives to the solver parameters; 1e-15 is MuJoCo's `mjMINVAL`."""
    share = gs.qd_float(0.5)
    if mix_a >= 1e-15 and mix_b >= 1e-15:
        share = mix_a / (mix_a + mix_b)
    elif mix_a >= 1e-15:
        share = gs.qd_float(1.0)
    elif mix_b >= 1e-15:
        share = gs.qd_float(0.0)
    return share


@qd.kernel(fastcache=True)
def _combine(
    friction: qd.types.ndarray(),  # (N, geoms, 3)
    priority: qd.types.ndarray(),  # (geoms,), as those below
    condim: qd.types.ndarray(),
    solmix: qd.types.ndarray(),
    collider_state: array_class.ColliderState,
    dyn_info: array_class.DynInfo,
    rigid_info: array_class.RigidInfo,
    rigid_config: qd.template(),
) -> None:
    qd.loop_config(serialize=rigid_config.para_level < gs.PARA_LEVEL.ALL)
    for i_b in range(friction.shape[0]):
        for i_c in range(collider_state.n_contacts[i_b]):
            a = collider_state.contact_data.geom_a[i_c, i_b]
            b = collider_state.contact_data.geom_b[i_c, i_b]
            share = _share(solmix[a], solmix[b])
            dim = qd.max(condim[a], condim[b])
            sliding = qd.max(friction[i_b, a, 0], friction[i_b, b, 0])
            torsional = qd.max(friction[i_b, a, 1], friction[i_b, b, 1])
            rolling = qd.max(friction[i_b, a, 2], friction[i_b, b, 2])
            if priority[a] != priority[b]:
                share = gs.qd_float(1.0)
                chosen = a
                if priority[b] > priority[a]:
                    share = gs.qd_float(0.0)
                    chosen = b
                dim = condim[chosen]
                sliding = friction[i_b, chosen, 0]
                torsional = friction[i_b, chosen, 1]
                rolling = friction[i_b, chosen, 2]
            if dim < 4:
                torsional = gs.qd_float(0.0)
            if dim < 6:
                rolling = gs.qd_float(0.0)
            params = share * dyn_info.geoms.sol_params[a] + (1.0 - share) * dyn_info.geoms.sol_params[b]
            params[0] = qd.max(params[0], 2.0 * rigid_info.substep_dt[None])
            collider_state.contact_data.friction[i_c, i_b] = qd.max(sliding, 1e-2)  # Genesis's solver needs some
            collider_state.contact_data.friction_torsional[i_c, i_b] = torsional
            collider_state.contact_data.friction_rolling[i_c, i_b] = rolling
            collider_state.contact_data.sol_params[i_c, i_b] = params


def combine_as_mujoco(solver: Any, model: mujoco.MjModel, geoms: np.ndarray, friction: Tensor) -> None:
    """Give every contact MuJoCo's parameters; `friction`, `(N, len(geoms), 3)`, is looked at in every step."""
    collider = solver.collider
    priority = torch.as_tensor(model.geom_priority[geoms], dtype=torch.int32, device=friction.device)
    condim = torch.as_tensor(model.geom_condim[geoms], dtype=torch.int32, device=friction.device)
    solmix = torch.as_tensor(model.geom_solmix[geoms], dtype=friction.dtype, device=friction.device)
    detect: Callable[[], None] = collider.detection

    def detect_and_combine() -> None:
        detect()
        _combine(
            friction,
            priority,
            condim,
            solmix,
            collider.collider_state,
            solver.dyn_info,
            solver.rigid_info,
            solver.rigid_config,
        )

    collider.detection = detect_and_combine
