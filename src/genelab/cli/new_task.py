"""`genelab new-task`."""

from __future__ import annotations

from pathlib import Path

import click

from genelab.cli.command import Command, InputFile
from genelab.config import write_out
from genelab.errors import UsageError


@click.command("new-task", cls=Command)
@click.argument("name", metavar="NAME")
@click.option("--from", "source", required=True, metavar="FILE", type=InputFile(), help="The robot: MJCF or URDF.")
@click.option(
    "--kind", type=click.Choice(["velocity", "reach", "blank"]), help="What to ask of it; guessed if left out."
)
@click.option("--dir", "home", type=click.Path(path_type=Path), default=Path(), help="Where to make the project.")
@click.option("--fixed-base", is_flag=True, help="Of a URDF, fix the root to the world; else it floats if it has feet.")
def command(name: str, source: Path, kind: str | None, home: Path, fixed_base: bool) -> None:
    """Make a project for a robot of your own: package NAME with robot, task, test and README, ready to train.

    Gains, pose, feet and speeds are proposed from the model; what was guessed is printed, and stands in the files with
    the rule it follows.
    """
    from genelab.scaffold import project_files, survey
    from genelab.scaffold.project import task_id
    from genelab.sim import ModelError

    if not source.is_file():
        raise UsageError(f"--from: no file at {source}")
    urdf = source.suffix.lower() == ".urdf"
    floating = urdf and not fixed_base and kind != "reach"
    try:
        found = survey(source, floating_base=floating)
    except ModelError:
        if not floating or kind is not None:
            raise
        floating, found = False, survey(source)  # a root without mass can only be fixed
    if floating and kind is None and len(found.feet) < 2:
        floating, found = False, survey(source)
    kind = kind or ("velocity" if found.base != "fixed" else "reach" if found.reach > 0.0 else "blank")
    project = home / name
    if project.exists():
        raise UsageError(f"there is already {project}: choose another name or --dir")
    files = project_files(name, source, kind, found, floating_base=floating)  # type: ignore[arg-type]
    write_out({project / path: content for path, content in files.items()}, "dir")
    drives = "the file's own actuators" if found.own else "position servos, gains proposed from the model"
    start = f"keyframe {found.keyframe!r}" if found.keyframe else "as the file has it"
    start = f"{start}, root at {found.place[2]} m" if found.place else start
    start += f", {len(found.pose)} joints moved inside their limits" if found.pose else ""
    for what, value in (
        ("robot", f"{found.bodies} bodies, {found.mass:.3g} kg, base {found.base}"),
        ("joints", f"{len(found.driven)} driven by {drives}"),
        ("start", start),
        ("feet", ", ".join(found.feet) or "none found"),
        ("mirror", f"not possible: {found.mirror}" if found.mirror else f"left and right are {found.sides}"),
        ("ground", "the file's floor" if found.has_floor else "a plane"),
        ("task", f"{task_id(name, kind)}, kind {kind}"),  # type: ignore[arg-type]
    ):
        click.echo(f"{what:8} {value}")
    click.echo(f"written to {project}. Next: pip install -e {project} && genelab train {task_id(name, kind)}")  # type: ignore[arg-type]
