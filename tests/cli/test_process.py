"""The command as a process: its signals, its output, and files that are not what they should be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from genelab.cli.failures import explain
from genelab.cli.main import run

TASK = "GeneLab-Inverted-Pendulum-v0"
GENELAB = str(Path(sys.executable).with_name("genelab"))
LONG = "a" * 300


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refusal(args: list[str], capfd: pytest.CaptureFixture[str], code: int = 2) -> str:
    assert run(args) == code
    (line,) = capfd.readouterr().err.splitlines()
    return line


def program(code: str) -> subprocess.Popen[str]:
    """A process that runs this code and hears signals as if it had a terminal."""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


# -- signals


def test_before_it_listens_nothing_is_imported() -> None:
    code = (
        "import sys; before = set(sys.modules); import genelab.cli.main; slow = {'click', 'typing', 'genelab.config'}; "
        "print([name for name in set(sys.modules) - before if name in slow])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_ctrl_c_in_an_import_ends_the_process_at_once(tmp_path: Path) -> None:
    """A library that swallows the interrupt would go on half imported."""
    Path("slow.py").write_text(
        "import time\ntry:\n    print('here', flush=True)\n    time.sleep(30)\nexcept BaseException:\n    pass\n"
    )
    process = program(
        "import sys; sys.argv = ['genelab', 'list', '--import', 'slow.py']; from genelab.cli.main import main; main()"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (130, "genelab: interrupted\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_outside_of_training_is_one_line(number: signal.Signals) -> None:
    process = program(
        "import genelab.cli.verbs, time, click\n"
        "genelab.cli.verbs.cli.invoke = lambda context: (click.echo('here'), time.sleep(30))\n"
        "from genelab.cli.main import main; main(['list'])"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (130, "genelab: interrupted\n")


def test_native_code_that_does_not_return_is_left_after_the_second_signal() -> None:
    process = program(
        "import hashlib, genelab.rl.stop as stop\n"
        "stop.PATIENCE = 0.5\n"
        "class Run: stop_requested = False\n"
        "with stop.stop_on_signals(Run(), print):\n"
        "    print('here', flush=True)\n"
        "    hashlib.pbkdf2_hmac('sha256', b'', b'', 2_000_000_000)\n"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (130, "genelab: interrupted\n")


def test_code_of_a_task_that_ends_the_program_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    for name, error in (("leaves", "SystemExit(3)"), ("closes", "GeneratorExit")):
        Path(f"{name}.py").write_text(f"raise {error}")
        line = refusal(["list", "--import", f"{name}.py"], capfd)
        assert line.startswith(f"genelab: cannot import '{name}.py': {error.partition('(')[0]}")
    Path("terms.py").write_text("def leave(env) -> None:\n    raise SystemExit(3)\n")
    words = ["--import", "terms.py", "--env.rewards.alive.func", "terms:leave", "--num-envs", "2", "--steps", "2"]
    line = refusal(["play", TASK, *words], capfd, code=1)
    assert line.startswith("genelab: the task's code ended the program: SystemExit: 3 (")
    assert line.endswith("terms.py, line 2)")


# -- output


@pytest.mark.parametrize(("words", "wanted"), [(["list"], 0), (["info", TASK], 0)])
def test_a_reader_that_has_gone_is_not_missed(words: list[str], wanted: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as gone:
        result = subprocess.run([GENELAB, *words], stdout=gone, stderr=subprocess.PIPE, text=True, check=False)
    assert (result.returncode, result.stderr) == (wanted, "")


def test_output_on_a_full_disk_is_told_of() -> None:
    with open("/dev/full", "wb") as full:
        result = subprocess.run([GENELAB, "list"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == "genelab: the output is not complete: No space left on device\n"


# -- files


@pytest.mark.parametrize(
    "words",
    [["export", TASK, LONG], ["benchmark", "compare", LONG, "b"], ["train", TASK, "--log-dir", LONG], ["report", LONG]],
)
def test_a_name_that_is_too_long_is_one_line(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert refusal(words, capfd).endswith("File name too long")


def test_a_working_directory_that_was_deleted_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.chdir(home)
    home.rmdir()
    line = refusal(["eval", TASK, "pretrained"], capfd)
    os.chdir(tmp_path)
    assert line == "genelab: the working directory was deleted: change into another"


def test_a_path_of_too_many_directories_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line = refusal(["benchmark", "runtime", TASK, "--out", "a/" * 1900], capfd)
    assert line == "genelab: a path of more directories than can be made"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["benchmark", "--suite", "fifo"], "--suite"),
        (["benchmark", "--suite", "s.json", "--reference", "fifo"], "--reference"),
        (["benchmark", "startup", TASK, "--whitelist", "fifo"], "--whitelist"),
        (["play", TASK, "--replay", "fifo"], "--replay"),
    ],
)
def test_a_pipe_is_not_waited_for(words: list[str], option: str, capfd: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("fifo")
    line = refusal(words, capfd)
    assert option in line
    assert line.endswith("fifo is no regular file")


def test_traces_that_were_not_written_are_not_claimed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """On a full disk torch only logs that it could not write."""
    monkeypatch.setattr("torch.profiler.profile.export_chrome_trace", lambda self, path: None)
    words = ["--prof-wait", "0", "--prof-warmup", "1", "--prof-active", "1", "--steps", "4", "--num-envs", "2"]
    assert run(["play", TASK, *words]) == 1
    captured = capfd.readouterr()
    assert "genelab: --prof-out: no trace could be written to logs/prof" in captured.err
    assert "traces in" not in captured.out


def test_ctrl_c_in_the_middle_of_a_trace_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupt(profile: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("torch.profiler.profile.step", interrupt)
    monkeypatch.setattr("torch.profiler.profile.stop", lambda profile: 1 // 0)
    assert refusal(["play", TASK, "--prof", "--num-envs", "2"], capfd, code=130) == "genelab: interrupted"


def test_links_in_a_circle_are_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    Path("loop").symlink_to("loop")
    assert "symbolic links" in refusal(["benchmark", "compare", "loop/a", "loop/b"], capfd).lower()


def test_a_refused_benchmark_leaves_no_directory(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    refusal(["benchmark", "runtime", "No-Such-Task", "--out", "a/b"], capfd)
    refusal(["benchmark", "runtime", TASK, "--out", "a/b", "--env.no.such", "1"], capfd)
    refusal(["benchmark", "training", TASK, "--out", "a/b", "--agent.save_interval=0"], capfd)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (PermissionError(13, "Permission denied", "a.pt"), "a.pt: Permission denied", 2),
        (OSError(28, "No space left on device", "b"), "b: No space left on device", 1),
        (OSError(5, "Input/output error"), "Input/output error", 1),
        (MemoryError("8 GB"), "not enough memory: MemoryError: 8 GB", 1),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), "not enough memory: RuntimeError: ", 1),
        (UnicodeError("x"), "text that cannot be read or written: UnicodeError: x", 2),
    ],
)
def test_what_is_not_our_fault_is_one_line(error: Exception, line: str, code: int) -> None:
    explained = explain(error)
    assert explained is not None
    assert explained[0].startswith(line)
    assert explained[1] == code


def test_a_bug_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    assert explain(KeyError("x")) is None
    assert explain(FileNotFoundError(2, "No such file", str(Path(explain.__code__.co_filename).with_name("x")))) is None
    monkeypatch.setattr("genelab.cli.verbs.cli.invoke", lambda context: context.no_such_method)
    with pytest.raises(AttributeError):
        run(["list"])
