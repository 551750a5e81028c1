"""Options of `genelab train` that train in several processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from genelab.cli.command import add_options
from genelab.errors import UsageError

CHILD = ("-m", "genelab.cli.main", "train")
"""What follows `python` in the command line of a child."""
SEED_OPTIONS = ("seeds", "parallel", "launcher", "ray_address")
RANK_OPTIONS = ("gpus", "ranks", "num_envs_per_gpu", "nnodes", "node_rank", "rdzv_endpoint")


def launch_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that train in several processes."""
    options = (
        click.option("--seeds", metavar="1,2,3", help="Train once per seed, each in a process and a directory."),
        click.option("--parallel", type=click.IntRange(min=1), help="Seeds that train at a time [1]."),
        click.option("--launcher", type=click.Choice(["local", "ray"]), help="Where the seeds train [local]."),
        click.option("--ray-address", metavar="ADDRESS", help="Ray cluster [one of this machine]."),
        click.option("--gpus", type=click.IntRange(min=1), help="Spread the run over so many GPUs, with torchrun."),
        click.option("--ranks", type=click.IntRange(min=1), help="The same on the CPU: so many processes."),
        click.option("--num-envs-per-gpu", type=click.IntRange(min=1), help="--num-envs of each rank, not of all."),
        click.option("--nnodes", type=click.IntRange(min=1), help="Machines that take part, each with --gpus [1]."),
        click.option("--node-rank", type=click.IntRange(min=0), help="Which of the machines this is."),
        click.option("--rdzv-endpoint", metavar="HOST:PORT", help="Where the machines meet."),
    )
    return add_options(function, *options)


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options of `genelab train` that do not go together."""
    given = {name for name, value in options.items() if value is not None}
    if {"gpus", "ranks"} <= given:
        raise UsageError("--gpus and --ranks exclude each other: pass one of them")
    if {"num_envs", "num_envs_per_gpu"} <= given:
        raise UsageError("--num-envs is the sum of all ranks, --num-envs-per-gpu of each: pass one of them")
    if "seeds" in given and given & {"seed", "resume"}:
        raise UsageError("--seeds starts a new run for each seed: neither --seed nor --resume goes with it")
    if "resume" in given and given & {"gpus", "ranks"}:
        raise UsageError("--resume goes on in one process: start from the weights with --checkpoint instead")
    if "ray_address" in given and options["launcher"] != "ray":
        raise UsageError("--ray-address goes with --launcher ray")
    for names, needed in ((SEED_OPTIONS, ("seeds",)), (RANK_OPTIONS, ("gpus", "ranks"))):
        for name in names:
            if name in given and not given & set(needed):
                flags = " or ".join(f"--{flag}" for flag in needed)
                raise UsageError(f"--{name.replace('_', '-')} goes with {flags}")
