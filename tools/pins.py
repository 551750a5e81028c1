"""Copy the versions of constraints.txt to pyproject.toml, where uv looks for them: python tools/pins.py."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def with_pins(project: str, constraints: str) -> str:
    """Return the text of pyproject.toml with the versions of constraints.txt."""
    pins = [line for line in constraints.splitlines() if line and not line.startswith("#")]
    listed = "".join(f'    "{pin}",\n' for pin in pins)
    return re.sub(r"(?<=^constraint-dependencies = \[\n)(    .*\n)*(?=\]$)", listed, project, flags=re.MULTILINE)


if __name__ == "__main__":
    path = ROOT / "pyproject.toml"
    path.write_text(with_pins(path.read_text(), (ROOT / "constraints.txt").read_text()))
