"""Go1's policy walks in every direction."""

from __future__ import annotations

from genelab.rl.evaluator import policy_on_task
from genelab.rl.locate import pretrained_policy
from genelab.rl.probe import probe_velocity

GO1 = "Genelab-Velocity-Flat-Unitree-Go1-v0"


def test_go1_goes_where_it_is_told() -> None:
    path = pretrained_policy(GO1)
    assert path is not None
    assert path.stat().st_size < 1_000_000
    with policy_on_task(GO1, path, num_envs=9 * 4) as (env, setup):
        probe = probe_velocity(env, setup, "twist", seed=1)
    assert probe.falls == 0
    shares = {direction.name: direction.fraction for direction in probe.directions}
    assert shares.pop("stand") is None
    assert len(shares) == 8
    assert min(shares.values()) > 0.8, shares  # type: ignore[type-var]
