"""One training on many devices: `genelab train TASK --gpus 4`, or `--ranks 4` on the CPU.

The command starts itself again under torchrun, once per device. Each rank has environments of its own; the RL library
averages the gradients, so that all have the same weights. Rank 0 leads: it alone writes and speaks.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed

from genelab.config import Override
from genelab.errors import GenelabError, UsageError
from genelab.rl.backends.base import Backend, select_backend
from genelab.rl.launch import Process, Stop, available_threads, die_with_parent, load_cfg, share, torchrun_command
from genelab.rl.monitor import TrainingInterrupted, TrainMonitor
from genelab.rl.run import RunDirectory, Status

TIMEOUT = datetime.timedelta(hours=1)
"""How long ranks wait for each other; rank 0 may have an evaluation to do."""


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
        """This process, by what torchrun says; alone without it."""
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            return cls()
        return cls(index=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))

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
        distributed.init_process_group(backend, rank=self.index, world_size=self.world_size, timeout=TIMEOUT)
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


def enter_rank() -> Rank:
    """Called first in a process that may be a rank: it dies with torchrun, and sees its own GPU alone."""
    rank = Rank.current()
    if "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()
        visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        local = int(os.environ["LOCAL_RANK"])
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[local] if local < len(visible) else str(local)
    return rank


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


@dataclass(kw_only=True)
class RankOptions:
    """How to spread a training."""

    gpus: int | None = None
    """Ranks on this machine, each with a GPU."""
    ranks: int | None = None
    """Ranks on this machine, on the CPU."""
    num_envs: int | None = None
    """Environments of all ranks together; None: as the task says."""
    num_envs_per_gpu: int | None = None
    """Environments of each rank."""
    nnodes: int = 1
    """Machines that take part, each with so many ranks."""
    node_rank: int | None = None
    """Which of the machines this is."""
    rdzv_endpoint: str | None = None
    """HOST:PORT of the first machine, where all meet."""

    @property
    def here(self) -> int:
        """Ranks on this machine."""
        return self.gpus or self.ranks or 0


def train_ranks(
    task: str,
    options: RankOptions,
    *,
    words: Sequence[str],
    overrides: Sequence[Override] = (),
    log_dir: Path | None = None,
) -> int:
    """Run the training under torchrun and return its exit code.

    `words` is the command line of a rank without its directory, `overrides` the part of it that changes the config.
    """
    task_id, cfg = load_cfg(task, overrides)
    backend = select_backend(cfg.agent)
    check_backend(backend, task_id)
    _check_devices(options, cfg)
    path = log_dir or RunDirectory.default_path(backend.name, task_id)
    if options.nnodes == 1:
        open_run(path)
    changes = {
        "env.scene.num_envs": _envs_per_rank(options, cfg),
        "env.simulation.threads": share(cfg.env.simulation.threads or available_threads(), options.here),
        "env.simulation.gpu": cfg.env.simulation.gpu or options.gpus is not None,
    }
    words = [*words, *(f"--{name}={value}" for name, value in changes.items()), "--log-dir", str(path)]
    stop, threads = Stop(), str(share(available_threads(), options.here))
    with stop.on_signals():
        job = Process(torchrun_command(_torchrun(options), words), env={"OMP_NUM_THREADS": threads})
        while (code := job.poll()) is None:
            stop.apply([job])
            time.sleep(0.1)
    if stop.requested:
        return 130
    if code != 0:
        _say_that_it_failed(RunDirectory(path))
        raise GenelabError(f"a rank failed, and all were ended; what it said is above, the run is in {path}")
    return 0


def _say_that_it_failed(run: RunDirectory) -> None:
    """Rank 0 had perhaps no time to."""
    if (run.path / "run.json").exists() and run.read().get("ended_at") is None:
        run.finish("failed")


def _check_devices(options: RankOptions, cfg: Any) -> None:
    found = torch.cuda.device_count()
    if options.gpus is not None and found == 0:
        raise UsageError(f"--gpus {options.gpus}: no CUDA device was found; --ranks {options.gpus} runs on the CPU")
    if options.gpus is not None and found < options.gpus:
        raise UsageError(f"--gpus {options.gpus}: this machine has {found}")
    if options.ranks is not None and cfg.env.simulation.gpu:
        raise UsageError(f"--ranks is for the CPU: use --gpus {options.ranks}, or no --gpu")


def _envs_per_rank(options: RankOptions, cfg: Any) -> int:
    if options.num_envs_per_gpu is not None:
        return options.num_envs_per_gpu
    total, ranks = options.num_envs or cfg.env.scene.num_envs, options.here * options.nnodes
    if total % ranks:
        number = share(total, ranks)
        raise UsageError(f"--num-envs: {total} does not divide by {ranks} ranks; --num-envs-per-gpu {number} would do")
    return total // ranks


def _torchrun(options: RankOptions) -> list[str]:
    words = ["--nproc-per-node", str(options.here)]
    if options.nnodes == 1:
        return [*words, "--standalone"]
    if options.rdzv_endpoint is None:
        raise UsageError("--nnodes needs --rdzv-endpoint HOST:PORT, the first machine and a free port of it")
    words += ["--nnodes", str(options.nnodes), "--rdzv-endpoint", options.rdzv_endpoint]
    if options.node_rank is None:
        return [*words, "--rdzv-backend", "c10d", "--rdzv-id", "genelab"]
    return [*words, "--node-rank", str(options.node_rank)]
