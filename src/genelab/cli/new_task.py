"""`genelab new-task`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genelab.cli.command import Command, InputFile, assets_option, echo, say
from genelab.config.files import leftovers_of, write_new_directory
from genelab.errors import UsageError

if TYPE_CHECKING:
    from genelab.scaffold import Kind


@click.command("new-task", cls=Command)
@click.argument("name", metavar="NAME")
@click.option("--from", "source", required=True, metavar="FILE", type=InputFile(), help="The robot: MJCF or URDF.")
@click.option(
    "--kind", type=click.Choice(["velocity", "reach", "blank"]), help="What to ask of it; guessed if left out."
)
@click.option("--dir", "home", type=click.Path(path_type=Path), default=Path(), help="Where to make the project.")
@assets_option
@click.option("--fixed-base", is_flag=True, help="Of a URDF, fix the root to the world; else it floats if it has feet.")
def command(name: str, source: Path, kind: Kind | None, home: Path, assets: Sequence[Path], fixed_base: bool) -> None:
    """Make a project for a robot of your own: package NAME with robot, task, test and README, ready to train.

    Gains, pose, feet and speeds are proposed from the model; what was guessed is printed, and stands in the files with
    the rule it follows.
    """
    from genelab.scaffold import findings, project_files, survey, task_id

    if not source.is_file():
        raise UsageError(f"--from: no file at {source}")
    project = home / name
    if project.exists():
        raise UsageError(f"there is already {project}: choose another name or --dir")
    found = survey(source, kind=kind, fixed_base=fixed_base, assets=assets)
    kind = kind or found.kind
    files = project_files(name, source, kind, found, assets)
    write_new_directory(project, files, "dir")
    for leftover in leftovers_of(project):
        say(f"{leftover} was left by a `genelab new-task` that was killed: delete it")
    for what, words in {**findings(found), "task": f"{task_id(name, kind)}, kind {kind}"}.items():
        echo(f"{what:8} {words}")
    echo(f"written to {project}. Next: pip install -e {project} && genelab train {task_id(name, kind)}")
