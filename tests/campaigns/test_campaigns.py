"""A short pass of the campaigns; `benchmarks/campaigns` has the long ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CODE = """
import sys
from benchmarks.campaigns import bad_files, command_lines, kills
codes = [
    kills.main(["--seed", "86", "--tries", "1", "--dir", "kills"]),
    command_lines.main(["--seed", "7", "--tries", "25"]),
    bad_files.main(["--seed", "110", "--tries", "15"]),
]
sys.exit(max(codes))
"""


def test_odd_words_bad_files_and_kills_break_no_promise(tmp_path: Path) -> None:
    """In a process of its own: it makes everything but its working directory read-only."""
    root = str(Path(__file__).parents[2])
    result = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "25 tries" in result.stdout
    assert "15 tries" in result.stdout
