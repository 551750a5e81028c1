"""Find the checkpoint that a user means: a file, a run directory, or a word for one."""

from __future__ import annotations

import datetime
from importlib import resources
from pathlib import Path
from typing import Any

from genelab.config import TASKS, TaskEntry, read_json
from genelab.errors import UsageError
from genelab.rl.backends import Backend, select_backend
from genelab.rl.fetch import fetch, is_uri

LOGS = Path("logs")
"""Where runs are, from the current directory."""
PRETRAINED_SUFFIXES = (".ts", ".onnx", ".pt", ".zip")
"""What a shipped policy may be, in the order of preference: TorchScript needs nothing beyond torch."""


def find_checkpoint(task_id: str, word: str | Path, *, best: bool = False, agent: Any = None) -> Path:
    """The checkpoint file that `word` stands for.

    A string may be `latest`, the newest run of the task below `./logs`, `pretrained`, the policy that the task's
    package ships, or an address (`file://`, `https://`, `hf://`), from which `fetch` brings it here. Anything else, and
    every `Path`, is a file or a run directory. Of a run it is the final checkpoint, the newest if the run did not
    complete, or the one with the best evaluation if `best`. Runs are those of the task's own library, or of the one
    that the config `agent` asks for.
    """
    entry = TASKS.entry(task_id)
    if word == "pretrained":
        if best:
            raise UsageError("`best` chooses among the checkpoints of a run; pretrained is one policy")
        return _pretrained(entry)
    if isinstance(word, str) and is_uri(word):
        if best:
            raise UsageError("`best` chooses among the checkpoints of a run; an address is one policy")
        return fetch(word)
    path = Path(word)
    if word == "latest" or path.is_dir():
        backend = select_backend(TASKS.get(task_id).agent if agent is None else agent)
        return _of_run(_need_run(entry.id, backend) if word == "latest" else path, backend, best)
    if not path.is_file():
        raise UsageError(f"{path}: no such checkpoint; give a file, a run directory, latest, pretrained or an address")
    if best:
        raise UsageError(f"`best` chooses among the checkpoints of a run; {path} is a file")
    return path


def latest_run(task_id: str, agent: Any) -> Path | None:
    """The task's newest run below `./logs` that has a checkpoint of the agent's library; None without one."""
    return _latest_run(TASKS.entry(task_id).id, select_backend(agent))


def pretrained_policy(task_id: str) -> Path | None:
    """The policy that the task's package ships as `pretrained/<task id>/policy.<suffix>`; None without one."""
    return _shipped(TASKS.entry(task_id))


def _pretrained(entry: TaskEntry) -> Path:
    path = _shipped(entry)
    if path is None:
        others = [other.id for other in TASKS.entries() if _shipped(other) is not None]
        known = f"these have: {', '.join(others)}" if others else "no task has one"
        raise UsageError(f"{entry.id} has no pretrained policy; {known}")
    return path


def _shipped(entry: TaskEntry) -> Path | None:
    try:
        home = resources.files(entry.package) / "pretrained" / entry.id
    except (ImportError, TypeError, ValueError, AttributeError):
        return None  # a single module, or code typed at a prompt: it ships nothing
    files = (Path(str(home / f"policy{suffix}")) for suffix in PRETRAINED_SUFFIXES)
    return next((file for file in files if file.is_file()), None)


def _need_run(task_id: str, backend: Backend[Any]) -> Path:
    run = _latest_run(task_id, backend)
    if run is None:
        raise UsageError(f"latest: no run of {task_id} with a checkpoint in {LOGS / backend.name / task_id}")
    return run


def _latest_run(task_id: str, backend: Backend[Any]) -> Path | None:
    found = [*(LOGS / backend.name / task_id).glob("*"), *(LOGS / "multi-seed" / task_id).glob("*/seed_*")]
    runs = [run for run in found if _made_with(run, backend) == backend.name]
    started = {run: when for run in runs if (when := _started_at(run)) and _newest(run, backend) is not None}
    return max(started, key=lambda run: (started[run], run.name), default=None)


def _of_run(run: Path, backend: Backend[Any], best: bool) -> Path:
    seeds = sorted(path.name for path in run.glob("seed_*") if path.is_dir())
    if seeds and not (run / "run.json").exists():
        raise UsageError(f"{run} has one run per seed, give one of them: {', '.join(seeds)}")
    made_with = _made_with(run, backend)
    if made_with != backend.name:
        raise UsageError(f"{run}: made with {made_with}, but this task's agent is of {backend.name}")
    if best:
        path = run / f"best_model{backend.suffix}"
        if not path.is_file():
            raise UsageError(f"{run} has no {path.name}: it was trained without `train_task.evaluation`")
        return path
    newest = _newest(run, backend)
    if newest is None:
        raise UsageError(f"{run}: a directory without a checkpoint (model_*{backend.suffix})")
    return newest


def _made_with(run: Path, backend: Backend[Any]) -> str:
    """The library that a run says it was made with; this one if it says nothing."""
    return _record(run).get("backend", backend.name)


def _newest(run: Path, backend: Backend[Any]) -> Path | None:
    """The final checkpoint of a completed run, otherwise the one after the most iterations."""
    final = run / f"{backend.final_name}{backend.suffix}"
    numbers = {path: path.stem.removeprefix("model_") for path in run.glob(f"model_*{backend.suffix}")}
    numbered = {path: int(number) for path, number in numbers.items() if number.isdecimal()}
    if final.is_file() and (_record(run).get("status") == "completed" or not numbered):
        return final
    return max(numbered, key=lambda path: numbered[path], default=None)


def _started_at(run: Path) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(_record(run)["started_at"])
    except (KeyError, TypeError, ValueError):
        return None


def _record(run: Path) -> dict[str, Any]:
    """What the run says about itself; empty if it says nothing that can be read."""
    try:
        record = read_json(run / "run.json")
    except UsageError:
        return {}
    return record if isinstance(record, dict) else {}
