"""`genelab benchmark runtime|startup|training|play` and `genelab benchmark compare`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genelab.cli.command import (
    SEED,
    Command,
    Function,
    InputFile,
    Registered,
    TaskCommand,
    add_options,
    best_option,
    checkpoint_words,
    echo,
    say,
    shortcut_overrides,
    show,
    simulation_options,
    task_argument,
)
from genelab.cli.film import BESIDE, benchmark_film_options, film_from
from genelab.cli.progress import train_progress
from genelab.rl.backends.registry import BACKENDS

if TYPE_CHECKING:
    from genelab.bench.compare import ComparedNumber, Comparison, Side
    from genelab.bench.formatters import Output
    from genelab.bench.scenario import Workload
    from genelab.bench.workflow import Workflow


def workflow_options(function: Function) -> Function:
    """The options of every workflow."""
    options = (
        click.option("--seed", type=SEED, help="Seed of all random numbers [drawn; in training the agent's]."),
        click.option(
            "--out", metavar="DIR", type=click.Path(path_type=Path), help="Where bundles go [logs/benchmark]."
        ),
        click.option(
            "--formatter",
            metavar="NAMES",
            default="schema",
            help="schema (the bundle), json (flat phases), summary (a table here), with commas between [schema].",
        ),
        partial(simulation_options, viewer=False),
    )
    return task_argument(add_options(function, *options))


def num_envs_option(default: int | None = None) -> Callable[[Function], Function]:
    """How many environments."""
    text = f"Environments side by side [{default or 'as the task says'}]."
    return click.option("--num-envs", type=click.IntRange(min=1), default=default, help=text)


def step_options(function: Function) -> Function:
    """How many steps."""
    options = (
        click.option("--num-steps", "--num-frames", type=click.IntRange(min=1), default=1000, help="Measured [1000]."),
        click.option("--warmup-steps", type=click.IntRange(min=0), default=50, help="Before them [50]."),
    )
    return add_options(function, *options)


class Library(Registered):
    """The name of an RL library, as the documents spell it; `-` is as good as `_`, as in every option."""

    def __init__(self) -> None:
        super().__init__(BACKENDS.names)

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        return str(choice).replace("-", "_")


def library_option(function: Function) -> Function:
    """Which RL library."""
    text = "RL library; other than the task's own, with its default settings [the task's own]."
    return click.option("--rl-library", type=Library(), help=text)(function)


@click.command("runtime", cls=TaskCommand)
@workflow_options
@num_envs_option()
@step_options
def runtime(num_steps: int, warmup_steps: int, **options: Any) -> None:
    """Measure how fast TASK steps with random actions: `env.step` alone, without policy and learning."""
    workload, output = _prepare(options)
    from genelab.bench import RuntimeBenchmark

    _run(RuntimeBenchmark(workload=workload, notify=say, num_steps=num_steps, warmup_steps=warmup_steps), output)


@click.command("startup", cls=TaskCommand)
@workflow_options
@num_envs_option()
@click.option("--top-n", type=click.IntRange(min=1), default=30, help="Functions to keep of each phase [30].")
@click.option(
    "--whitelist",
    metavar="FILE",
    type=InputFile(),
    help='Keep only these: {"env_creation": ["genelab.scene*:*"]}, patterns of module:function by phase.',
)
def startup(top_n: int, whitelist: Path | None, **options: Any) -> None:
    """Profile what happens until TASK has made its first step."""
    workload, output = _prepare(options)
    from genelab.bench import StartupBenchmark
    from genelab.bench.profiling import read_whitelist

    patterns = None if whitelist is None else read_whitelist(whitelist)
    _run(StartupBenchmark(workload=workload, notify=say, top_n=top_n, whitelist=patterns), output)


@click.command("training", cls=TaskCommand)
@workflow_options
@num_envs_option()
@library_option
@click.option("--max-iterations", type=click.IntRange(min=1), help="Learning iterations [as the agent says].")
@click.option("--ema-alpha", type=click.FloatRange(0, 1, min_open=True), default=0.1, help="Of smoothed curves [0.1].")
@click.option("--no-series", is_flag=True, help="Keep the ends of the curves only.")
@click.option("--check-success", is_flag=True, help="Stop when the success rate reaches the threshold.")
@click.option("--success-threshold", type=click.FloatRange(0, 1), default=0.3, help="[0.3]")
@click.option("--success-window", type=click.IntRange(min=1), default=20, help="Iterations it is taken over [20].")
@click.option("-q", "--quiet", is_flag=True, help="No progress, only the result.")
def training(
    max_iterations: int | None,
    ema_alpha: float,
    no_series: bool,
    check_success: bool,
    success_threshold: float,
    success_window: int,
    quiet: bool,
    **options: Any,
) -> None:
    """Measure how fast TASK trains: rollouts, updates, and what is learned meanwhile."""
    workload, output = _prepare(options)
    from genelab.bench import TrainingBenchmark

    with train_progress(quiet=quiet) as report:
        benchmark = TrainingBenchmark(
            workload=workload,
            notify=say,
            max_iterations=max_iterations,
            ema_alpha=ema_alpha,
            keep_series=not no_series,
            success_threshold=success_threshold if check_success else None,
            success_window=success_window,
            report=report,
        )
        _run(benchmark, output)


@click.command("play", cls=TaskCommand)
@workflow_options
@num_envs_option(64)
@step_options
@library_option
@checkpoint_words(required=False)
@best_option
@benchmark_film_options
def play(num_steps: int, warmup_steps: int, checkpoint: str | None, best: bool, **options: Any) -> None:
    """Measure how fast a trained policy acts in TASK, `env.step` included, and what it earns.

    CKPT is as for genelab eval, or the task's newest run.
    """
    workload, output = _prepare(options)
    from genelab.bench import PlayBenchmark

    if options["video"] == BESIDE:
        options["video"] = output.directory
    benchmark = PlayBenchmark(
        workload=workload,
        notify=say,
        checkpoint=checkpoint,
        best=best,
        num_steps=num_steps,
        warmup_steps=warmup_steps,
        film=film_from(options),
    )
    _run(benchmark, output)


@click.command("compare", cls=Command)
@click.argument("before", metavar="A.json")
@click.argument("after", metavar="B.json")
@click.option("--fail", type=click.FloatRange(0, 1), default=0.10, help="Drop of total_fps that fails [0.10].")
@click.option("--warn", type=click.FloatRange(0, 1), default=0.05, help="Drop of total_fps to be warned of [0.05].")
@click.pass_context
def compare(ctx: click.Context, before: str, after: str, fail: float, warn: float) -> None:
    """Compare two benchmarks of one workload on one machine; exits with 1 if B is slower than A by more than --fail.

    A side may be several files with commas between, or a directory: they are pooled.
    """
    from genelab.bench.compare import bundle_files, compare_files

    result = compare_files(bundle_files(before), bundle_files(after), fail=fail, warn=warn)
    _print(result)
    ctx.exit(1 if result.regressed else 0)


def _prepare(options: dict[str, Any]) -> tuple[Workload, Output]:
    """What is to be run, and where its bundle goes."""
    from genelab.bench.formatters import DEFAULT_OUT, Output, parse_formatters
    from genelab.bench.scenario import Workload

    shortcuts = shortcut_overrides({**options, "seed": None})
    workload = Workload(
        task=options["task"],
        num_envs=options["num_envs"],
        seed=options["seed"],
        overrides={**shortcuts, **options["overrides"]},
        rl_library=options.get("rl_library"),
    )
    directory = options["out"] or DEFAULT_OUT
    return workload, Output(directory=directory, formatters=parse_formatters(options["formatter"]), echo=echo)


def _run(benchmark: Workflow[Any], output: Output) -> None:
    from genelab.bench.formatters import headline

    try:
        bundle = benchmark.run(output)
    finally:
        if benchmark.bundle is not None and "summary" not in output.formatters:
            for line in headline(benchmark.bundle):
                echo(line)
        for path in benchmark.files:
            echo(f"written to {path}")
    if bundle.run.status == "interrupted":
        raise click.exceptions.Exit(130)


def _print(result: Comparison) -> None:
    from rich.table import Table

    table = Table("number", "A", "B", "change", "verdict")
    for row in result.rows:
        table.add_row(row.name, _side(row.before), _side(row.after), _change(row), row.verdict)
    show(table)


def _side(side: Side) -> str:
    half = "" if side.interval is None else f" ({side.interval[0]:,.4g} … {side.interval[1]:,.4g})"
    return f"{side.mean:,.4g}{half}" + (f" of {side.runs} runs" if side.runs > 1 else "")


def _change(row: ComparedNumber) -> str:
    return f"{row.change:+.1%}"
