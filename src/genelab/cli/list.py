"""`genelab list`."""

from __future__ import annotations

import json

import click

from genelab.cli.command import Command, import_option
from genelab.config import TASKS


@click.command("list", cls=Command)
@click.option("--filter", "pattern", default="", metavar="TEXT", help="Only tasks whose id or robot contains TEXT.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@import_option
def command(pattern: str, as_json: bool) -> None:
    """List the registered tasks."""
    needle = pattern.lower()
    entries = [entry for entry in TASKS.entries() if needle in f"{entry.id} {entry.robot}".lower()]
    if as_json:
        fields = ("id", "robot", "backend", "description", "package")
        click.echo(json.dumps([{name: getattr(entry, name) for name in fields} for entry in entries], indent=2))
        return
    if not entries:
        click.echo(f"No task matches {pattern!r}; there are {len(TASKS)}.")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("task", "learner", "what it is")
    table.columns[0].no_wrap = True
    for entry in entries:
        table.add_row(entry.id, entry.backend or "playback only", entry.description)
    Console().print(table)
