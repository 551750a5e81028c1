"""Batches: their columns, and products of vectors."""

from __future__ import annotations

import pytest
import torch

from genelab import math as gm

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("ids", "expected"), [([7, 8, 9], slice(7, 10, 1)), ([4, 7, 10], slice(4, 11, 3)), ([3], slice(3, 4, 1))]
)
def test_evenly_spaced_columns_are_a_slice(ids: list[int], expected: slice) -> None:
    assert gm.columns(ids, CPU) == expected


@pytest.mark.parametrize("ids", [[], [0, 1, 3], [2, 1, 0], [1, 1], [0, 2, 5]])
def test_other_columns_are_indices(ids: list[int]) -> None:
    columns = gm.columns(ids, CPU)
    assert isinstance(columns, torch.Tensor)
    assert columns.tolist() == ids


@pytest.mark.parametrize("ids", [[1, 2, 3], [0, 2, 4], [4, 1], []])
def test_what_is_taken_is_what_indexing_gives(ids: list[int]) -> None:
    values = torch.arange(30.0).view(2, 5, 3)
    assert gm.take(values, gm.columns(ids, CPU)).equal(values[:, ids])


def test_the_cross_product_of_planes_is_torchs() -> None:
    a, b = torch.rand(2, 4, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert gm.cross(gm.planes(a), gm.planes(b)).movedim(0, -1).allclose(torch.linalg.cross(a, b), rtol=1e-15)


HALF = 0.5**0.5
X_90, Y_90, Z_90 = (torch.tensor([HALF, *(HALF * axis for axis in row)]) for row in torch.eye(3).tolist())


def test_turns_about_two_axes_multiply() -> None:
    """Of x, then of z: i and k are halves of right angles, and k·i = j."""
    assert gm.quat_mul(Z_90, X_90).allclose(torch.tensor([0.5, 0.5, 0.5, 0.5]))
    assert gm.quat_mul(X_90, Z_90).allclose(torch.tensor([0.5, 0.5, -0.5, 0.5]))  # and i·k = −j
    batch = gm.quat_mul(torch.stack((Z_90, X_90))[:, None], torch.stack((X_90, Z_90, Y_90))[None])
    assert batch.shape == (2, 3, 4)
    assert batch[1, 2].allclose(gm.quat_mul(X_90, Y_90))


def test_euler_angles_turn_about_x_then_y_then_z() -> None:
    roll, pitch, yaw = torch.rand(3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    zero = torch.zeros_like(roll)
    about_x, about_y, about_z = (
        torch.stack([(angle / 2).cos(), *((angle / 2).sin() if i == axis else zero for i in range(3))], dim=-1)
        for axis, angle in enumerate((roll, pitch, yaw))
    )
    whole = gm.quat_mul(about_z, gm.quat_mul(about_y, about_x))
    assert gm.quat_from_euler(roll, pitch, yaw).allclose(whole, rtol=1e-15)


def test_a_quarter_turn_to_the_left_and_back() -> None:
    forward, left = torch.eye(3)[:2]
    assert gm.quat_rotate(Z_90, forward).allclose(left, atol=1e-7)
    assert gm.quat_rotate_inverse(Z_90, left).allclose(forward, atol=1e-7)
    assert gm.quat_rotate(Z_90.expand(2, 3, 4), forward).shape == (2, 3, 3)


def test_a_constant_made_for_inference_serves_learning_too() -> None:
    with torch.inference_mode():
        gm.quat_mul(X_90, Z_90)
    turn = X_90.clone().requires_grad_()
    gm.quat_mul(Z_90, turn).sum().backward()
    assert turn.grad is not None


def test_rows_of_buffers() -> None:
    rows = torch.tensor([0, 2])
    times, flags = torch.ones(3, 2), torch.ones(2, 3, dtype=torch.bool)
    gm.fill(times, rows)
    gm.fill(flags, rows, False, dim=1)
    assert times.tolist() == [[0, 0], [1, 1], [0, 0]]
    assert flags.tolist() == [[False, True, False]] * 2
    gm.fill(times, None, 4.0)
    gm.shift(times[:, 0], rows, 0.5)
    assert times.tolist() == [[4.5, 4], [4, 4], [4.5, 4]]
