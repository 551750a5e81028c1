"""The order in which an evaluation uses the cells of generated ground."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from genelab.scene.terrains.generator import TerrainGeneratorCfg

_GOLDEN = (3.0 - math.sqrt(5.0)) / 2.0
"""Steps of this share of a circle never crowd."""


def cell_order(cfg: TerrainGeneratorCfg) -> Tensor:
    """Return level and column of every cell that episodes begin on, `(cells, 2)`, so that any first part is balanced.

    Each pass uses every column once and all levels about equally often. The columns of one kind are on levels far from
    each other in a pass, and on others in the next, so that even ten episodes do not show a kind at one end of the
    difficulties only.
    """
    kinds = cfg.column_kinds()
    names = list(dict.fromkeys(kinds))
    columns = sorted(range(len(kinds)), key=lambda column: names.index(kinds[column]))  # those of a kind side by side
    count, levels = len(columns), cfg.init_levels
    first = [rank * levels // count for rank in _bit_reversed(count)]
    visits = [step * _stride(count) % count for step in range(count)]
    cells = [
        ((first[place] + turn * _stride(levels)) % levels, columns[place]) for turn in range(levels) for place in visits
    ]
    return torch.tensor(cells)


def _bit_reversed(count: int) -> list[int]:
    """Ranks of 0, 1, …, count − 1 with their bits reversed: neighbours are about half of the range apart."""
    width = max(1, (count - 1).bit_length())
    keys = [int(f"{i:0{width}b}"[::-1], 2) for i in range(count)]
    return [sorted(keys).index(key) for key in keys]


def _stride(count: int) -> int:
    """The step through a ring of `count` places that meets all of them and is nearest the golden section."""
    steps = (step for step in range(1, count + 1) if math.gcd(step, count) == 1)
    return min(steps, key=lambda step: abs(step - _GOLDEN * count))
