"""`genelab list`."""

from __future__ import annotations

import json
import textwrap

import click

from genelab.cli.command import Command, echo, import_option, show
from genelab.config import TASKS
from genelab.config.registry import ASK, TaskEntry
from genelab.errors import GenelabError

_WIDE = 120
"""Columns from which on there is a table."""


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
        rows = [{name: getattr(entry, name) for name in fields} | {"backend": _learner(entry)} for entry in entries]
        echo(json.dumps(rows, indent=2))
        return
    if not entries:
        echo(f"No task matches {pattern!r}; there are {len(TASKS)}.")
        return
    from rich.console import Console
    from rich.table import Table

    console, lines = Console(), [(entry.id, _learner(entry) or "playback only", entry.description) for entry in entries]
    if console.width < _WIDE:  # a table would leave a word to the line for what a task is
        for task, learner, description in lines:
            about = textwrap.fill(description, console.width, initial_indent="    ", subsequent_indent="    ")
            echo(f"{task} · {learner}\n{about}")
        return
    table = Table("task", "learner", "what it is")
    table.columns[0].no_wrap = True
    for line in lines:
        table.add_row(*line)
    show(table)


def _learner(entry: TaskEntry) -> str | None:
    """What learns a task: as it was registered, else as the task itself says, which takes its imports."""
    if entry.backend != ASK:
        return entry.backend
    from genelab.rl.backends import select_backend

    try:
        task = TASKS.get(entry.id)
    except GenelabError as error:
        return str(error)
    if task.agent is None:
        return None
    algorithm = getattr(task.agent, "algorithm", "")
    return f"{select_backend(task.agent).name} {algorithm if isinstance(algorithm, str) else ''}".strip()
