"""Where a result comes from: the software, the machine and the revision."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import genelab
from genelab.rl.backends.registry import BACKENDS
from genelab.sim import ENGINES


def versions() -> dict[str, str | None]:
    """Versions of everything that shapes a result; None for what is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in ("genelab", "torch", "numpy", *ENGINES.packages(), *BACKENDS.packages()):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def command_line() -> str:
    """Return the command of this process, to be typed again and read by others: without where its program lies."""
    program = Path(sys.argv[0])
    if program.is_relative_to(Path(genelab.__file__).parent):  # python -m genelab
        program = Path("genelab")
    elif program.is_absolute():
        program = Path(program.name)
    return shlex.join([str(program), *sys.argv[1:]])


def hardware() -> dict[str, Any]:
    """The machine, and how many threads torch takes of it, which decides how sums are rounded."""
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "gpus": gpus, "torch_threads": torch.get_num_threads()}


def cpu_name() -> str:
    """The processor, as the system calls it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def git_revision(directory: Path | None = None) -> dict[str, Any] | None:
    """Commit and branch of a directory, by default the one where the run was started, and whether there were changes.

    None where git does not tell.
    """
    try:
        commit = _git(directory, "rev-parse", "HEAD")
        branch = _git(directory, "rev-parse", "--abbrev-ref", "HEAD")
        return {"commit": commit, "branch": branch, "dirty": bool(_git(directory, "status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None


def genelab_revision() -> dict[str, Any] | None:
    """The revision of the checkout that genelab runs from; None if it is an installed copy."""
    package = Path(genelab.__file__)
    try:
        _git(package.parent, "ls-files", "--error-unmatch", package.name)  # a copy may lie inside another checkout
    except (OSError, subprocess.SubprocessError):
        return None
    return git_revision(package.parent)


def _git(directory: Path | None, *words: str) -> str:
    command = ["git", *words]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
