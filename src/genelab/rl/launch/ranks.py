"""One training on many devices: `genelab train TASK --gpus 4`, or `--ranks 4` on the CPU.

The command starts itself again under torchrun, once per device. Each rank has environments of its own; the RL library
averages the gradients, so that all have the same weights. Rank 0 leads: it alone writes and speaks.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from genelab.errors import GenelabError, UsageError
from genelab.rl.backends.base import select_backend
from genelab.rl.launch.process import Process, Stop, available_threads, die_with_parent, share, torchrun_command
from genelab.rl.launch.task import load_cfg
from genelab.rl.rank import STORE, Rank, check_backend, open_run, torchrun_number
from genelab.rl.run import RunDirectory


def enter_rank() -> Rank:
    """Called first in a process that may be a rank: it dies with torchrun, and sees its own GPU alone."""
    rank = Rank.current()
    if "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()
        visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        local = torchrun_number("LOCAL_RANK")
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[local] if local < len(visible) else str(local)
    return rank


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
    overrides: Mapping[str, Any] = {},
    log_dir: Path | None = None,
) -> int:
    """Run the training under torchrun and return its exit code.

    `words` is what follows `python` in the command line of a rank, `-m` and a module first, without its directory;
    `overrides` is the part of it that changes the config.
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
    stop, env = Stop(), {"OMP_NUM_THREADS": str(share(available_threads(), options.here))}
    with stop.on_signals(), tempfile.TemporaryDirectory() as folder:
        if options.nnodes == 1:
            env |= _without_network(Path(folder))
        job = Process(torchrun_command(_torchrun(options, Path(folder)), words), env=env)
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
        raise UsageError(f"`gpus={options.gpus}`: no CUDA device was found; `ranks={options.gpus}` runs on the CPU")
    if options.gpus is not None and found < options.gpus:
        raise UsageError(f"`gpus={options.gpus}`: this machine has {found}")
    if options.ranks is not None and cfg.env.simulation.gpu:
        raise UsageError(f"`ranks` is for the CPU: use `gpus={options.ranks}`, or no `env.simulation.gpu`")


def _envs_per_rank(options: RankOptions, cfg: Any) -> int:
    if options.num_envs_per_gpu is not None:
        return options.num_envs_per_gpu
    total, ranks = options.num_envs or cfg.env.scene.num_envs, options.here * options.nnodes
    if total % ranks:
        number = share(total, ranks)
        raise UsageError(f"`num_envs`: {total} does not divide by {ranks} ranks; `num_envs_per_gpu={number}` would do")
    return total // ranks


def _without_network(folder: Path) -> dict[str, str]:
    """Return the environment in which ranks of one machine find each other by files.

    The stores of `torchrun --standalone` and of torch listen on all interfaces, and serve whoever connects.
    """
    loopback = {} if "GLOO_SOCKET_IFNAME" in os.environ or sys.platform != "linux" else {"GLOO_SOCKET_IFNAME": "lo"}
    return {STORE: str(folder / "ranks"), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **loopback}


def _torchrun(options: RankOptions, folder: Path) -> list[str]:
    words = ["--nproc-per-node", str(options.here)]
    if options.nnodes == 1:
        words += ["--rdzv-backend", "c10d", "--rdzv-conf", "store_type=file", "--rdzv-id", "genelab"]
        return [*words, "--rdzv-endpoint", str(folder / "torchrun")]
    if options.rdzv_endpoint is None:
        raise UsageError("`nnodes` needs `rdzv_endpoint=HOST:PORT`, the first machine and a free port of it")
    words += ["--nnodes", str(options.nnodes), "--rdzv-endpoint", options.rdzv_endpoint]
    if options.node_rank is None:
        return [*words, "--rdzv-backend", "c10d", "--rdzv-id", "genelab"]
    return [*words, "--node-rank", str(options.node_rank)]
