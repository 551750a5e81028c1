"""What a person sees of a training on a terminal: the screen, not the bytes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from genelab.cli.progress import live_lines
from genelab.rl import Progress

TASK = "GeneLab-Inverted-Pendulum-v0"
_TOKEN = re.compile(r"\x1b\[(?P<numbers>[\d;?]*)(?P<command>[A-Za-z])|(?P<text>[^\x1b])", re.DOTALL)


class Screen:
    """A terminal with all the rows it ever had: carriage returns, line feeds, cursor up, erased lines, wrapping."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows = [""]
        self.row = self.column = 0

    def feed(self, text: str) -> Screen:
        for token in _TOKEN.finditer(text):
            if token["command"]:
                self._control(token["command"], token["numbers"])
            elif token["text"] == "\r":
                self.column = 0
            elif token["text"] == "\n":
                self._down()
            elif token["text"] >= " ":
                self._put(token["text"])
        return self

    def _control(self, command: str, numbers: str) -> None:
        if command == "A":
            self.row = max(self.row - int(numbers or 1), 0)
        elif command == "K":
            self.rows[self.row] = "" if numbers == "2" else self.rows[self.row][: self.column]
        else:
            assert command in "mhl", f"{command}: the screen of this test does not know it"

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append("")

    def _put(self, character: str) -> None:
        if self.column == self.width:
            self.column = 0
            self._down()
        row = self.rows[self.row].ljust(self.column)
        self.rows[self.row] = row[: self.column] + character + row[self.column + 1 :]
        self.column += 1


def on_a_terminal(
    words: list[str], width: int, *, until: Callable[[str], bool] | None = None, code: int = 0
) -> list[str]:
    """The rows of the screen after a command; with `until` it gets a Ctrl-C once its output is so."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        for name in ("COLUMNS", "NO_COLOR"):
            os.environ.pop(name, None)
        time.sleep(0.2)  # until the window has its size
        os.execv(sys.executable, [sys.executable, "-m", "genelab.cli.main", *words])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    output = b""
    deadline = time.monotonic() + 120.0
    while True:
        if not select.select([terminal], [], [], max(deadline - time.monotonic(), 0.0))[0]:
            os.kill(pid, signal.SIGKILL)
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # the other end has been closed
            break
        if not chunk:
            break
        output += chunk
        if until is not None and until(output.decode(errors="replace")):
            os.kill(pid, signal.SIGINT)
            until = None
    os.close(terminal)
    text = output.decode()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code, text
    return Screen(width).feed(text).rows


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_screen_is_a_screen() -> None:
    assert Screen(4).feed("abcdef").rows == ["abcd", "ef"]
    assert Screen(9).feed("one\r\ntwo\r\x1b[2K\x1b[1A\x1b[2Kthree\r\n").rows == ["three", ""]
    assert Screen(9).feed("\x1b[31mred\x1b[0m\x1b[?25l\r-").rows == ["-ed"]


@pytest.mark.parametrize("width", [80, 120])
def test_no_remark_is_written_over(width: int) -> None:
    Path("noisy.py").write_text(
        "import logging\nimport genelab.rl.evaluator as evaluator\n"
        "evaluate = evaluator.evaluate\n"
        "def noisy(*args, **options):\n"
        "    logging.getLogger(__name__).warning('a library warns')\n"
        "    return evaluate(*args, **options)\n"
        "import genelab.rl.eval_callback as callback\ncallback.evaluate = noisy\n"
    )
    words = ["train", TASK, "--num-envs", "8", "--max-iterations", "6", "--log-dir", "run", "--import", "noisy.py"]
    words += ["--eval-every", "2", "--eval-episodes", "2", "--env.episode_length_s", "0.2"]
    rows = on_a_terminal(words, width)
    starts = [i for i, row in enumerate(rows) if row.startswith("genelab: evaluation at iteration")]
    remarks = [" ".join(" ".join(rows[i : i + 2]).split()) for i in starts]  # one may take two rows
    assert len(remarks) == 3
    for count, remark in zip((2, 4, 6), remarks, strict=True):
        assert re.match(rf"genelab: evaluation at iteration {count}: return -?\d+\.\d+, length \d+\.\d", remark)
    assert "the best so far" in remarks[0]
    assert rows.count("genelab: a library warns") == 3
    progress = [row for row in rows if row.startswith("iteration ")]
    assert len(progress) == 1  # one block, renewed in place
    assert progress[0].startswith("iteration 6/6 · 100% · ETA 0:00 · ")
    assert rows[rows.index(progress[0]) + 1].startswith(("return ", "learning "))
    assert "completed: 6 iterations" in rows[rows.index(progress[0]) + 2]


def test_ctrl_c_is_answered_in_a_line_of_its_own() -> None:
    words = ["train", TASK, "--num-envs", "8", "--max-iterations", "100000", "--log-dir", "run"]
    rows = on_a_terminal(words, 80, until=lambda text: "iteration " in text, code=130)
    assert "genelab: stopping after this iteration; once more to stop at once" in rows
    assert sum(row.startswith("iteration ") for row in rows) == 1


@pytest.mark.parametrize("width", [20, 40, 60, 79, 80, 100, 120, 200])
def test_progress_is_never_wider_than_the_terminal(width: int) -> None:
    progress = Progress(
        done=1_234_567, total=2_000_000, unit="timesteps", env_steps=614400, elapsed=30.0, eta=440_000.0,
        collect_fps=1_060_000.0, total_fps=240_000.0, learn_share=0.63, return_mean=-1112.345, length_mean=1000.0,
    )  # fmt: skip
    first, second = live_lines(progress, width)
    assert max(len(first), len(second)) <= width
    assert "timestep 1,234,567/2" in first
    if width >= 80:
        assert first == "timestep 1,234,567/2,000,000 · 62% · ETA 122:13:20 · 240,000 steps/s"
        assert second.startswith("return -1112.35 (exploring) · length 1000 · learning 63% of the time")
        assert second.endswith(" · collecting 1,060,000 steps/s") == (width >= 100)
