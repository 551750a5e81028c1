"""The options that show a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from genelab.cli.command import Function, add_options

if TYPE_CHECKING:
    from genelab.viewer import ViewerCfg, ViewerKind


def viewer_options(function: Function) -> Function:
    """What the viewer is, and where a web page is served."""
    options = (
        click.option(
            "--viewer",
            type=click.Choice(["window", "web"]),
            help="Show a window, or a page for a browser [a window if there is a display].",
        ),
        click.option("--port", type=click.IntRange(1, 65535), help="Port of the page [8080, or the next free one]."),
        click.option("--host", help="Address of the page [127.0.0.1]; 0.0.0.0 opens it to other machines."),
    )
    return add_options(function, *options)


def viewer_from(options: dict[str, Any]) -> ViewerCfg | None:
    """What the options ask for; an option of the viewer asks for the viewer."""
    from genelab.viewer import ViewerCfg

    place = {name: options[name] for name in ("port", "host") if options[name] is not None}
    kind: ViewerKind | None = options["viewer"] or ("web" if place else None)
    if kind is None:
        return None
    if options["headless"]:
        raise click.UsageError("--viewer, --port and --host show the task, --headless does not: pass one of them")
    if kind == "window" and place:
        raise click.UsageError("--port and --host are for --viewer web")
    options["vis"] = True
    return ViewerCfg(kind=kind, **place)
