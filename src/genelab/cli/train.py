"""`genelab train`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genelab.cli.command import TaskCommand, import_modules, say, shortcut_overrides, simulation_options, task_argument
from genelab.cli.profiling import profile_from, profile_options
from genelab.cli.progress import train_progress
from genelab.config import Override

if TYPE_CHECKING:
    from genelab.rl import TrainResult


@click.command("train", cls=TaskCommand)
@task_argument
@click.option("--num-envs", type=click.IntRange(min=1), help="How many environments run side by side.")
@click.option(
    "--max-iterations",
    type=click.IntRange(min=1),
    help="Budget: learning iterations for rsl_rl, environment timesteps for the other libraries.",
)
@click.option("--steps", type=click.IntRange(min=1), help="The same as --max-iterations.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of networks, exploration and environment.")
@click.option(
    "--log-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Run directory [logs/<backend>/<task>/<time>].",
)
@click.option("--checkpoint", metavar="FILE", type=click.Path(path_type=Path), help="Start from these weights.")
@click.option(
    "--resume",
    metavar="RUN_DIR",
    type=click.Path(path_type=Path),
    help="Go on with an interrupted run, with its own config.",
)
@click.option("--eval-every", type=click.IntRange(min=1), help="Evaluate every K iterations and keep the best model.")
@click.option("--eval-episodes", type=click.IntRange(min=1), default=10, help="Episodes per evaluation [10].")
@click.option("--eval-num-envs", type=click.IntRange(min=1), help="Environments of the evaluation [as in training].")
@click.option("--eval-seed", type=click.IntRange(min=0), default=0, help="Seed of the evaluation [0].")
@click.option("-q", "--quiet", is_flag=True, help="No progress, only the result.")
@simulation_options
@profile_options
def command(
    task: str,
    imports: Sequence[str],
    overrides: Sequence[Override],
    num_envs: int | None,
    max_iterations: int | None,
    steps: int | None,
    seed: int | None,
    log_dir: Path | None,
    checkpoint: Path | None,
    resume: Path | None,
    eval_every: int | None,
    eval_episodes: int,
    eval_num_envs: int | None,
    eval_seed: int,
    quiet: bool,
    **options: Any,
) -> None:
    """Train TASK with the RL library that its agent config asks for."""
    if max_iterations is not None and steps is not None:
        raise click.UsageError("--steps is another name for --max-iterations: pass one of them")
    changes = [*shortcut_overrides(options), *overrides]
    budget = steps if max_iterations is None else max_iterations
    if resume is not None and (changes or num_envs or seed is not None or log_dir or checkpoint):
        raise click.UsageError(
            "--resume goes on with the run's own config: only --max-iterations and --eval-* go with it"
        )
    import_modules(imports)
    from genelab.rl import EvalOptions, resume_task, train_task

    evaluation = None
    if eval_every is not None:
        evaluation = EvalOptions(every=eval_every, episodes=eval_episodes, num_envs=eval_num_envs, seed=eval_seed)
    common: dict[str, Any] = {
        "max_iterations": budget,
        "evaluation": evaluation,
        "profile": profile_from(options),
        "notify": say,
    }
    with train_progress(quiet=quiet) as report:
        if resume is not None:
            result = resume_task(resume, task_id=task, report=report, **common)
        else:
            result = train_task(
                task,
                overrides=changes,
                num_envs=num_envs,
                seed=seed,
                log_dir=log_dir,
                checkpoint=checkpoint,
                report=report,
                **common,
            )
    _print(task, result)


def _print(task: str, result: TrainResult) -> None:
    rate = result.env_steps / result.seconds if result.seconds else 0.0
    click.echo(f"{result.status}: {result.env_steps:,} env steps in {result.seconds:.1f} s ({rate:,.0f} per second)")
    click.echo(f"run        {result.path}")
    click.echo(f"checkpoint {result.checkpoint}")
    quoted = shlex.quote(str(result.path if result.status == "interrupted" else result.checkpoint))
    if result.status == "interrupted":
        click.echo(f"go on with: genelab train {task} --resume {quoted}")
        raise click.exceptions.Exit(130)
    click.echo(f"look at it: genelab play {task} --checkpoint {quoted}")
