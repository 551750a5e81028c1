"""The options that film a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genelab.cli.command import Function, add_options

if TYPE_CHECKING:
    from genelab.rl import FilmOptions
    from genelab.viewer import FilmCfg

BESIDE = Path()
"""`--video` without a file: beside the results."""
_DETAILS = ("video_length", "video_size", "camera", "video_envs")


def play_film_options(function: Function) -> Function:
    """The options that film a playback."""
    text = "Film the run into FILE.mp4, or its last picture into FILE.png."
    option = click.option("--video", metavar="FILE", type=click.Path(path_type=Path), help=text)
    return option(_details("[the whole run]; without --steps a headless run ends with it.")(function))


def benchmark_film_options(function: Function) -> Function:
    """The options that film a policy once it is measured."""
    text = "Once everything is measured, film the policy into FILE.mp4 [beside the bundle]."
    option = click.option(
        "--video", metavar="[FILE]", type=click.Path(path_type=Path), is_flag=False, flag_value=BESIDE, help=text
    )
    return option(_details("[250].")(function))


def train_film_options(function: Function) -> Function:
    """The options that film a training."""
    text = "Film the policy every K iterations into videos/ of the run directory."
    option = click.option("--video-interval", metavar="K", type=click.IntRange(min=1), help=text)
    return option(_details("[250].")(function))


def motion_film_options(function: Function) -> Function:
    """The options that film a motion."""
    text = "Film the motion into FILE.mp4, or its last picture into FILE.png."
    option = click.option("--video", metavar="FILE", type=click.Path(path_type=Path), help=text)
    return option(_details("[all of the motion].", envs=False)(function))


def _details(length: str, *, envs: bool = True) -> Callable[[Function], Function]:
    steps = f"Control steps that are filmed {length}"
    camera = "A camera of the model, track (follows the robot) or fixed [whichever suits the robot]."
    several = click.option(
        "--video-envs", metavar="N", type=click.IntRange(min=1), help="Environments side by side [1]."
    )
    options = (
        click.option("--video-length", metavar="N", type=click.IntRange(min=1), help=steps),
        click.option("--video-size", metavar="WxH", help="Size of the film in pixels [1280x720]."),
        *((several,) if envs else ()),
        click.option("--camera", metavar="NAME", help=camera),
    )
    return lambda function: add_options(function, *options)


def film_from(options: Mapping[str, Any]) -> FilmCfg | None:
    """The film that the options of `genelab play` ask for."""
    if options["video"] is None:
        _refuse_details(options, "--video FILE")
        return None
    from genelab.viewer import FilmCfg

    return FilmCfg(path=options["video"], **_given(options))


def training_film_from(options: Mapping[str, Any]) -> FilmOptions | None:
    """The films that the options of `genelab train` ask for."""
    if options["video_interval"] is None:
        _refuse_details(options, "--video-interval K")
        return None
    from genelab.rl import FilmOptions

    return FilmOptions(every=options["video_interval"], **_given(options))


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    from genelab.viewer import parse_size

    found = {"length": options["video_length"], "camera": options["camera"], "num_envs": options.get("video_envs")}
    if options["video_size"] is not None:
        found["size"] = parse_size(options["video_size"])
    return {name: value for name, value in found.items() if value is not None}


def _refuse_details(options: Mapping[str, Any], needed: str) -> None:
    for name in _DETAILS:
        if options.get(name) is not None:
            raise click.UsageError(f"--{name.replace('_', '-')} goes with {needed}")
