"""Addresses of the project in the metadata of a wheel: those of the repository that it is built from.

A build hook (`tool.hatch.metadata.hooks` in pyproject.toml), so that a fork names itself. Where no remote `origin` on
the net is known, in a source archive for one, there is only the address of the published runs.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PUBLISHED = {"Published reference runs": "https://github.com/KraHsu/GeneLab"}
"""Where the numbers are from that the documentation calls published."""
_REMOTE = re.compile(r"(?:https://(?:[^/@]*@)?|(?:ssh://)?git@)([\w.-]+\.\w+)[/:]([\w.-]+(?:/[\w.-]+?)+?)(?:\.git)?/?")


class Urls(MetadataHookInterface):
    """Writes `project.urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by the build."""
        metadata["urls"] = of_remote(_origin(self.root)) | PUBLISHED


def of_remote(remote: str) -> dict[str, str]:
    """The addresses that belong to a git remote, without any name or token in it; none if it is not on the net."""
    found = _REMOTE.fullmatch(remote)
    if not found:
        return {}
    home = f"https://{found[1]}/{found[2]}"
    return {"Repository": home, "Issues": f"{home}/issues", "Changelog": f"{home}/blob/main/CHANGELOG.md"}


def _origin(root: str) -> str:
    if not (Path(root) / ".git").exists():  # within somebody else's repository, maybe
        return ""
    command = ["git", "-C", root, "config", "--get", "remote.origin.url"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        return ""
