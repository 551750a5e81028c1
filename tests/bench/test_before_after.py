"""Two checkouts in turns."""

from __future__ import annotations

from pathlib import Path

import pytest

import genelab
from benchmarks.before_after import Compared, main
from benchmarks.turns import Turn, training

TASK = "GeneLab-Inverted-Pendulum-v0"
SRC = str(Path(genelab.__file__).parents[1])


def test_what_counts_is_the_ratio_within_a_pair() -> None:
    """A machine that gets ten times as slow in the middle leaves the ratio as it is."""
    line = Compared(what="it", before=[1000.0, 1000.0, 100.0], after=[1500.0, 1500.0, 150.0]).line()
    assert line == "| it | 1,000 | 1,500 | 1.500 | 1.500 … 1.500 |"


def test_a_checkout_against_itself(capfd: pytest.CaptureFixture[str]) -> None:
    main([SRC, SRC, "--task", TASK, "--what", "step", "--num-envs", "4", "--steps", "2", "--rounds", "3"])
    (line,) = capfd.readouterr().out.splitlines()[2:]
    name, before, after, ratio, interval = (cell.strip() for cell in line.strip("|").split("|"))
    assert name == f"{TASK}, 4 envs: step"
    assert int(before.replace(",", "")) > 0
    assert int(after.replace(",", "")) > 0
    assert float(interval.split(" … ")[0]) <= float(ratio) <= float(interval.split(" … ")[1])


def test_a_turn_of_training_is_an_iteration() -> None:
    """Of 24 control steps of 4 environments; who asks no more ends it."""
    turns: list[Turn] = []

    def wait() -> None:
        if len(turns) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        training(TASK, 4, turns.append, wait)
    assert [steps for steps, _ in turns] == [96, 96]
    assert all(seconds > 0 for _, seconds in turns)


def test_a_directory_without_the_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no genelab in it"):
        main([str(tmp_path), SRC, "--task", TASK, "--what", "step"])
