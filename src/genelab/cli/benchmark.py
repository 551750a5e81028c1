"""`genelab benchmark`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genelab.cli import benchmark_workflows
from genelab.cli.command import Group, InputFile, echo, import_option, say, show

if TYPE_CHECKING:
    from rich.table import Table

    from genelab.rl.suite import Outcome, SuiteResult


@click.group(
    "benchmark",
    cls=Group,
    invoke_without_command=True,
    context_settings={"token_normalize_func": lambda word: word.replace("_", "-")},
)
@click.option("--suite", metavar="FILE", type=InputFile(), help="JSON list of what to evaluate.")
@click.option(
    "--out", metavar="FILE", type=click.Path(path_type=Path), default=Path("report.json"), help="[report.json]"
)
@click.option("--reference", metavar="FILE", type=InputFile(), help="Report of an earlier run.")
@click.option("--tolerance", type=click.FloatRange(min=0), default=0.1, help="Drop of the return that passes [0.1].")
@import_option
@click.pass_context
def command(ctx: click.Context, suite: Path | None, out: Path, reference: Path | None, tolerance: float) -> None:
    """Measure speed (the commands below), or judge policies: evaluate every row of a suite and hold the returns
    against an earlier report.

    A suite is [{"task": ..., "checkpoint": ..., "episodes": 100, "seed": 0, "num_envs": 64}, ...]; a checkpoint is a
    file or run directory, from the suite's directory or the current one, `latest` or `pretrained`.

    Exits with 1 if a return drops by more than tolerance × its size, with 2 if a row, a file or the match of suite and
    reference is wrong, and with 0 otherwise.
    """
    if ctx.invoked_subcommand is not None:
        return
    if suite is None:
        raise click.UsageError(f"what is to be measured? Pass --suite FILE, or one of {', '.join(command.commands)}")
    if reference is None and ctx.get_parameter_source("tolerance") is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--tolerance is for the comparison with --reference FILE: pass both")
    from genelab.rl.suite import run_suite

    result = run_suite(suite, out, reference=reference, tolerance=tolerance, notify=say)
    _print(result, compared=reference is not None)
    echo(f"written to {out}")
    ctx.exit(result.exit_code)


for _workflow in ("runtime", "startup", "training", "play", "compare"):
    command.add_command(getattr(benchmark_workflows, _workflow))


def _print(result: SuiteResult, *, compared: bool) -> None:

    show(_table(result.outcomes, compared=compared))
    for number, outcome in enumerate(result.outcomes, start=1):
        if outcome.error is not None:
            echo(f"row {number}: {' '.join(outcome.error.split())}")
    for row in result.missing:
        echo(f"in the reference, not in the suite: {row['task']} {row['checkpoint']} seed {row['seed']}")
    for number, outcome in enumerate(result.outcomes, start=1):
        if outcome.status == "regressed" and (change := outcome.comparison) is not None:
            echo(f"row {number} regressed: return {change['reference']:.3f} → {change['value']:.3f}")


def _table(outcomes: Sequence[Outcome], *, compared: bool) -> Table:
    from rich.table import Table

    table = Table("row", "task", "return", *(("reference", "change") if compared else ()), "result")
    table.columns[1].overflow = "fold"
    for number, outcome in enumerate(outcomes, start=1):
        cells = ["" if outcome.evaluation is None else f"{outcome.evaluation['metrics']['return_mean']:.3f}"]
        if compared:
            cells += _change(outcome.comparison)
        table.add_row(str(number), _task(outcome), *cells, outcome.status)
    return table


def _task(outcome: Outcome) -> str:
    if outcome.row is not None:
        return outcome.row.task
    return str(outcome.given.get("task", "?")) if isinstance(outcome.given, dict) else "?"


def _change(comparison: dict[str, Any] | None) -> list[str]:
    if comparison is None or comparison["reference"] is None:
        return ["", ""]
    relative = comparison["relative_change"]
    share = "" if relative is None else f" ({relative:+.1%})"
    return [f"{comparison['reference']:.3f}", f"{comparison['change']:+.3f}{share}"]
