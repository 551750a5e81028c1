"""What docs/benchmarks.md shows works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from genelab.cli.main import run

TEXT = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()
SMALL = {
    "runtime": ["--num-envs", "4", "--num-steps", "5"],
    "startup": ["--num-envs", "4"],
    "training": ["--num-envs", "4", "--max-iterations", "1", "-q"],
    "play": ["--num-envs", "4", "--num-steps", "5"],
    "compare": [],
}


def test_its_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = [line.split()[1:] for line in TEXT.splitlines() if line.startswith("genelab benchmark ")]
    assert [command[1] for command in commands] == list(SMALL)
    for command in commands:
        assert run([*command, *SMALL[command[1]]]) == 0, command


def test_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert code is not None
    exec(compile(code[1], "benchmarks.md", "exec"), {})
    assert len(list(Path("bench").iterdir())) == 1
