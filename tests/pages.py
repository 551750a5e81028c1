"""What the pages of the documentation have their readers type."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = [str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md"))]


def shell_lines(page: str) -> list[str]:
    """The lines of a page's shell blocks; one that goes on in the next is one line."""
    blocks = re.findall(r"```(?:sh)?\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
