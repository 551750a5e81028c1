"""`genelab doctor`."""

from __future__ import annotations

import dataclasses
import json
from itertools import groupby
from typing import TYPE_CHECKING

import click

from genelab.cli.command import Command, echo, import_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from genelab.doctor import Check

_TITLES = {
    "system": "System",
    "base": "Base: without these nothing works",
    "gpu": "GPU",
    "engines": "Engines",
    "libraries": "RL libraries",
    "rendering": "Rendering",
    "extras": "Extras",
    "tasks": "Tasks",
}


@click.command("doctor", cls=Command)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of lines.")
@import_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Say what works on this machine, what is missing, and the command that mends it.

    The exit code is 0 if tasks can be trained and played, whatever else is missing.
    """
    from genelab.doctor import base_works, examine

    checks = examine()
    works = base_works(checks)
    if as_json:
        echo(json.dumps({"works": works, "checks": [dataclasses.asdict(check) for check in checks]}, indent=2))
    else:
        _print(checks)
        bad = ", ".join(check.name for check in checks if check.is_base and check.status in ("missing", "broken"))
        echo("genelab works here" if works else f"genelab does not work here: {bad}")
    ctx.exit(0 if works else 1)


def _print(checks: Sequence[Check]) -> None:
    width = max(len(check.name) for check in checks)
    for group, found in groupby(checks, key=lambda check: check.group):
        echo(_TITLES[group])
        for check in found:
            echo(f"  {check.status:8}{check.name:{width}}  {check.detail}")
            if check.mend:
                echo(f"  {'':8}{'':{width}}  → {check.mend}")
