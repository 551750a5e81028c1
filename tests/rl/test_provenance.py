"""Where a run was started is asked of git, and nothing that the directory names is run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from genelab.rl.provenance import git_revision

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path) -> Git:
    """Run git in `checkout`, a repository with one commit."""
    (tmp_path / "checkout").mkdir()

    def run(*words: str) -> str:
        who = ("-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "protocol.file.allow=always")
        done = subprocess.run(["git", *who, *words], cwd=tmp_path / "checkout", capture_output=True, check=True)
        return done.stdout.decode().strip()

    (tmp_path / "checkout" / "file.txt").write_text("one\n")
    run("init", "-b", "main")
    run("add", ".")
    run("commit", "-m", "one")
    return run


def test_no_program_that_a_repository_names_is_run(tmp_path: Path, git: Git) -> None:
    checkout, mark = tmp_path / "checkout", tmp_path / "PWNED"
    program = f"touch {mark}; cat; false"
    git("clone", str(checkout), str(tmp_path / "part"))
    git("submodule", "add", str(tmp_path / "part"), "part")
    (checkout / ".gitattributes").write_text("* filter=evil diff=evil\n")
    git("add", ".")
    git("commit", "-m", "two")
    hooks = checkout / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("post-index-change", "fsmonitor-watchman"):
        (hooks / hook).write_text(f"#!/bin/sh\n{program}\n")
        (hooks / hook).chmod(0o755)
    (tmp_path / "more").write_text(f'[core]\n\tfsmonitor = "{program}"\n')
    settings = {
        "core.fsmonitor": program,
        "core.hooksPath": str(hooks),
        "core.pager": program,
        "diff.external": program,
        "diff.evil.textconv": program,
        "diff.evil.command": program,
        "filter.evil.clean": program,
        "filter.evil.smudge": program,
        "include.path": str(tmp_path / "more"),
        "status.submoduleSummary": "true",
    }
    for place in (checkout / ".git" / "config", checkout / ".git" / "modules" / "part" / "config"):
        for name, value in settings.items():
            git("config", "--file", str(place), name, value)
    assert not mark.exists()

    (checkout / "file.txt").write_text("two\n")  # so that its content has to be looked at
    (checkout / "part" / "file.txt").write_text("two\n")
    head = (checkout / ".git" / "refs" / "heads" / "main").read_text().strip()
    assert git_revision(checkout) == {"commit": head, "branch": "main", "dirty": True}
    assert not mark.exists()
    git("status")
    assert mark.exists(), "git itself runs them"


def test_what_is_in_a_checkout_is_seen(tmp_path: Path, git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    def revision(directory: Path = tmp_path / "checkout") -> tuple[object, ...]:
        found = git_revision(directory)
        assert found is not None
        return tuple(found.values())

    checkout, head = tmp_path / "checkout", git("rev-parse", "HEAD")
    assert revision() == (head, "main", False)
    (checkout / "file.txt").chmod(0o755)
    assert revision() == (head, "main", True)
    git("config", "core.fileMode", "false")
    assert revision() == (head, "main", False), "the file system has no such bit, the repository says"
    (checkout / ".git" / "info" / "exclude").write_text("*.log\n")
    (checkout / "a.log").touch()
    assert revision() == (head, "main", False), "ignored"
    (tmp_path / "ignored").write_text("*.tmp\n")
    (tmp_path / "gitconfig").write_text(f"[core]\nexcludesFile = {tmp_path / 'ignored'}\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "gitconfig").rename(tmp_path / "home" / ".gitconfig")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (checkout / "a.tmp").touch()
    assert revision() == (head, "main", False), "ignored by the user everywhere"

    git("pack-refs", "--all")
    git("worktree", "add", "-b", "other", str(tmp_path / "linked"))
    assert revision(tmp_path / "linked") == (head, "other", False)
    (tmp_path / "linked" / "new").mkdir()
    (tmp_path / "linked" / "new" / "file").touch()
    assert revision(tmp_path / "linked" / "new") == (head, "other", True)
    git("update-index", "--split-index")
    git("checkout", "--detach")
    assert revision() == (head, "HEAD", False)


def test_where_there_is_no_commit_there_is_no_revision(tmp_path: Path, git: Git) -> None:
    assert git_revision(tmp_path) is None
    (tmp_path / ".git").write_text("gitdir: nowhere\n")
    assert git_revision(tmp_path) is None
    git("init", str(tmp_path / "empty"))
    assert git_revision(tmp_path / "empty") is None


def test_a_repository_of_longer_hashes_is_read(tmp_path: Path, git: Git) -> None:
    other = str(tmp_path / "long")
    git("init", "-b", "main", "--object-format=sha256", other)
    git("-C", other, "commit", "--allow-empty", "-m", "one")
    assert git_revision(Path(other)) == {
        "commit": git("-C", other, "rev-parse", "HEAD"),
        "branch": "main",
        "dirty": False,
    }
