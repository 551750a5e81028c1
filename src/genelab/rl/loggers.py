"""Where a run logs its numbers: TensorBoard, or Weights & Biases."""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from genelab.config.offer import need_library
from genelab.errors import GenelabError, UsageError
from genelab.rl.monitor import Writer
from genelab.rl.provenance import git_revision

LoggerName = Literal["tensorboard", "wandb"]
LOGGERS: tuple[LoggerName, ...] = get_args(LoggerName)
PROJECT = "genelab"
"""W&B project of all runs, unless WANDB_PROJECT names another."""


def check_logger(name: str) -> None:
    """Refuse a logger that is unknown or not installed."""
    if name not in LOGGERS:
        raise UsageError(f"unknown logger {name!r}: choose one of {', '.join(LOGGERS)}")
    if name == "wandb":
        need_library("wandb", "wandb")


def open_logger(name: LoggerName, path: Path) -> Writer:
    """The writer for a run directory that has its params already."""
    return WandbWriter(path) if name == "wandb" else TensorboardWriter(path)


class WandbWriter:
    """Logs to Weights & Biases; the scalars of one iteration are one step there.

    The mode is W&B's own affair: WANDB_MODE=offline keeps everything in the run directory and off the network.
    """

    def __init__(self, path: Path) -> None:
        wandb = need_library("wandb", "wandb")
        path = path.resolve()  # W&B's process may have been started elsewhere
        config = {name: json.loads((path / "params" / f"{name}.json").read_text()) for name in ("env", "agent")}
        config["git"] = git_revision()
        earlier = _earlier_id(path)
        try:
            self._run: Any = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                name=path.name,
                dir=path,
                id=earlier or secrets.token_hex(4),
                resume=None if earlier is None else "allow",
                config=config,
                # The terminal is the progress line's, and git would run what the directory's configuration names.
                settings=wandb.Settings(console="off", silent=True, disable_git=True),
            )
        except wandb.Error as error:
            message = " ".join(str(error).split())
            raise GenelabError(f"`logger='wandb'`: {message} (WANDB_MODE=offline needs no account)") from error
        self._step = 0
        self._scalars: dict[str, float] = {}

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Keep the number until its step is complete."""
        if global_step != self._step:
            self._flush()
        self._step = global_step
        self._scalars[tag] = float(scalar_value)

    def close(self) -> None:
        """Send the rest, and say whether the run ended by an error."""
        self._flush()
        self._run.finish(exit_code=int(sys.exc_info()[0] is not None))

    def _flush(self) -> None:
        if self._scalars:
            self._run.log(self._scalars, step=self._step)
        self._scalars = {}


class TensorboardWriter:
    """Logs to an event file in the run directory."""

    def __init__(self, path: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._path = path
        self._hook, threading.excepthook = threading.excepthook, self._on_thread_error
        with self._file():
            self._writer: Any = SummaryWriter(log_dir=str(path), flush_secs=10)

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Write the number, sooner or later."""
        with self._file():
            self._writer.add_scalar(tag, scalar_value, global_step)

    def close(self) -> None:
        """Write the rest."""
        try:
            with self._file():
                self._writer.close()
        finally:
            threading.excepthook = self._hook

    def _on_thread_error(self, error: threading.ExceptHookArgs) -> None:
        """Its thread need not print what its next call raises."""
        if not type(error.thread).__module__.startswith("tensorboard"):
            self._hook(error)

    @contextmanager
    def _file(self) -> Iterator[None]:
        try:
            yield
        except (OSError, UnicodeError) as error:  # TensorBoard writes in a thread, and fails in a later call
            reason = getattr(error, "strerror", None) or error
            raise GenelabError(f"cannot log to {self._path}: {reason}") from error


def _earlier_id(path: Path) -> str | None:
    """The W&B id of the run in this directory, so that a resumed run goes on in the same place."""
    runs = [entry.name for entry in (path / "wandb").glob("*run-*-*")]
    return runs[0].rpartition("-")[2] if runs else None
