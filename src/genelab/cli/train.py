"""`genelab train`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
)
from genelab.cli.film import train_film_options, training_film_from
from genelab.cli.launch import CHILD, RANK_OPTIONS, SEED_OPTIONS, check_options, launch_options
from genelab.cli.profiling import profile_from, profile_options
from genelab.cli.progress import seeds_progress, seeds_table, train_progress
from genelab.cli.viewer import viewer_from, viewer_options
from genelab.config import PUBLISHED, TASKS, as_words

if TYPE_CHECKING:
    from genelab.rl import TrainResult
    from genelab.rl.loggers import LoggerName

_OF_TRAINING = (
    "env.scene.num_envs",
    "env.seed",
    "env.auto_reset",
    "env.simulation.gpu",
    "env.simulation.threads",
    "env.simulation.vis",
)
"""What a run may be given that its policy does not depend on."""
_SHORT = {"env.simulation.engine": "engine", "env.simulation.dt": "dt"}
"""Overrides that have an option of their own in every command."""


@click.command("train", cls=TaskCommand)
@task_argument
@click.option("--num-envs", type=click.IntRange(min=1), help="How many environments run side by side.")
@click.option(
    "--max-iterations",
    type=click.IntRange(min=1),
    help="Budget, as the RL library counts it: learning iterations or environment timesteps.",
)
@click.option("--steps", type=click.IntRange(min=1), help="The same as --max-iterations.")
@click.option(
    "--published",
    is_flag=True,
    help="Train TASK@published: no training aids, published physics step, budget and number of environments.",
)
@click.option("--seed", type=SEED, help="Seed of networks, exploration and environment.")
@click.option(
    "--log-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Run directory [logs/<backend>/<task>/<time>].",
)
@click.option(
    "--checkpoint", metavar="CKPT", help="Start from these weights: a file, a run directory, latest or an address."
)
@click.option(
    "--resume",
    metavar="RUN_DIR",
    type=click.Path(path_type=Path),
    help="Go on with an interrupted run, with its own config.",
)
@click.option(
    "--logger",
    type=click.Choice(["tensorboard", "wandb"]),
    help="Where numbers are logged [tensorboard; where a resumed run did].",
)
@click.option(
    "--eval-every",
    metavar="K",
    type=click.IntRange(min=1),
    help="Evaluate every K iterations (a rollout and what is learned from it) and after the last; keep the best model.",
)
@click.option(
    "--final-eval/--no-final-eval",
    default=True,
    help="Evaluate the final policy and print its return; not with --prof or on several devices [on].",
)
@click.option("--eval-episodes", type=click.IntRange(min=1), default=10, help="Episodes per evaluation [10].")
@click.option(
    "--eval-num-envs",
    type=click.IntRange(min=1),
    help="Environments of the evaluation [as in training, at most one per episode].",
)
@click.option("--eval-seed", type=SEED, default=0, help="Seed of the evaluation [0].")
@click.option(
    "--nan-guard/--no-nan-guard",
    default=True,
    help="Look at the numbers of every step, and stop at the first NaN with a dump that plays [on].",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress, only the result.")
@simulation_options
@viewer_options
@train_film_options
@launch_options
@profile_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    task: str,
    overrides: Mapping[str, Any],
    num_envs: int | None,
    max_iterations: int | None,
    steps: int | None,
    published: bool,
    seed: int | None,
    log_dir: Path | None,
    checkpoint: str | None,
    resume: Path | None,
    logger: LoggerName | None,
    eval_every: int | None,
    final_eval: bool,
    eval_episodes: int,
    eval_num_envs: int | None,
    eval_seed: int,
    nan_guard: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Train TASK with the RL library that its agent config asks for."""
    if published and not task.casefold().endswith(PUBLISHED):
        task = ctx.params["task"] = task + PUBLISHED
    if max_iterations is not None and steps is not None:
        raise click.UsageError("--steps is another name for --max-iterations: pass one of them")
    if not final_eval and eval_every is not None:
        raise click.UsageError("--eval-every evaluates the final policy, too: leave out --no-final-eval")
    if not final_eval and any(_given(ctx, name) for name in ("eval_episodes", "eval_num_envs", "eval_seed")):
        raise click.UsageError("--eval-episodes, --eval-num-envs and --eval-seed go without --no-final-eval")
    film = training_film_from(options)
    viewer = viewer_from(options)
    changes = {**shortcut_overrides(options), **overrides}
    if options["vis"] and (options["seeds"] or options["gpus"] or options["ranks"]):
        raise click.UsageError("--vis shows one training: it does not go with --seeds, --gpus and --ranks")
    budget = steps if max_iterations is None else max_iterations
    if resume is not None and (changes or num_envs or seed is not None or log_dir or checkpoint):
        raise click.UsageError(
            "--resume goes on with the run's own config: only --max-iterations, --logger, --eval-*, --video-* and "
            "--no-nan-guard go with it"
        )
    from genelab.rl.launch.ranks import enter_rank
    from genelab.rl.loggers import check_logger

    check_options(ctx.params)
    if logger is not None:
        check_logger(logger)
    rank = enter_rank()
    weights = None
    if checkpoint is not None:
        from genelab.rl.locate import find_checkpoint

        # Found once, by its absolute path: a child process has other runs before it, maybe another directory.
        weights = ctx.params["checkpoint"] = find_checkpoint(task, checkpoint).absolute()
    if options["seeds"] is not None:
        _train_seeds(ctx, changes)
    if options["gpus"] or options["ranks"]:
        _train_ranks(ctx, changes)
    from genelab.rl import EvalSettings, resume_task, train_task
    from genelab.rl.launch.children import tell_launcher

    profile = profile_from(options)
    evaluation = EvalSettings(episodes=eval_episodes, num_envs=eval_num_envs, seed=eval_seed, quiet=quiet)
    if eval_every is not None:
        evaluation = replace(evaluation, every=eval_every)
    else:  # what it finds is printed with the result
        evaluation = replace(evaluation, num_envs=eval_num_envs or eval_episodes, quiet=True)
    evaluates = eval_every is not None or (final_eval and profile is None and rank.alone)
    common: dict[str, Any] = {
        "max_iterations": budget,
        "evaluation": evaluation if evaluates else None,
        "film": film,
        "profile": profile,
        "nan_guard": nan_guard,
        "notify": say if rank.leads else lambda message: None,
    }
    with train_progress(quiet=quiet or not rank.leads) as report:
        report = tell_launcher(report) if rank.leads else report
        if resume is not None:
            result = resume_task(resume, task_id=task, logger=logger, report=report, **common)
        else:
            result = train_task(
                task,
                overrides=changes,
                num_envs=num_envs,
                seed=seed,
                log_dir=log_dir,
                checkpoint=weights,
                viewer=viewer,
                logger=logger or "tensorboard",
                report=report,
                **common,
            )
    if rank.leads:
        _print(task, result, resumable=rank.alone)


