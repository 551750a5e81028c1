"""Demonstrations on file: what they must be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genelab.errors import UsageError
from genelab.rl.demos import load_demos


@pytest.mark.parametrize("kind", ["<U8", "complex64", "datetime64[s]"])
def test_demonstrations_are_real_numbers(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "demos.npz"
    arrays: dict[str, Any] = {
        "obs_policy": np.zeros((3, 2, 4)),
        "next_obs_policy": np.zeros((3, 2, 4)),
        "actions": np.zeros((3, 2, 1)),
    }
    arrays |= {name: np.zeros((3, 2)) for name in ("rewards", "dones", "truncateds")}
    np.savez(path, **arrays)
    assert len(load_demos(path, 2, {"policy": 4}, 1, 1.0)) == 3
    for name in arrays:
        np.savez(path, **{**arrays, name: np.zeros(arrays[name].shape, dtype=kind)})
        with pytest.raises(UsageError, match=rf"demos\.npz: {name} must be real numbers, got "):
            load_demos(path, 2, {"policy": 4}, 1, 1.0)
