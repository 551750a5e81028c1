"""The table of every shipped policy in every format, in a small size."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import deployed
from genelab.errors import GenelabError

PENDULUM = "GeneLab-Inverted-Pendulum-v0"


def test_a_policy_is_written_run_outside_and_measured(capsys: pytest.CaptureFixture[str]) -> None:
    deployed.main(["--task", PENDULUM, "--robots", "2", "--for", "unitree", "mjlab"])
    head, _, row, _, reason, *_ = lines = capsys.readouterr().out.splitlines()
    assert head == "| policy | torchscript | onnx | mujoco | unitree | mjlab |"
    assert row.startswith("| Inverted-Pendulum | ")
    assert row.endswith("| no (1) | no (2) |")
    assert reason == "1. unitree drives all joints of the robot, but the action 'cart' has some of them"
    what, lab, outside = (cell.strip() for cell in lines[-1].split("|")[2:-1])
    assert (what, lab.split()[1], outside.split()[1]) == ("return", "(100)", "(2)")
    assert float(lab.split()[0]) > 39.9
    assert float(outside.split()[0]) > 39.9


def test_what_run_refuses_stops_it(tmp_path: Path) -> None:
    """A folder whose golden rows were changed is not measured."""
    deployed.deploy(PENDULUM, tmp_path, 1, ["mujoco"])
    (tmp_path / "mujoco" / "manifest.json").unlink()
    path = tmp_path / "mujoco" / "policy.onnx.metadata.json"
    path.write_text(path.read_text().replace('"tolerance": 0.0001', '"tolerance": -1'))
    with pytest.raises(GenelabError, match=r"run\.py: the policy does not repeat golden row 0: its actions differ by"):
        list(deployed.measured(PENDULUM, tmp_path / "mujoco", {}, 1))


def test_walkers_stand_side_by_side_with_the_lab() -> None:
    row = deployed.Row("Genelab-Velocity-Flat-Dog-v0", {"onnx": "1 kB", "unitree": "no: it cannot"})
    row.measured = [
        deployed.Measured("forward", 0.9, 0.88, "%", (64, 4), (1, 0)),
        deployed.Measured("stand", 0.01, 0.02, "m/s", (64, 4), (2, 1)),
    ]
    assert deployed.tables([row]).splitlines() == [
        "| policy | onnx | unitree |",
        "|---|---|---|",
        "| Velocity-Flat-Dog | 1 kB | no (1) |",
        "",
        "1. it cannot",
        "",
        "| share of the command, % | forward | fell |",
        "|---|---|---|",
        "| Velocity-Flat-Dog, lab | 90.0 | 3 of 128 |",
        "| Velocity-Flat-Dog, `run.py` | 88.0 | 1 of 8 |",
    ]
