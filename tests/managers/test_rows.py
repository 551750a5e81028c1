"""Rows of a task's tables: the configs they make, and the mistakes that a type checker sees in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import genelab
from genelab import mdp
from genelab.errors import ConfigError
from genelab.managers import (
    CurriculumTermCfg,
    EventTermCfg,
    GateCfg,
    MetricTermCfg,
    ObservationTermCfg,
    RewardTermCfg,
    SceneEntityCfg,
    TerminationTermCfg,
    adapt,
    event,
    gate,
    metric,
    obs,
    part,
    reward,
    symmetric,
    termination,
    truncation,
)

POLE = part(joints=("pole",))


@pytest.mark.parametrize(
    ("row", "cfg"),
    [
        (
            reward(mdp.joint_cos, 3.0, asset=POLE),
            RewardTermCfg(
                func=mdp.joint_cos, weight=3.0, params={"asset": SceneEntityCfg(name="robot", joint_names=("pole",))}
            ),
        ),
        (reward(mdp.JointAccL2, -1e-5), RewardTermCfg(func=mdp.JointAccL2, weight=-1e-5)),
        (
            obs(mdp.height_scan, sensor="scan").then(noise=symmetric(0.1), clip=(-1.0, 2.0), scale=0.5, delay=(0, 2)),
            ObservationTermCfg(
                func=mdp.height_scan,
                params={"sensor": "scan"},
                noise=symmetric(0.1),
                clip=(-1.0, 2.0),
                scale=0.5,
                delay=(0, 2),
            ),
        ),
        (
            termination(mdp.root_too_low, height=0.5),
            TerminationTermCfg(func=mdp.root_too_low, params={"height": 0.5}),
        ),
        (truncation(mdp.time_out), TerminationTermCfg(func=mdp.time_out, time_out=True)),
        (
            metric(mdp.peak_force, "max", contact="feet"),
            MetricTermCfg(func=mdp.peak_force, reduce="max", params={"contact": "feet"}),
        ),
        (
            event(mdp.push_by_velocity, (1.0, 3.0), velocity_range={"x": (-0.5, 0.5)}),
            EventTermCfg(
                func=mdp.push_by_velocity,
                mode="interval",
                interval_range_s=(1.0, 3.0),
                params={"velocity_range": {"x": (-0.5, 0.5)}},
            ),
        ),
        (
            event(mdp.HelpingWrench, "step", schedule="hand", height=0.7, command="twist"),
            EventTermCfg(
                func=mdp.HelpingWrench,
                mode="step",
                params={"schedule": "hand", "height": 0.7, "command": "twist"},
            ),
        ),
        (
            adapt(mdp.terrain_levels_vel, command="twist", promote_distance=4.0),
            CurriculumTermCfg(func=mdp.terrain_levels_vel, params={"command": "twist", "promote_distance": 4.0}),
        ),
        (
            gate(mdp.track_lin_vel_exp, 0.7, 0.5, command="twist", std=0.5),
            GateCfg(func=mdp.track_lin_vel_exp, above=0.7, below=0.5, params={"command": "twist", "std": 0.5}),
        ),
    ],
)
def test_a_row_is_the_config_written_short(row: object, cfg: object) -> None:
    assert row == cfg
    assert type(row) is type(cfg)


def test_a_parameter_without_its_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"by name; 0\.34 has none"):
        reward(mdp.base_height_l2, -1.0, 0.34)


ROWS = """
from genelab import mdp
from genelab.managers import event, obs, part, reward

reward(mdp.foot_slip, -0.1, contact="c", feet="f", command="twist", threshold=0.05)
reward(mdp.FootSwingHeight, -1.0, contact="c", feet="f", target=0.1, command="twist", threshold=0.05)
reward(mdp.JointAccL2, -1e-5, asset=part(joints=("a",)))
event(mdp.HelpingWrench, "step", schedule="hand", height=0.74, command="twist")
event(mdp.push_by_velocity, (1.0, 3.0), velocity_range={"x": (0.0, 1.0)})
obs(mdp.height_scan, sensor="scan")

reward(mdp.foot_slip, -0.1, contact="c", feet="f", command="twist", treshold=0.05)  # wrong: name
reward(mdp.foot_slip, -0.1, contact="c", feet="f", command="twist", threshold="0.05")  # wrong: type
reward(mdp.foot_slip, -0.1, contact="c", feet="f", command="twist")  # wrong: one is missing
reward(mdp.JointAccL2, -1e-5, aset=part())  # wrong: name, of a class
event(mdp.HelpingWrench, "step", schedul="hand", height=0.74, command="twist")  # wrong: name, of a class
event(mdp.push_by_velocity, (1.0, 3.0), velocity={"x": (0.0, 1.0)})  # wrong: name
event(mdp.push_by_velocity, "sometimes", velocity_range={"x": (0.0, 1.0)})  # wrong: when
obs(mdp.height_scan, sensors="scan")  # wrong: name
"""

SETTINGS = """
[mypy]
follow_imports = silent
ignore_missing_imports = true
ignore_errors = true

[mypy-rows]
ignore_errors = false
"""

TORCH = """
from typing import Any

class Tensor: ...

def __getattr__(name: str) -> Any: ...
"""
"""Enough of torch to tell a tensor from something else; reading all of it takes mypy half a minute."""


def test_a_type_checker_refuses_a_row_that_its_function_cannot_be_called_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mypy import api

    for name, text in {"rows.py": ROWS, "mypy.ini": SETTINGS, "torch.pyi": TORCH}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MYPYPATH", str(Path(genelab.__file__).parent.parent))
    output, errors, _ = api.run(["--config-file", "mypy.ini", "--no-site-packages", "--cache-dir", "cache", "rows.py"])
    refused = {int(line) for line in re.findall(r"^rows\.py:(\d+): error", output, re.MULTILINE)}
    wrong = {number for number, line in enumerate(ROWS.splitlines(), start=1) if "# wrong" in line}
    assert refused == wrong, output + errors
