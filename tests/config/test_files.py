"""Outputs go to regular files: links are followed, and nothing else is ever replaced."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from genelab.cli.main import run
from genelab.config import atomic_write_bytes, atomic_write_files, check_out, read_json
from genelab.config.files import MAX_JSON_BYTES
from genelab.errors import ConfigError, UsageError

PENDULUM = "GeneLab-Inverted-Pendulum-v0"


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").write_bytes(b"old")
    (tmp_path / "link").symlink_to("there/file")
    (tmp_path / "second").symlink_to("link")
    (tmp_path / "new").symlink_to("there/new")
    for name in ("second", "new"):
        check_out(tmp_path / name)
        atomic_write_bytes(tmp_path / name, b"data")
        assert (tmp_path / name).is_symlink()
    assert {path.name: path.read_bytes() for path in (tmp_path / "there").iterdir()} == {
        "file": b"data",
        "new": b"data",
    }
    assert len(list(tmp_path.iterdir())) == 4


WRITER = """
import sys
from pathlib import Path
from genelab.config.files import replacing

with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    print(temporary.name, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_writer_left_goes_when_the_file_is_written_again(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        left = tmp_path / writer.stdout.readline().strip()
        others = [tmp_path / name for name in (".other.json.1a2b3c4d.tmp", ".out.json.tmp", ".x.out.json.1a2b3c4d.tmp")]
        for path in others:
            path.touch()
        atomic_write_bytes(out, b"while another writes")
        assert left.read_text() == "half", "its writer lives"
        writer.kill()
        writer.wait()
        atomic_write_bytes(out, b"new")
    assert out.read_bytes() == b"new"
    assert sorted(tmp_path.iterdir()) == sorted([out, *others])


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("make", [pipe, link_to_pipe, loop, Path.mkdir])
def test_what_is_no_regular_file_is_not_replaced(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "out"
    make(path)
    before = stat.S_IFMT(path.lstat().st_mode)
    with pytest.raises(OSError, match="it is "):
        atomic_write_bytes(path, b"")
    with pytest.raises(OSError, match="it is "):
        atomic_write_files({tmp_path / "fine": b"", path: b""})
    with pytest.raises(UsageError, match=r"^`film.path`: .*out"):
        check_out(path, "film.path")
    assert stat.S_IFMT(path.lstat().st_mode) == before
    assert not (tmp_path / "fine").exists()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["info", PENDULUM, "--mjcf"], "--mjcf"),
        (["info", "Genelab-Velocity-Rough-Unitree-Go1-v0", "--terrain"], "--terrain"),
        (["play", PENDULUM, "--headless", "--steps", "2", "--video"], "--video"),
        (["eval", PENDULUM, "pretrained", "--out"], "--out"),
        (["export", PENDULUM, "pretrained", "--format", "torchscript", "--out"], "--out"),
    ],
)
def test_no_command_replaces_a_device(
    words: list[str], option: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.png"
    path.symlink_to("/dev/null")
    assert run([*words, str(path)]) == 2
    assert capfd.readouterr().err == f"genelab: {option}: {path} is no regular file\n"
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('["\\ud800"]', "surrogates not allowed"),
        (f"[{'9' * 401}]", "99999999999999999999 is no number"),
        ("[1e999]", "1e999 is no number"),
        ("[NaN]", "NaN is no number"),
        ("", "Expecting value"),
    ],
)
def test_json_that_nothing_can_be_done_with_is_refused(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"data\.json is not JSON: .*{why}"):
        read_json(path)


def test_json_is_read_from_regular_files_of_a_sane_size(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match=r"cannot read .*pipe: it is no regular file"):
        read_json(tmp_path / "pipe")
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(MAX_JSON_BYTES + 1)
    with pytest.raises(ConfigError, match=r"huge: larger than 64 MB"):
        read_json(tmp_path / "huge")
    with pytest.raises(ConfigError, match="File name too long"):
        read_json(tmp_path / ("a" * 300))
    with pytest.raises(ConfigError, match="it is no regular file"):
        read_json(tmp_path)
    (tmp_path / "pair").write_text('["\\ud83d\\ude00"]')
    assert read_json(tmp_path / "pair") == ["😀"]
