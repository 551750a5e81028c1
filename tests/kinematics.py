"""MuJoCo's own kinematics, to hold ours against."""

from __future__ import annotations

import mujoco
import numpy as np
import torch
from torch import Tensor


def jacobian(model: mujoco.MjModel, qpos: Tensor, body: int, point: Tensor) -> Tensor:
    """How velocities move a point of the world on a body, and turn the body, `(6, nv)`."""
    data = mujoco.MjData(model)
    data.qpos[:] = qpos.numpy()
    mujoco.mj_forward(model, data)
    moved, turned = np.zeros((3, model.nv)), np.zeros((3, model.nv))
    mujoco.mj_jac(model, data, moved, turned, point.double().numpy(), body)
    return torch.from_numpy(np.concatenate((moved, turned)))
