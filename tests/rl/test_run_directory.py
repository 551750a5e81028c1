"""A run directory belongs to one process at a time, and says what became of its run."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import genelab
from genelab.cli.main import run
from genelab.errors import GenelabError, UsageError
from genelab.rl import resume_task, train_task
from genelab.rl.monitor import Progress
from genelab.rl.provenance import genelab_revision
from genelab.rl.run import LOCK_FILE, Lock, RunDirectory

TASK = "GeneLab-Inverted-Pendulum-v0"
HOLD = """
import sys, pathlib
from genelab.rl.run import RunDirectory
with RunDirectory(pathlib.Path(sys.argv[1])).owned():
    print("mine", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that owns `run`."""
    (tmp_path / "run").mkdir()
    words = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mine\n"
        yield process
        process.kill()


def test_a_directory_in_use_is_refused_with_the_owners_pid(
    owner: subprocess.Popen[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    assert run(["train", TASK, "--max-iterations", "1", "--num-envs", "4", "--log-dir", str(path), "--quiet"]) == 2
    assert f"{path} is in use by process {owner.pid} on {os.uname().nodename}" in capfd.readouterr().err
    assert not (path / "run.json").exists()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    with RunDirectory(path).owned():
        assert (path / LOCK_FILE).read_text().split()[0] == str(os.getpid())
    assert not (path / LOCK_FILE).exists()


def test_two_owners_in_one_process_are_two(tmp_path: Path) -> None:
    with RunDirectory(tmp_path).owned():
        assert Lock.is_taken(tmp_path)
        with pytest.raises(UsageError, match=f"in use by process {os.getpid()} "), RunDirectory(tmp_path).owned():
            pass
    assert not Lock.is_taken(tmp_path)


WITHOUT_LOCKS = """
import errno, fcntl, os, sys, time
from pathlib import Path
from genelab.errors import UsageError
from genelab.rl.run import Lock

def flock(file, kind):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

fcntl.flock = flock
try:
    with Lock.take(Path(sys.argv[1])):
        print("owns", os.getpid(), flush=True)
        sys.stdin.read()
except UsageError as error:
    print(error, flush=True)
"""


def test_where_the_file_system_has_no_locks_there_is_one_owner_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def start() -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-c", WITHOUT_LOCKS, str(tmp_path)], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def first_line(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()

    rivals = [start() for _ in range(3)]
    said = sorted(first_line(process) for process in rivals)
    *refused, owns = said
    pid = owns.split()[1]
    reason = (
        f"{tmp_path} is in use by process {pid} on {platform.node()}: wait for its end, or choose another directory"
    )
    assert refused == [f"{reason}; if it has ended, delete {tmp_path / LOCK_FILE}"] * 2

    def flock(file: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    assert Lock.is_taken(tmp_path)
    with pytest.raises(UsageError, match="in use by process"):
        Lock.take(tmp_path)
    os.kill(int(pid), signal.SIGKILL)
    for process in rivals:
        process.communicate()
    assert (tmp_path / LOCK_FILE).exists(), "nobody could take it away"
    assert not Lock.is_taken(tmp_path)
    with caplog.at_level("WARNING", "genelab"), Lock.take(tmp_path):
        assert Lock.is_taken(tmp_path)
    assert caplog.messages == [f"the file system of {tmp_path} has no locks: {tmp_path / LOCK_FILE} says who uses it"]
    assert list(tmp_path.iterdir()) == []


def test_without_locks_the_start_and_the_machine_of_a_process_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(file: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    (tmp_path / LOCK_FILE).write_text(f"{os.getpid()} {platform.node()} 1\n")
    assert not Lock.is_taken(tmp_path), "another process had this id"
    with Lock.take(tmp_path):
        pass
    for text in ("4000000 elsewhere 1\n", ""):  # one cannot know; or it is about to be written
        (tmp_path / LOCK_FILE).write_text(text)
        assert Lock.is_taken(tmp_path)
        with pytest.raises(UsageError, match=r"is in use by (process 4000000 on elsewhere|another process): wait"):
            Lock.take(tmp_path)


def test_a_lock_that_is_a_link_or_a_pipe_is_neither_followed_nor_waited_for(tmp_path: Path) -> None:
    """An unpacked archive can have links in it."""
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK_FILE).symlink_to(precious)
    with pytest.raises(UsageError, match="cannot write to"), RunDirectory(tmp_path / "run").owned():
        pass
    assert precious.read_text() == "mine"
    (tmp_path / "run" / LOCK_FILE).unlink()
    os.mkfifo(tmp_path / "run" / LOCK_FILE)
    assert not Lock.is_taken(tmp_path / "run")


def test_two_runs_of_one_second_have_two_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both choose a name before either has made it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(RunDirectory, "default_path", lambda *names: Path("logs/now"))
    first = RunDirectory(Path("logs/now"))
    first.create_numbered()
    with first.owned():
        assert train_task(TASK, num_envs=4, max_iterations=1).path == Path("logs/now_2")
    assert first.path == Path("logs/now")


def test_a_running_run_is_not_resumed_and_a_killed_one_is_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "run"
    seen: list[str] = []

    def look(progress: Progress) -> None:
        seen.append(RunDirectory(path).read()["status"])
        if progress.done == 2:  # a checkpoint has been written
            with pytest.raises(UsageError, match=f"in use by process {os.getpid()} "):
                resume_task(path, max_iterations=9)

    train_task(TASK, num_envs=4, max_iterations=2, seed=1, log_dir=path, report=look)
    assert seen == ["running", "running"]
    record = json.loads((path / "run.json").read_text())
    assert (record["pid"], record["host"], record["status"]) == (os.getpid(), os.uname().nodename, "completed")
    record["status"] = "running"  # as a killed process leaves it
    (path / "run.json").write_text(json.dumps(record))
    assert RunDirectory(path).read()["status"] == "interrupted"


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "params").mkdir()
    left = [".resume.pt.0a1b2c3d.tmp", ".model_5.pt.ffffffff.tmp", "params/.env.json.01234567.tmp"]
    kept = ["model_5.pt", ".notes.tmp", "mine.0a1b2c3d.tmp", ".resume.pt.0a1b2c3.tmp"]
    for name in left + kept:
        (tmp_path / name).touch()
    with RunDirectory(tmp_path).owned():
        pass
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == sorted(kept)
    assert list((tmp_path / "params").iterdir()) == []


@pytest.mark.parametrize("rename", [True, False])
def test_a_directory_that_goes_is_not_made_again(tmp_path: Path, rename: bool) -> None:
    path = tmp_path / "run"

    def take_away(progress: Progress) -> None:
        if progress.done == 2:
            path.rename(tmp_path / "moved")
            if not rename:
                path.write_text("")  # a file in its place

    with pytest.raises(GenelabError, match=r"cannot (write|log to) .*run"):
        train_task(TASK, num_envs=4, max_iterations=50, seed=1, log_dir=path, report=take_away)
    assert not path.is_dir()
    assert RunDirectory(tmp_path / "moved").read()["status"] == "interrupted"


def test_a_clock_that_is_set_back_takes_no_time_away(tmp_path: Path) -> None:
    first = RunDirectory(tmp_path)
    first.start(task="T", backend="rsl_rl", seed=1, num_envs=1, engine="mujoco", device="cpu")
    first.record["started_at"] = later = "2099-01-02T03:04:05+00:00"
    first.finish("interrupted")
    assert 0.0 <= first.record["wall_seconds"] < 60.0
    assert first.record["ended_at"] == later
    again = RunDirectory(tmp_path)
    again.read()
    again.go_on("model_final.pt", 1000.0, task="T", backend="rsl_rl", seed=1, num_envs=1, engine="mujoco", device="cpu")
    again.record["started_at"] = later
    again.finish("completed")
    assert 1000.0 <= again.record["wall_seconds"] < 1060.0


def test_the_revision_of_genelab_is_that_of_its_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> str:
        who = ("-c", "user.name=me", "-c", "user.email=me@example.org")
        return subprocess.run(
            ["git", *who, *words], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.strip()

    source = tmp_path / "src" / "genelab" / "__init__.py"
    source.parent.mkdir(parents=True)
    source.touch()
    monkeypatch.setattr(genelab, "__file__", str(source))
    assert genelab_revision() is None
    git("init", "-b", "main")
    git("commit", "--allow-empty", "-m", "one")
    assert genelab_revision() is None, "a copy that lies in another project's checkout is not of its revision"
    git("add", ".")
    git("commit", "-m", "two")
    assert genelab_revision() == {"commit": git("rev-parse", "HEAD"), "branch": "main", "dirty": False}
    (tmp_path / "more").touch()
    revision = genelab_revision()
    assert revision is not None
    assert revision["dirty"] is True
