"""What files and servers of others say is printed as text: a terminal acts on none of it."""

from __future__ import annotations

import ast
import http.server
import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table

from genelab.cli.command import echo, say, show
from genelab.cli.main import run
from genelab.text import markdown, one_line, printable

ESCAPES = (
    "\x1b]0;PWN\x07",
    "\x1b[31m",
    "\x9b31m",
    "\x1b]52;c;aGk=\x1b\\",
    "\u202e\u2066",
    "\u200b",
    "\x7f\b\r",
    "\ud83d",
)
CLI = Path(__file__).parents[2] / "src/genelab/cli"


def is_text(words: str) -> bool:
    return words.replace("\n", "").isprintable()


@pytest.mark.parametrize("escape", ESCAPES)
def test_what_is_not_drawn_is_shown_as_an_escape(escape: str) -> None:
    for shown in (printable(f"a{escape}b"), one_line(f"a{escape}b"), markdown(f"a{escape}b")):
        assert shown.isprintable()
        assert shown.startswith("a")
        assert shown.endswith("b")
    text = "é漢字 · – “x”\u00a0😀"
    assert printable(text) == text
    assert printable("a\nb", keep="\n") == "a\nb"
    assert printable("\x1b[31m\u202e\U000e0001") == r"\x1b[31m\u202e\U000e0001"


@pytest.mark.parametrize("escape", ESCAPES)
@pytest.mark.parametrize("colours", ["", "1"])
def test_the_ways_to_the_console(
    escape: str, colours: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    echo(f"a{escape}\nb")
    say(f"a{escape}b")
    table = Table("head", escape, title=f"title {escape}")
    table.add_row(f"[link=http://x]{escape}", "[/no] :smile: [red]markup[/red]")
    show(table)
    out, err = capfd.readouterr()
    assert is_text(out)
    assert is_text(err)
    assert out.count("\n") == 2 + 6
    assert ":smile:" in out
    assert "[/no]" in out
    if colours:
        monkeypatch.setenv("FORCE_COLOR", "1")
        show(table)
        assert re.sub(r"\x1b\[[\d;]*m", "", capfd.readouterr().out).replace("\n", "").isprintable()


def test_no_verb_prints_past_it() -> None:
    """`echo` and `show` are the ways to the console; the live progress is of our own numbers."""
    for file in CLI.glob("*.py"):
        if file.name in ("command.py", "main.py", "progress.py"):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                assert (getattr(node.value, "id", ""), node.attr) != ("click", "echo"), f"{file.name}:{node.lineno}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "print":
                raise AssertionError(f"{file.name}:{node.lineno} prints by itself")


def test_a_run_of_others(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", "GeneLab-Inverted-Pendulum-v0", "--num-envs", "2", "--max-iterations", "1", "-q"]) == 0
    (record,) = Path("logs").rglob("run.json")
    told = json.loads(record.read_text())
    for name in ("backend", "task", "status"):
        record.write_text(json.dumps({**told, name: "x\x1b]0;PWN\x07\u202e"}))
        for words in (["eval", told["task"], str(record.parent)], ["report", str(record.parent)]):
            run(words)
            out, err = capfd.readouterr()
            assert is_text(out)
            assert is_text(err)


def test_the_reason_of_a_server(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    class Refuses(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response_only(500, "no\x1b]0;PWN\x07")
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Refuses)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/policy.onnx"
        assert run(["eval", "GeneLab-Inverted-Pendulum-v0", address]) == 2
    finally:
        server.shutdown()
        server.server_close()
    error = capfd.readouterr().err
    assert r"no\x1b]0;PWN\x07" in error
    assert is_text(error)


def test_a_remark_that_is_logged(tmp_path: Path) -> None:
    """In a process of its own, since pytest has handlers of its own."""
    robot = tmp_path / "robot.urdf"
    robot.write_text(
        "<robot name='r'><link name='a'/><link name='b'><inertial><mass value='1'/><inertia ixx='1' iyy='1' izz='1' "
        "ixy='0' ixz='0' iyz='0'/></inertial><visual><geometry><mesh filename='x&#x9b;31m&#x202e;'/></geometry>"
        "</visual></link><joint name='j' type='continuous'><parent link='a'/><child link='b'/></joint></robot>"
    )
    words = ["new-task", "brought_z", "--from", str(robot), "--dir", str(tmp_path), "--kind", "blank"]
    result = subprocess.run(
        [sys.executable, "-m", "genelab.cli.main", *words], capture_output=True, text=True, timeout=120, check=True
    )
    assert r"left out the visual mesh x\x9b31m\u202e" in result.stderr
    assert is_text(result.stdout + result.stderr)
