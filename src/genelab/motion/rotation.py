"""Rotations over time, in NumPy. Quaternions are `w x y z`."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def multiply(a: Array, b: Array) -> Array:
    """Hamilton product: the rotation `b`, then `a`."""
    aw, ax, ay, az = np.moveaxis(a, -1, 0)
    bw, bx, by, bz = np.moveaxis(b, -1, 0)
    return np.stack(
        (
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ),
        axis=-1,
    )


def conjugate(q: Array) -> Array:
    """The rotation back."""
    return q * np.array([1.0, -1.0, -1.0, -1.0])


def rotation_vector(q: Array) -> Array:
    """Axis times angle, rad, on the shorter way."""
    q = np.where(q[..., :1] < 0, -q, q)
    sine = np.linalg.norm(q[..., 1:], axis=-1, keepdims=True)
    angle = 2.0 * np.arctan2(sine, q[..., :1])
    return q[..., 1:] * np.where(sine > 1e-9, angle / np.maximum(sine, 1e-9), 2.0)


def continuous(q: Array) -> Array:
    """The same rotations `(T, 4)` with the signs that make neighbours close."""
    turned = (q[1:] * q[:-1]).sum(axis=-1) < 0
    return q * np.where(np.concatenate(([0], np.cumsum(turned))) % 2, -1.0, 1.0)[:, None]


def slerp(a: Array, b: Array, share: Array) -> Array:
    """From `a` to `b`, `(T, 4)`, at an even rate on the shorter way; `share` is `(T,)`."""
    cosine = (a * b).sum(axis=-1, keepdims=True)
    b, cosine = np.where(cosine < 0, -b, b), np.abs(cosine).clip(max=1.0)
    angle, share = np.arccos(cosine), share[:, None]
    sine = np.sin(angle)
    near = sine < 1e-6  # a straight line does as well
    safe = np.where(near, 1.0, sine)
    first = np.where(near, 1.0 - share, np.sin((1.0 - share) * angle) / safe)
    second = np.where(near, share, np.sin(share * angle) / safe)
    return normalized(first * a + second * b)


def normalized(q: Array) -> Array:
    """Of length 1."""
    return q / np.linalg.norm(q, axis=-1, keepdims=True)


def angular_velocity(q: Array, fps: float) -> Array:
    """Of rotations `(T, 4)`, in the outer frame, rad/s: central differences, one-sided at the ends."""
    before = np.concatenate((q[:1], q[:-1]))
    after = np.concatenate((q[1:], q[-1:]))
    steps = np.full((len(q), 1), 2.0)
    steps[[0, -1]] = 1.0
    return rotation_vector(multiply(after, conjugate(before))) * fps / steps
