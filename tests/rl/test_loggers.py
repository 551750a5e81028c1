"""Where numbers are logged: TensorBoard by default, W&B on demand, one step of it per iteration."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import wandb
from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]  # it is made when it is loaded

from genelab.cli.main import run
from genelab.errors import GenelabError, UsageError
from genelab.rl import resume_task, train_task
from genelab.rl.loggers import WandbWriter

TASK = "GeneLab-Inverted-Pendulum-v0"


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("WANDB_PROJECT", "WANDB_ENTITY", "WANDB_API_KEY", "WANDB_RUN_ID", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Addresses outside this process' own machine sockets that Python connected to."""
    found: list[Any] = []
    original = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX:
            found.append(address)
        return original(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)
    return found


def train(*words: str, iterations: int = 3) -> int:
    budget = ["--num-envs", "8", "--max-iterations", str(iterations), "--seed", "3"]
    budget += [] if "--eval-every" in words else ["--no-final-eval"]
    return run(["train", TASK, *budget, "--log-dir", "run", "-q", *words])


def record(path: Path = Path("run")) -> dict[str, Any]:
    return json.loads((path / "run.json").read_text())


def offline_runs(path: Path = Path("run")) -> list[Path]:
    return sorted((path / "wandb").glob("offline-run-*/run-*.wandb"), key=lambda file: file.stat().st_mtime)


def records(path: Path) -> list[Record]:
    """What W&B wrote, from its start to its exit; another process writes it, and may be a moment late."""
    deadline = time.monotonic() + 60
    found = list(read(path))
    while not (found and found[-1].HasField("exit")):
        assert time.monotonic() < deadline, f"{path} has no end"
        time.sleep(0.05)
        found = list(read(path))
    return found


def read(path: Path) -> Iterator[Record]:
    """LevelDB's log format after a header of 7 bytes, in blocks of 32 KiB."""
    data, at, content = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack("<4xHB", data[at : at + 7])
        content += data[at + 7 : at + 7 + size]
        at += 7 + size
        if at > len(data):
            return
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(content)
            content = b""


def history(path: Path) -> list[dict[str, Any]]:
    """The steps of a run, without W&B's own clock."""
    rows = [record.history.item for record in records(path) if record.HasField("history")]
    found = [{"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in row} for row in rows]
    return [{key: value for key, value in row.items() if key not in ("_timestamp", "_runtime")} for row in found]


def start(path: Path) -> Any:
    return next(record.run for record in records(path) if record.HasField("run"))


def events(path: Path = Path("run")) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(path))
    found.Reload()
    return found


def test_tensorboard_is_the_default() -> None:
    assert train(iterations=1) == 0
    assert record()["logger"] == "tensorboard"
    assert list(Path("run").glob("events.out.tfevents.*"))
    assert not Path("run/wandb").exists()


def test_wandb_gets_one_step_per_iteration_and_the_params(
    connections: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    assert train("--logger", "wandb", "--eval-every", "2", "--eval-episodes", "2", "--eval-num-envs", "2") == 0
    assert connections == []
    assert capfd.readouterr().err == ""
    assert record()["logger"] == "wandb"
    assert not list(Path("run").glob("events.out.tfevents.*"))
    assert {path.name for path in Path.cwd().iterdir()} == {"run"}
    (file,) = offline_runs()
    steps = history(file)
    assert [step["_step"] for step in steps] == [1, 2, 3]
    assert [step["Train/env_steps"] for step in steps] == [192, 384, 576]
    assert all({"Loss/value", "Policy/mean_std", "Perf/total_fps"} <= step.keys() for step in steps)
    assert [any(key.startswith("Eval/") for key in step) for step in steps] == [False, True, True]
    begun = start(file)
    assert (begun.project, begun.display_name) == ("genelab", "run")
    config = {entry.key: json.loads(entry.value_json) for entry in begun.config.update}
    for name in ("env", "agent"):
        assert config[name] == json.loads(Path(f"run/params/{name}.json").read_text())


def test_wandb_is_told_the_commit_and_runs_no_git(tmp_path: Path) -> None:
    git = ("git", "-c", "user.name=me", "-c", "user.email=me@example.org")
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "one")):
        subprocess.run([*git, *words], check=True)
    for name in ("core.fsmonitor", "diff.external"):
        subprocess.run(["git", "config", name, f"touch {tmp_path / 'PWNED'}; false"], check=True)
    assert train("--logger", "wandb", iterations=1) == 0
    (file,) = offline_runs()
    config = {entry.key: json.loads(entry.value_json) for entry in start(file).config.update}
    assert config["git"] == record()["git"]
    assert len(config["git"]["commit"]) == 40
    assert not Path("PWNED").exists()


