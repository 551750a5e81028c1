"""What `genelab eval` prints."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from genelab.cli.eval import _kinds_table


def direction(fraction: float | None, falls: int = 0, achieved: float = 0.5) -> dict[str, Any]:
    return {"fraction": fraction, "achieved": achieved, "falls": falls}


def test_the_table_by_kind_of_ground_fits_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("stairs_up", "stairs_down", "boxes", "rubble", "slope_up", "slope_down")
    kinds = {name: {"slow turn right": direction(0.97), "stand": direction(None, achieved=0.08)} for name in names}
    kinds["boxes"]["slow turn right"] = direction(0.5, falls=3)
    probe = {"envs_per_direction": 72, "levels": 6, "directions": kinds["boxes"], "kinds": kinds}
    Console(width=80).print(_kinds_table("mujoco", {"velocity_probe": probe}))
    title, _, head, _, turn, stand, *_ = capsys.readouterr().out.splitlines()
    assert title.strip() == "by kind of ground, 12 robots each on levels 0 to 5, mujoco; ×N: N of them fell"
    assert head.split() == ["direction", *names]
    assert turn.split() == ["slow", "turn", "right", "97%", "97%", "50%", "×3", "97%", "97%", "97%"]
    assert stand.split() == ["stand", *["0.080"] * 6]
