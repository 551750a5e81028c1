"""The options of torch.profiler, the same for play and train."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genelab.cli.command import Function, add_options

if TYPE_CHECKING:
    from genelab.rl import ProfileCfg


def profile_options(function: Function) -> Function:
    """`--prof` and what goes with it."""
    options = (
        click.option("--prof", is_flag=True, help="Trace the run with torch.profiler."),
        click.option("--prof-out", metavar="DIR", type=click.Path(path_type=Path), help="Where traces go [logs/prof]."),
        click.option("--prof-wait", type=click.IntRange(min=0), help="Steps before a trace [5]."),
        click.option("--prof-warmup", type=click.IntRange(min=0), help="Steps traced and thrown away [5]."),
        click.option("--prof-active", type=click.IntRange(min=1), help="Steps in a trace [20]."),
        click.option("--prof-repeat", type=click.IntRange(min=1), help="Number of traces [1]."),
    )
    return add_options(function, *options)


def profile_from(options: Mapping[str, Any]) -> ProfileCfg | None:
    """What the options ask for; None if they ask for nothing."""
    from genelab.rl import ProfileCfg

    names = ("prof_out", "prof_wait", "prof_warmup", "prof_active", "prof_repeat")
    given = {name.removeprefix("prof_"): options[name] for name in names if options[name] is not None}
    return ProfileCfg(**given) if options["prof"] or given else None
