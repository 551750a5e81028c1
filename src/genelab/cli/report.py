"""`genelab report`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from genelab.cli.command import Command, echo

X_HELP = "Against control steps, minutes, or what the RL library's budget counts: iterations or timesteps [steps]."


@click.command("report", cls=Command)
@click.argument("runs", metavar="RUN_DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", metavar="FILE", type=click.Path(path_type=Path), default=Path("report.html"), help="[report.html]"
)
@click.option("--x", type=click.Choice(["steps", "minutes", "iterations"]), default="steps", help=X_HELP)
def command(runs: tuple[Path, ...], out: Path, x: Any) -> None:
    """Write what runs learned as one self-contained page.

    Curves, evaluations, differences of the configs, machine and versions, and a film if there is one. A directory of
    --seeds stands for all its seeds; the directory of a sweep, given alone, is reported by its trials. Beside the page,
    under its name, are the curves as .png and the table as .md.
    """
    from genelab.report import write_report

    report = write_report(runs, out, unit=x)
    echo(report.markdown, nl=False)
    echo(f"written to {report.page}, {report.table} and {report.picture}")