def test_both_loggers_get_the_same_numbers_of_the_same_training() -> None:
    for logger in ("tensorboard", "wandb"):
        train_task(TASK, num_envs=8, max_iterations=3, seed=3, log_dir=Path(logger), logger=logger)
    losses = [event.value for event in events(Path("tensorboard")).Scalars("Loss/value")]
    (file,) = offline_runs(Path("wandb"))
    assert [step["Loss/value"] for step in history(file)] == pytest.approx(losses, rel=1e-6)
    first, second = (
        torch.load(Path(name) / "model_final.pt", weights_only=True)["actor_state_dict"]
        for name in ("tensorboard", "wandb")
    )
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_resumed_run_goes_on_where_it_logged_before() -> None:
    assert train("--logger", "wandb", iterations=2) == 0
    assert run(["train", TASK, "--resume", "run", "--max-iterations", "3", "-q"]) == 0
    assert record()["logger"] == "wandb"
    first, second = offline_runs()
    assert start(first).run_id == start(second).run_id
    assert [step["_step"] for file in (first, second) for step in history(file)] == [1, 2, 3]
    resume_task(Path("run"), max_iterations=4, logger="tensorboard")
    assert record()["logger"] == "tensorboard"
    assert [event.step for event in events().Scalars("Loss/value")] == [4]


def test_of_many_ranks_the_leading_one_logs() -> None:
    assert train("--logger", "wandb", "--ranks", "2", iterations=1) == 0
    (file,) = offline_runs()
    assert [step["Train/env_steps"] for step in history(file)] == [192]  # of both ranks


def test_seeds_pass_the_logger_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(*args: Any, words: list[str], **options: Any) -> None:
        assert "--logger=wandb" in words
        raise GenelabError("enough")

    monkeypatch.setattr("genelab.rl.launch.seeds.train_seeds", launch)
    assert run(["train", TASK, "--logger", "wandb", "--seeds", "1,2"]) == 1


@pytest.mark.parametrize("words", [(), ("--seeds", "1,2"), ("--ranks", "2")])
def test_a_missing_library_is_named_before_anything_is_written(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert run(["train", TASK, "--max-iterations", "1", "--log-dir", "run", "--logger", "wandb", *words]) == 2
    assert capfd.readouterr().err == "genelab: wandb is not installed: pip install 'genelab[wandb]'\n"
    assert list(Path.cwd().iterdir()) == []
    with pytest.raises(UsageError, match=r"pip install 'genelab\[wandb\]'"):
        train_task(TASK, log_dir=Path("run"), logger="wandb")
    assert list(Path.cwd().iterdir()) == []


def test_an_unknown_logger_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown logger 'csv': choose one of tensorboard, wandb"):
        train_task(TASK, logger="csv")  # type: ignore[arg-type]


def test_what_wandb_refuses_ends_the_run_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**options: Any) -> None:
        raise wandb.errors.UsageError("No API key configured.\nUse `wandb login` to log in.")

    monkeypatch.setattr(wandb, "init", refuse)
    line = r"^`logger='wandb'`: No API key configured. Use `wandb login` to log in. \("
    with pytest.raises(GenelabError, match=line):
        train_task(TASK, num_envs=4, max_iterations=1, log_dir=Path("run"), logger="wandb")
    assert record()["status"] == "failed"


class FakeRun:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def log(self, scalars: dict[str, float], step: int) -> None:
        self.calls.append((step, scalars))

    def finish(self, exit_code: int) -> None:
        self.calls.append(exit_code)


def test_a_run_that_breaks_is_marked_so(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("params").mkdir()
    for name in ("env", "agent"):
        Path(f"params/{name}.json").write_text("{}")
    fake = FakeRun()
    monkeypatch.setattr(wandb, "init", lambda **options: fake)
    writer = WandbWriter(Path())
    writer.add_scalar("a", 1.0, 1)
    writer.add_scalar("b", 2.0, 1)
    assert fake.calls == []
    writer.add_scalar("a", 3.0, 2)
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        writer.close()
    writer.close()
    assert fake.calls == [(1, {"a": 1.0, "b": 2.0}), (2, {"a": 3.0}), 1, 0]
