"""The policies that are shipped walk in every direction."""

from __future__ import annotations

import pytest

from genelab.mdp.velocity_probe import VelocityProbe
from genelab.rl.locate import pretrained_policy
from genelab.rl.probe import run_probe
from genelab.rl.world import policy_on_task
from tests.mdp.hopper import twist
from tests.narrow import present

ON: dict[str, dict[str, str]] = {
    "Genelab-Velocity-Flat-Unitree-Go1-v0": {},
    "Genelab-Velocity-Rough-Unitree-Go1-v0": {"env.scene.terrain.max_init_level": "0"},
    "Genelab-Velocity-Flat-Unitree-G1-v0": {},
}
"""Tasks, and the ground they are judged on."""
LEAST = {"G1": 0.5}
"""The share of the command that a robot makes at least, where it is not 80 %."""


@pytest.mark.parametrize("task", ON)
def test_it_goes_where_it_is_told(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VelocityProbe, "envs_per_direction", 6)  # one on each kind of ground
    path = pretrained_policy(task)
    assert path is not None
    assert path.stat().st_size < 1_000_000
    with policy_on_task(task, path, num_envs=9 * 6, overrides=ON[task]) as (env, setup):
        probe = run_probe(env, setup, twist(env).probe(), seed=1)
    assert probe.falls == 0
    shares = {direction.name: direction.fraction for direction in probe.directions}
    assert shares.pop("stand") is None
    assert len(shares) == 8
    assert min(present(share) for share in shares.values()) > LEAST.get(task.split("-")[4], 0.8), shares
