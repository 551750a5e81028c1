"""Models against the published data of robots."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np


def check_bodies(model: mujoco.MjModel, facts: dict[str, Any]) -> None:
    """Every body, its place, mass, inertia and sites are as published, and there is no other."""
    check_places_and_masses(model, facts, turned=1e-5)
    for name, fact in facts.items():
        body = model.body(name)
        np.testing.assert_allclose(body.ipos, fact["com"], atol=1e-9)
        np.testing.assert_allclose(_inertia(body.inertia, body.iquat), _published_inertia(fact), atol=1e-9)


def check_places_and_masses(model: mujoco.MjModel, facts: dict[str, Any], turned: float) -> None:
    """The same without inertias; `turned` is how far an orientation may be off, as an entry of its matrix."""
    assert [model.body(i).name for i in range(1, model.nbody)] == list(facts)
    for name, fact in facts.items():
        body = model.body(name)
        assert model.body(int(body.parentid[0])).name == fact["parent"]
        np.testing.assert_allclose(body.pos, fact["pos"], atol=1e-9)
        np.testing.assert_allclose(rotation(body.quat), rotation(fact["quat"]), atol=turned)
        np.testing.assert_allclose(body.mass, fact["mass"], rtol=1e-9)
        for site, pos in fact.get("sites", {}).items():
            np.testing.assert_allclose(model.site(site).pos, pos, atol=1e-9)


def rotation(quat: Any) -> np.ndarray:
    """The matrix of a quaternion of any length."""
    matrix = np.zeros(9)
    quat = np.asarray(quat, dtype=float)
    mujoco.mju_quat2Mat(matrix, quat / np.linalg.norm(quat))
    return matrix.reshape(3, 3)


def _published_inertia(fact: dict[str, Any]) -> np.ndarray:
    """As a diagonal and its axes, or whole: xx, yy, zz, xy, xz, yz."""
    if "full_inertia" not in fact:
        return _inertia(fact["inertia"], fact["inertia_quat"])
    xx, yy, zz, xy, xz, yz = fact["full_inertia"]
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def _inertia(diagonal: Any, quat: Any) -> np.ndarray:
    return rotation(quat) @ np.diag(diagonal) @ rotation(quat).T
