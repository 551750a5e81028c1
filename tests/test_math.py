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
