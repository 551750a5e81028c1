"""The verbs of `genelab`."""

from __future__ import annotations

import importlib

import click

from genelab import __version__
from genelab.cli.command import with_dashes
from genelab.errors import did_you_mean

_VERBS = {
    "list": "List the registered tasks.",
    "info": "Show what a task is made of.",
    "play": "Run a task and look at it.",
    "train": "Train a task.",
    "sweep": "Search for settings with which a task is learned better.",
    "eval": "Judge a trained policy.",
    "export": "Write a trained policy to a file that runs without genelab.",
    "deploy": "Run an exported policy in plain MuJoCo.",
    "motion": "Convert, check or play a motion for a robot to follow.",
    "new-task": "Make a project for a robot of your own.",
    "report": "Write what runs learned as one page.",
    "doctor": "Say what works on this machine, what is missing, and how to mend it.",
    "benchmark": "Measure speed, or evaluate many policies, and compare with before.",
}


class _Verbs(click.Group):
    """Imports a verb only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _VERBS:
            return None
        return importlib.import_module(f"genelab.cli.{name.replace('-', '_')}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _VERBS:
            raise click.UsageError(f"no such command {args[0]!r}.{did_you_mean(args[0], _VERBS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_VERBS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_dashes(args[:1]) + args[1:])


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="genelab")
def cli() -> None:
    """A laboratory for robot reinforcement learning.

    `genelab list` shows the tasks, `genelab COMMAND --help` the options of a command.
    """
