"""`genelab play`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genelab.cli.command import (
    CHECKPOINT_HELP,
    SEED,
    InputFile,
    TaskCommand,
    best_option,
    checkpoint_words,
    echo,
    say,
    shortcut_overrides,
    simulation_options,
    task_argument,
)
from genelab.cli.film import film_from, play_film_options
from genelab.cli.profiling import profile_from, profile_options
from genelab.cli.progress import progress_bar
from genelab.cli.viewer import viewer_from, viewer_options

if TYPE_CHECKING:
    from genelab.rl import PlayResult
    from genelab.viewer import FilmCfg


@click.command(
    "play",
    cls=TaskCommand,
    help=f"Run TASK with zero or random actions or a trained policy.\n\n{CHECKPOINT_HELP}",
)
@task_argument
@click.option(
    "--agent",
    type=click.Choice(["zero", "random", "trained"]),
    help="Who acts: zero actions (default without CKPT), random ones in [-1, 1], or the policy CKPT (default with "
    "it) [pretrained, if there is one].",
)
@checkpoint_words(required=False)
@best_option
@click.option(
    "--replay",
    metavar="DUMP",
    type=InputFile(),
    help="Play what led to a NaN, from the dump that a run left.",
)
@click.option("--num-envs", type=click.IntRange(min=1), help="How many environments run side by side.")
@click.option(
    "--steps",
    type=click.IntRange(min=0),
    help="Length of a headless run in control steps [240]; a viewer ignores it. 0: a showcase goes on for ever.",
)
@click.option("--max-steps", type=click.IntRange(min=0), help="Stop after this many control steps, viewer or not.")
@click.option("--seed", type=SEED, help="Seed of all random numbers.")
@play_film_options
@simulation_options
@viewer_options
@profile_options
def command(
    task: str,
    overrides: Mapping[str, Any],
    agent: Any,
    checkpoint: str | None,
    best: bool,
    replay: Path | None,
    num_envs: int | None,
    max_steps: int | None,
    **options: Any,
) -> None:
    viewer = viewer_from(options)
    changes = {**shortcut_overrides(options), **overrides}
    from genelab.rl import play_task, replay_dump

    film = film_from(options)
    if replay is not None:
        given = {"--agent": agent, "--checkpoint": checkpoint, "--best": best or None, "--num-envs": num_envs}
        for option in (name for name, value in {**given, "--prof": profile_from(options)}.items() if value is not None):
            raise click.UsageError(f"--replay does what was done in the run: it goes without {option}")
        result = replay_dump(
            replay, task, echo, max_steps=max_steps, film=film, viewer=viewer, overrides=changes, notify=say
        )
        _print_film(film, result)
        return
    with progress_bar() as show:
        result = play_task(
            task,
            agent=agent,
            checkpoint=checkpoint,
            best=best,
            num_envs=num_envs,
            max_steps=max_steps,
            profile=profile_from(options),
            film=film,
            viewer=viewer,
            overrides=changes,
            notify=say,
            on_step=partial(show, "steps"),
        )
    _print(task, result)
    _print_film(film, result)
    if result.traces is not None:
        echo(f"traces in {result.traces}")


def _print_film(film: FilmCfg | None, result: PlayResult) -> None:
    if film is not None:
        echo(f"film in {film.path}: {result.frames} picture{'' if result.frames == 1 else 's'}")


def _print(task: str, result: PlayResult) -> None:
    rate = result.steps * result.num_envs / result.seconds if result.seconds > 0 and result.steps else 0.0
    echo(
        f"{task}: {result.steps} steps × {result.num_envs} envs on {result.engine}, seed {result.seed}, "
        f"{result.seconds:.2f} s ({rate:,.0f} env steps/s)"
    )
    if result.return_mean is not None:
        many = "" if result.episodes == 1 else "s"
        echo(
            f"{result.episodes} episode{many} ended: return {result.return_mean:.3f}, "
            f"length {result.length_mean:.1f} steps"
        )
