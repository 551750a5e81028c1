"""Which of the processes of a training this one is, and what a rank that does not lead leaves to rank 0."""

from __future__ import annotations

import datetime
import functools
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed

from genelab.errors import GenelabError, UsageError
from genelab.rl.backends.base import Backend
from genelab.rl.monitor import TrainingInterrupted, TrainMonitor
from genelab.rl.run import RunDirectory, Status

TIMEOUT = datetime.timedelta(hours=1)
"""How long ranks wait for each other; rank 0 may have an evaluation to do."""
STORE = "GENELAB_STORE_FILE"
"""Environment variable that names the file by which the ranks of one machine find each other."""


def torchrun_number(name: str) -> int:
    """Return a number that torchrun puts into the environment of a rank."""
    text = os.environ.get(name, "")
    if not re.fullmatch("[0-9]{1,9}", text):
        given = f"{name} is {text!r}" if text else f"there is no {name}"
        raise UsageError(f"TORCHELASTIC_RUN_ID is set, as torchrun does, but {given}: unset TORCHELASTIC_RUN_ID")
    return int(text)


@dataclass(kw_only=True)
class Rank:
    """Which of the processes of a training this one is."""

    index: int = 0
    world_size: int = 1
    stop_requested: bool = False
    """This rank was asked to stop; all do when one was."""

    @classmethod
    @functools.cache
    def current(cls) -> Rank:
        """Return this process, by what torchrun says; alone without it."""
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            return cls()
        return cls(index=torchrun_number("RANK"), world_size=torchrun_number("WORLD_SIZE"))

    @property
    def leads(self) -> bool:
        """This rank writes and speaks."""
        return self.index == 0

    @property
    def alone(self) -> bool:
        """There are no others."""
        return self.world_size == 1

    def seed(self, base: int) -> int:
        """What this rank draws its random numbers from: the run's seed for rank 0, one of its own for each other.

        Theirs have 63 bits, the first of them 1, so that they are no other run's seed, nor a rank's of another run.
        """
        if self.leads:
            return base
        drawn = np.random.SeedSequence(base, spawn_key=(self.index,)).generate_state(1, np.uint64)[0]
        return int(drawn) >> 2 | 1 << 62

    @contextmanager
    def process_group(self, device: torch.device) -> Iterator[None]:
        """Connect the ranks. After an error the group is left as it is: to end it would wait for who is gone."""
        if self.alone:
            yield
            return
        backend = "nccl" if device.type == "cuda" else "gloo"
        store = os.environ.get(STORE)
        distributed.init_process_group(
            backend,
            init_method="env://" if store is None else f"file://{store}",
            rank=self.index,
            world_size=self.world_size,
            timeout=TIMEOUT,
        )
        interruption = None
        try:
            yield
        except TrainingInterrupted as error:
            interruption = error
        except RuntimeError as error:
            if "gloo" not in str(error) and not isinstance(error, distributed.DistError):
                raise
            raise GenelabError(f"rank {self.index} has lost the others") from error
        distributed.barrier()
        distributed.destroy_process_group()
        if interruption is not None:
            raise interruption

    def any_stop_requested(self, device: torch.device) -> bool:
        """Whether any rank was asked to stop: the same answer on all, so that all stop after the same iteration."""
        flag = torch.tensor(int(self.stop_requested), device=device)
        distributed.all_reduce(flag, op=distributed.ReduceOp.MAX)
        return bool(flag)

    def check_equal(self, tensors: Iterable[Tensor]) -> None:
        """Make sure that all ranks have the same weights."""
        if self.alone:
            return
        digest = hashlib.sha256(b"".join(tensor.detach().cpu().numpy().tobytes() for tensor in tensors)).hexdigest()
        digests: list[Any] = [None] * self.world_size
        distributed.all_gather_object(digests, digest)
        if len(set(digests)) > 1:
            raise GenelabError(f"the ranks ended with different weights: {digests}")


def check_backend(backend: Backend[Any], task_id: str) -> None:
    """Refuse a library that cannot do it."""
    if not backend.distributed:
        raise UsageError(f"{backend.name}, which trains {task_id}, does not train on many devices: start it on one")


def open_run(path: Path) -> RunDirectory:
    """The directory of a new run, for this rank."""
    if not Rank.current().leads:
        return FollowerRun(path)
    run = RunDirectory(path)
    run.check_free()
    return run


class FollowerRun(RunDirectory):
    """The run directory for a rank that does not lead: it leaves everything to rank 0."""

    def check_free(self) -> None:
        pass

    @contextmanager
    def owned(self) -> Iterator[None]:
        yield

    def create(self) -> None:
        pass

    def create_numbered(self) -> None:
        pass

    def write_params(self, env: Any, agent: Any) -> None:
        pass

    def start(self, **facts: Any) -> None:
        pass

    def finish(self, status: Status, **facts: Any) -> None:
        pass


class FollowerMonitor(TrainMonitor):
    """The monitor for a rank that does not lead: it counts and stops, but saves nothing."""

    def save(self, stem: str) -> Path:
        self.last_checkpoint = self.path / f"{stem}{self.suffix}"
        return self.last_checkpoint
