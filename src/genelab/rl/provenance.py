"""Where a result comes from: the software, the machine and the revision."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import genelab
from genelab.config.files import read_head
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
    """Return commit and branch of a directory, and whether files differ from the commit.

    No program is run but git: see `_isolated_git`. A file of a content filter, such as git-lfs, counts as changed once
    it was written again.

    Args:
        directory: Directory inside a checkout; None for the current one.

    Returns:
        The keys `commit`, `branch` and `dirty`; None where there is no commit or no git.
    """
    try:
        with _isolated_git(directory or Path.cwd()) as git:
            commit, branch = git("rev-parse", "HEAD", "--abbrev-ref", "HEAD").split()
            # The state inside a submodule would be asked of another git, with that submodule's own configuration.
            status = git("status", "--porcelain", "--no-renames", "--ignore-submodules=dirty")
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "branch": branch, "dirty": bool(status)}


def genelab_revision() -> dict[str, Any] | None:
    """Return the revision of the checkout that genelab runs from; None if it is an installed copy."""
    package = Path(genelab.__file__)
    try:
        with _isolated_git(package.parent) as git:
            git("ls-files", "--error-unmatch", package.name)  # a copy may lie inside another checkout
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return git_revision(package.parent)


_DATA = re.compile(r"(core|extensions)\.(filemode|symlinks|ignorecase|autocrlf|eol|objectformat|refstorage)\n(\w+)")
"""A setting that says how a repository's files are to be read, and its value."""
_SHARED = ("objects", "refs", "packed-refs", "reftable", "info", "shallow")
"""Data that all work trees of a repository have in common."""


@contextlib.contextmanager
def _isolated_git(directory: Path) -> Iterator[Callable[..., str]]:
    """Yield a function that runs git on the checkout of a directory without the checkout's own configuration.

    A repository's configuration names programs that `git status` runs (`core.fsmonitor`, `filter.*.clean`, hooks), and
    a directory may come from anywhere. No option switches all of them off, so git is given another repository: one
    with links to the data of this one, and a configuration of harmless values.

    Args:
        directory: Directory inside the checkout.

    Raises:
        OSError: There is no checkout, or no git.
    """
    directory = directory.absolute()
    top = next((path for path in (directory, *directory.parents) if (path / ".git").exists()), None)
    if top is None:
        raise FileNotFoundError(directory)
    own = top / _line(top / ".git", "gitdir:") if (top / ".git").is_file() else top / ".git"
    shared = own / _line(own / "commondir") if (own / "commondir").is_file() else own  # this is a linked work tree
    with tempfile.TemporaryDirectory() as folder:
        clean_shared = Path(folder)
        clean = clean_shared if own == shared else clean_shared / "worktrees" / "this"
        clean.mkdir(parents=True, exist_ok=True)
        for name in _SHARED:
            (clean_shared / name).symlink_to(shared / name)
        for path in (own / "index", own / "reftable", *own.glob("sharedindex.*")):
            if not (clean / path.name).is_symlink():
                (clean / path.name).symlink_to(path)
        (clean / "HEAD").write_text(_line(own / "HEAD"))  # git takes no link for it
        if clean != clean_shared:
            (clean / "commondir").write_text("../..")
        config = clean_shared / "config"
        config.write_text("[core]\nrepositoryformatversion = 1\nbare = false\n")

        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        paths = {"GIT_DIR": str(clean), "GIT_WORK_TREE": str(top), "GIT_OPTIONAL_LOCKS": "0"}
        ours = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}

        def git(*words: str, settings: Mapping[str, str] = ours) -> str:
            env = {**inherited, **paths, **settings}
            done = subprocess.run(["git", *words], cwd=directory, env=env, capture_output=True, check=True, timeout=10)
            return done.stdout.decode(errors="replace").strip()

        # `git config` reads, and runs nothing.
        for setting in git("config", "--file", str(shared / "config"), "--list", "-z").split("\0"):
            if found := _DATA.fullmatch(setting):
                section, name, value = found.groups()
                config.write_text(f"{config.read_text()}[{section}]\n{name} = {value}\n")
        with contextlib.suppress(subprocess.CalledProcessError):  # the user has no such file
            ours["GIT_CONFIG_VALUE_0"] = git("config", "--type=path", "core.excludesfile", settings={})
            ours |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.excludesfile"}
        yield git


def _line(path: Path, prefix: str = "") -> str:
    """Return the first line of one of git's small files, without its prefix."""
    if not path.is_file():
        raise FileNotFoundError(path)  # a pipe would be waited for
    return read_head(path, 4096).decode().partition("\n")[0].removeprefix(prefix).strip()