def _print(task: str, result: TrainResult, *, resumable: bool) -> None:
    rate = result.env_steps_here / result.seconds if result.seconds else 0.0
    unit = result.unit if result.spent != 1 else result.unit.removesuffix("s")
    here = f", {result.env_steps_here:,} of them now" if result.env_steps_here != result.env_steps else ""
    effort = f"{result.spent:,} {unit}, {result.env_steps:,} env steps{here} in {result.seconds:.1f} s"
    echo(f"{result.status}: {effort} ({rate:,.0f} env steps per second)")
    if result.final is not None:
        echo(f"final evaluation: {_evaluated(result.final)}")
    echo(f"run        {result.path}")
    echo(f"checkpoint {result.checkpoint}")
    if result.best is not None:
        echo(f"best       {result.best}")
    if result.traces:
        echo(f"traces     {result.traces[0].parent}")
    checkpoint = f"--checkpoint {shlex.quote(str(result.checkpoint))}"
    if result.status == "interrupted":
        go_on = f"--resume {shlex.quote(str(result.path))}" if resumable else checkpoint
        echo(f"go on with: {shlex.join(['genelab', 'train', task, *_imports()])} {go_on}")
        raise click.exceptions.Exit(130)
    world = "".join(f" {shlex.quote(word)}" for word in _world(task, result.overrides))
    echo(f"judge it:   genelab eval {task} {shlex.quote(str(result.checkpoint))}{world}")
    echo(f"look at it: genelab play {task} {checkpoint}{world}")


