"""Rotations, random numbers and columns of batches. Quaternions are `w x y z`; the last dimension is the vector."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

Columns = slice | Tensor
"""Which columns of a batch: a slice, or indices of dtype int64."""
ALL = slice(None)
"""Every column."""


def columns(ids: Sequence[int], device: torch.device) -> Columns:
    """Indices of columns; as a slice where they are evenly spaced, for reading a slice costs nothing."""
    steps = {after - before for before, after in pairwise(ids)}
    if ids and len(steps) < 2 and min(steps, default=1) > 0:
        return slice(ids[0], ids[-1] + 1, steps.pop() if steps else 1)
    return torch.tensor(ids, dtype=torch.int64, device=device)


def take(values: Tensor, ids: Columns) -> Tensor:
    """`values[:, ids]`, which torch selects five times faster than it indexes; all of them cost nothing."""
    if isinstance(ids, slice):
        return values if ids == ALL else values[:, ids]
    return values.index_select(1, ids)


@functools.lru_cache(maxsize=256)
def constant(values: tuple[Any, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """These numbers as a tensor, made once; not to be written to."""
    with torch.inference_mode(False):  # whoever asks first, it serves every mode
        return torch.tensor(values, device=device, dtype=dtype)


_PARTNERS = (0, 1, 2, 3, 1, 0, 3, 2, 2, 3, 0, 1, 3, 2, 1, 0)
_SIGNS = (1.0, 1.0, 1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0, -1.0, -1.0, 1.0, 1.0)
"""What each part of the first quaternion is multiplied with for each part of a product, row by row."""


def quat_mul(a: Tensor, b: Tensor) -> Tensor:
    """Hamilton product: the rotation `b`, then `a`."""
    partners = b.index_select(-1, constant(_PARTNERS, b.device, torch.int64)) * constant(_SIGNS, b.device, b.dtype)
    return (a[..., None] * partners.unflatten(-1, (4, 4))).sum(dim=-2)


def shift(buffer: Tensor, env_ids: Tensor, by: float) -> None:
    """`buffer[env_ids] += by` in fewer operations; no environment is named twice."""
    buffer.index_add_(0, env_ids, constant((by,), buffer.device, buffer.dtype).expand(len(env_ids)))


def fill(buffer: Tensor, env_ids: Tensor | None, value: float = 0.0, dim: int = 0) -> None:
    """`buffer[env_ids] = value`, or all of it, in one operation; `dim` is where the environments are."""
    if env_ids is None:
        buffer.fill_(value)
    else:
        buffer.index_fill_(dim, env_ids, value)


def rows(values: Tensor, env_ids: Tensor | None) -> Tensor:
    """`values[env_ids]`, or all of them."""
    return values if env_ids is None else values.index_select(0, env_ids)


def put_rows(buffer: Tensor, env_ids: Tensor | None, values: Tensor, dim: int = 0) -> None:
    """`buffer[env_ids] = values`, or all of it, in one operation; `dim` is where the environments are."""
    if env_ids is None:
        buffer.copy_(values)
    else:
        buffer.index_copy_(dim, env_ids, values)


def quat_conjugate(q: Tensor) -> Tensor:
    """The rotation back."""
    return torch.cat((q[..., :1], -q[..., 1:]), dim=-1)


def quat_angle(a: Tensor, b: Tensor) -> Tensor:
    """Angle between two rotations, rad, without the last dimension."""
    return 2.0 * torch.acos((a * b).sum(dim=-1).abs().clamp(max=1.0))


def quat_columns(q: Tensor) -> Tensor:
    """The first two columns of the rotation's matrix, row by row, `(..., 6)`: a rotation without jumps."""
    w, x, y, z = q.unbind(-1)
    return torch.stack(
        (
            1.0 - 2.0 * (y * y + z * z),
            2.0 * (x * y - w * z),
            2.0 * (x * y + w * z),
            1.0 - 2.0 * (x * x + z * z),
            2.0 * (x * z - w * y),
            2.0 * (y * z + w * x),
        ),
        dim=-1,
    )


def planes(vectors: Tensor) -> Tensor:
    """Vectors `(..., d)` as `(d, ...)`, each component in one piece of memory, for arithmetic on many of them."""
    return vectors.movedim(-1, 0).contiguous()


def cross(a: Tensor, b: Tensor) -> Tensor:
    """Cross product of planes, `(3, ...)`: three times faster than torch's along the last dimension."""
    return torch.stack((a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]))


def quat_rotate(q: Tensor, v: Tensor) -> Tensor:
    """`v` turned by `q`: from the rotated frame to the outer one."""
    return _turned(q, v, 1.0)


def quat_rotate_inverse(q: Tensor, v: Tensor) -> Tensor:
    """`v` turned back by `q`: from the outer frame to the rotated one."""
    return _turned(q, v, -1.0)


def _turned(q: Tensor, v: Tensor, way: float) -> Tensor:
    axis = q[..., 1:]
    t = 2.0 * torch.linalg.cross(axis, v if v.dim() == q.dim() else v.expand_as(axis))
    return torch.add(v, q[..., :1] * t, alpha=way) + torch.linalg.cross(axis, t)


def yaw_of(q: Tensor) -> Tensor:
    """Heading of the rotated x axis in the ground plane, rad."""
    w, x, y, z = q.unbind(-1)
    return torch.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))


def uniform(
    low: float | Tensor, high: float | Tensor, shape: tuple[int, ...], rng: torch.Generator, dtype: torch.dtype
) -> Tensor:
    """Uniform samples from [low, high) on the generator's device."""
    samples = torch.rand(shape, generator=rng, device=rng.device, dtype=dtype)
    if isinstance(low, float) and isinstance(high, float) and (low, high) == (0.0, 1.0):
        return samples
    return low + (high - low) * samples


_EULER = ((0, 3, 0, 0, 1, 1, 4, 1, 2, 2, 2, 5), (3, 0, 3, 3, 4, 4, 1, 4, 5, 5, 5, 2))
"""The factors of the two products in each part of a quaternion: cosines of three halves are 0 to 2, their sines 3 to 5;
the first factors of all parts, then the second, then the third."""


def quat_from_euler(roll: Tensor, pitch: Tensor, yaw: Tensor) -> Tensor:
    """Rotation about x, then y, then z of the fixed frame."""
    half = torch.stack((roll, pitch, yaw), dim=-1) / 2
    parts = torch.cat((half.cos(), half.sin()), dim=-1)
    factors = parts.index_select(-1, constant((*_EULER[0], *_EULER[1]), parts.device, torch.int64))
    one, other = factors.unflatten(-1, (2, 3, 4)).prod(dim=-2).unbind(-2)
    return torch.addcmul(one, other, constant((1.0, -1.0, 1.0, -1.0), parts.device, parts.dtype))


def decimals(values: Tensor) -> list[float]:
    """The shortest decimals that are these numbers exactly, in their own precision."""
    return [float(str(value)) for value in np.atleast_1d(values.cpu().numpy())]


def wrap_to_pi(angle: Tensor) -> Tensor:
    """The same angle within ±π."""
    return torch.remainder(angle + torch.pi, 2 * torch.pi) - torch.pi
