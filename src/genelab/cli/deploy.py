"""`genelab deploy`."""

from __future__ import annotations

import click

from genelab.cli.command import Command


@click.command(
    "deploy",
    cls=Command,
    context_settings={"ignore_unknown_options": True},
    help="Run the exported policy in the folder DIR in plain MuJoCo, from its metadata alone.\n\n"
    "DIR is what `genelab export TASK CKPT --for mujoco --out DIR` wrote. ARGS are those of its run.py: --command, "
    "--script, --directions, --window, --check, --seconds, --episodes, --seed, --log, --report. It is genelab's own "
    "copy of run.py that runs; the one in DIR is for machines without genelab.",
)
@click.argument("folder", metavar="DIR")
@click.argument("args", metavar="[ARGS]...", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(context: click.Context, folder: str, args: tuple[str, ...]) -> None:
    from genelab.rl.targets.run import main

    context.exit(main([folder, *args], prog="genelab deploy"))