def _evaluated(found: Mapping[str, Any]) -> str:
    """The mean return with its 95 % interval, over how many episodes, and how many of them succeeded."""
    count, success, interval = found["episodes"], found["success_rate"], found["return_ci95"]
    spread = "" if interval is None else f" ± {(interval[1] - interval[0]) / 2:.2f}"
    text = f"return {found['return_mean']:.2f}{spread} ({count} episode{'' if count == 1 else 's'})"
    return text if success is None else f"{text}, success {success:.0%}"


def _world(task: str, overrides: Mapping[str, Any]) -> list[str]:
    """The words that make the world of a run again for its policy.

    What is for training only is left out, and so is the agent: the network is the checkpoint's.
    """
    from genelab.rl.world import world_of_run

    words = _imports()
    lasting = {path: value for path, value in overrides.items() if _lasts(path.replace("-", "_"))}
    fitting = world_of_run(task, lasting)[1]
    return words + [f"--{word}" for word in as_words({_SHORT.get(path, path): fitting[path] for path in fitting})]


def _imports() -> list[str]:
    return [f"--import={module}" for module in TASKS.imported]


def _lasts(path: str) -> bool:
    return path not in _OF_TRAINING and not path.startswith("agent.")


def _given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _words(ctx: click.Context, without: Sequence[str]) -> list[str]:
    """What follows `python` in the command line of another process: what the user gave, but for these options."""
    words = [*CHILD, ctx.params["task"], *_imports()]
    for param in ctx.command.params:
        if not isinstance(param, click.Option) or not param.expose_value or param.name in without:
            continue
        if _given(ctx, str(param.name)):
            flag, value = max(param.opts, key=len), ctx.params[str(param.name)]
            values = value if isinstance(value, tuple) else [value]
            if param.secondary_opts and not value:
                flag = max(param.secondary_opts, key=len)
            words += [flag] if param.is_flag else [f"{flag}={one}" for one in values]
    return words + [f"--{word}" for word in as_words(ctx.params["overrides"])]


def _train_ranks(ctx: click.Context, changes: Mapping[str, Any]) -> None:
    from genelab.rl.launch.ranks import RankOptions, train_ranks

    names = ("num_envs", *RANK_OPTIONS)
    options = RankOptions(**{name: ctx.params[name] for name in names if ctx.params[name] is not None})
    words = _words(ctx, without=("log_dir", *names))
    task, log_dir = ctx.params["task"], ctx.params["log_dir"]
    ctx.exit(train_ranks(task, options, words=words, overrides=changes, log_dir=log_dir))


def _train_seeds(ctx: click.Context, changes: Mapping[str, Any]) -> None:
    from genelab.rl.launch.seeds import parse_seeds, train_seeds

    options = ctx.params
    with seeds_progress(quiet=options["quiet"]) as report:
        runs = train_seeds(
            options["task"],
            parse_seeds(options["seeds"]),
            words=_words(ctx, without=("log_dir", *SEED_OPTIONS)),
            overrides=changes,
            log_dir=options["log_dir"],
            parallel=options["parallel"] or 1,
            ray=options["launcher"] == "ray",
            ray_address=options["ray_address"],
            report=report,
            notify=say,
        )

    show(seeds_table(runs))
    for run in runs:
        if run.state == "failed":
            echo(f"seed {run.seed} failed, exit code {run.exit_code}: {run.last_words} (see {run.log})")
    echo(f"runs       {runs[0].path.parent}")
    states = {run.state for run in runs}
    ctx.exit(1 if "failed" in states else 0 if states == {"completed"} else 130)
