"""`genelab sweep`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genelab.cli.command import (
    SEED,
    TaskCommand,
    echo,
    say,
    shortcut_overrides,
    show,
    simulation_options,
    task_argument,
    with_dashes,
)
from genelab.cli.launch import CHILD
from genelab.config import TASKS, as_words

if TYPE_CHECKING:
    from rich.table import Table

    from genelab.rl.sweep.search import SweepResult

_TRIALS = 32
_GOALS = ["return", "success", "length", "iterations", "steps", "seconds"]
_SETTINGS = (
    "objective",
    "target",
    "sampler",
    "prune",
    "num_envs",
    "max_iterations",
    "seed",
    "eval_every",
    "eval_episodes",
    "eval_num_envs",
    "eval_seed",
)
_SETTLED = ("trials", "parallel", "launcher", "ray_address", "resume", "quiet", "task", "overrides")
"""Options that a resumed sweep may be given."""


class SweepCommand(TaskCommand):
    """A command whose `--param PATH=RANGE` are no overrides."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words, joined = list(args), []
        while words:
            word = words.pop(0)
            joined.append(f"{word}={words.pop(0)}" if with_dashes([word]) == ["--param"] and words else word)
        return super().parse_args(ctx, joined)


@click.command("sweep", cls=SweepCommand)
@task_argument
@click.option(
    "--param",
    metavar="PATH=RANGE",
    multiple=True,
    help="A setting of env or agent to search, and its range: log(a,b), uniform(a,b), int(a,b) or choice(x,y,…); in "
    "quotes, for the shell. Give one per setting.",
)
@click.option("--trials", type=click.IntRange(min=1), help=f"Trainings in all [{_TRIALS}].")
@click.option(
    "--objective",
    type=click.Choice(_GOALS),
    default="return",
    help="What to look for: the last evaluation's mean return, success rate or episode length, the more the better; "
    "or the fewest iterations, control steps or seconds until an evaluation's mean return is --target [return].",
)
@click.option("--target", type=float, help="The return of a race, for iterations, steps and seconds.")
@click.option("--sampler", type=click.Choice(["tpe", "random"]), default="tpe", help="What chooses settings [tpe].")
@click.option(
    "--prune/--no-prune",
    default=True,
    help="Stop a training whose evaluations are worse than half of the others' were after as many steps [prune].",
)
@click.option("--num-envs", type=click.IntRange(min=1), help="Environments of each training.")
@click.option(
    "--max-iterations", type=click.IntRange(min=1), help="Budget of each training, as its RL library counts it."
)
@click.option("--seed", type=SEED, help="Seed of every training, and of the sampler [the task's].")
@click.option("--eval-every", metavar="K", type=click.IntRange(min=1), help="Evaluate every K iterations [ten times].")
@click.option("--eval-episodes", type=click.IntRange(min=1), default=10, help="Episodes per evaluation [10].")
@click.option("--eval-num-envs", type=click.IntRange(min=1), help="Environments of the evaluation [one per episode].")
@click.option("--eval-seed", type=SEED, default=0, help="Seed of the evaluation [0].")
@click.option("--parallel", type=click.IntRange(min=1), default=1, help="Trainings at a time [1].")
@click.option("--launcher", type=click.Choice(["local", "ray"]), default="local", help="Where they train [local].")
@click.option("--ray-address", metavar="ADDRESS", help="Ray cluster [one of this machine].")
@click.option(
    "--log-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Directory of the study and its trainings [logs/sweep/<task>/<time>].",
)
@click.option(
    "--resume",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Go on with the sweep in this directory; trials that were killed are tried again.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress, only the result.")
@partial(simulation_options, viewer=False)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    task: str,
    overrides: Mapping[str, Any],
    param: Sequence[str],
    trials: int | None,
    launcher: str,
    ray_address: str | None,
    parallel: int,
    log_dir: Path | None,
    resume: Path | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Search for settings with which TASK is learned better.

    Each trial is a training with other settings, in a process of its own. The study is a file, study.db, in the sweep's
    directory: a sweep that was interrupted goes on with --resume. `genelab report DIR` draws what it found.
    """
    if ray_address is not None and launcher != "ray":
        raise click.UsageError("--ray-address goes with --launcher ray")
    settings = {name: options.pop(name) for name in _SETTINGS}
    changes = {**shortcut_overrides(options), **overrides}
    if resume is not None:
        given = [name for name in ctx.params if name not in _SETTLED and _given(ctx, name)]
        if given or changes:
            raise click.UsageError(
                "--resume goes on with the sweep's own settings: only --trials, --parallel, --launcher, --ray-address "
                "and --quiet go with it"
            )
    from genelab.rl.sweep.search import Where, resume_sweep, sweep_task

    words = [*CHILD, task, *_imports()]
    where = Where(words=words, parallel=parallel, ray=launcher == "ray", ray_address=ray_address)
    notify = (lambda message: None) if quiet else say
    if resume is not None:
        result = resume_sweep(resume, task=task, trials=trials, where=where, notify=notify)
    else:
        result = sweep_task(
            task,
            param,
            where=where,
            trials=trials or _TRIALS,
            overrides=changes,
            log_dir=log_dir,
            notify=notify,
            **settings,
        )
    _print(task, result)
    ctx.exit(130 if result.status == "interrupted" else 0 if result.best is not None else 1)


def _print(task: str, result: SweepResult) -> None:

    from genelab.rl.sweep.objective import told

    show(_table(result))
    goal, best, own = result.settings.goal, result.best, result.own
    echo(f"objective  {goal}")
    if best is None:
        echo("best       none: no trial was completed" + (" within its budget" if goal.is_race else ""))
    else:
        echo(f"best       {told(best.value)}, trial {best.number}")
    if own is not None:
        echo(f"task's own {told(own.value)}, trial {own.number}*")
    echo(f"sweep      {result.path}")
    command = shlex.join(["genelab", "sweep", task, *_imports()])
    where = shlex.quote(str(result.path))
    if result.status == "interrupted":
        echo(f"go on with: {command} --resume {where}")
    elif best is not None and best is not own:
        words = [f"--{word}" for word in as_words(best.params)]
        echo(f"try it with other seeds: genelab train {task} --seeds 11,12,13 {shlex.join(words)}")
    echo(f"look at it: genelab report {where}")


def _table(result: SweepResult) -> Table:
    from rich.table import Table

    from genelab.rl.sweep.objective import told

    paths = [param.partition("=")[0] for param in result.settings.params]
    table = Table("trial", "state", "objective", *(path.rpartition(".")[2] for path in paths), "time")
    for trial in result.trials:
        values = [_short(trial.params.get(path, "")) for path in paths]
        time = "" if trial.seconds is None else f"{trial.seconds:.0f} s"
        table.add_row(f"{trial.number}{'*' * trial.is_own}", trial.state, told(trial.value), *values, time)
    return table


def _short(value: float | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _imports() -> list[str]:
    return [f"--import={module}" for module in TASKS.imported]


def _given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
