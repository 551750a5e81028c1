"""`genelab motion`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genelab.cli.command import (
    Command,
    FiniteRange,
    Function,
    Group,
    InputFile,
    add_options,
    echo,
    import_option,
    say,
    show,
)
from genelab.cli.film import film_from, motion_film_options
from genelab.cli.viewer import viewer_from, viewer_options
from genelab.config import TASKS, check_out
from genelab.errors import UsageError

if TYPE_CHECKING:
    from genelab.motion import Clip, Finding, Kinematics
    from genelab.scene import EntityCfg

TASK = "Genelab-Tracking-Flat-Unitree-G1-v0"
"""Whose robot a motion is of, unless somebody says otherwise."""
POSITIVE = FiniteRange(min=0, min_open=True)


@click.group("motion", cls=Group)
def command() -> None:
    """Motions for a robot to follow.

    A motion is a CSV file (a row per frame: root x y z, root quaternion x y z w, the joints) or an NPZ file (fps,
    joint_pos, and root_pos and root_quat, or body_pos_w and body_quat_w), or the name of one that comes with the robot.
    """


def _robot_options(function: Function) -> Function:
    """Whose motion it is."""
    options = (
        click.option("--task", metavar="TASK", default=TASK, help=f"The task whose robot it is [{TASK}]."),
        click.option("--model", metavar="FILE", type=InputFile(), help="Or the robot's MJCF file."),
        click.option("--fps", type=POSITIVE, help="Frames per second of a CSV file [30]."),
    )
    return add_options(import_option(function), *options)


@command.command("convert", cls=Command)
@click.argument("source", metavar="IN")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), required=True, help="The NPZ file to write.")
@click.option("--to-fps", type=POSITIVE, default=50.0, help="Frames per second to write [50].")
@click.option("--start", type=FiniteRange(min=0), help="Leave out what is before, s.")
@click.option("--end", type=FiniteRange(min=0), help="Leave out what is after, s.")
@click.option("--smooth", "cutoff", metavar="HZ", type=POSITIVE, help="Leave out what is faster.")
@_robot_options
def convert(
    source: str, out: Path, to_fps: float, start: float | None, end: float | None, cutoff: float | None, **options: Any
) -> None:
    """Make an NPZ file of the motion IN: at another rate, with the states of all bodies by forward kinematics."""
    if out.suffix.lower() != ".npz":
        raise click.UsageError(f"--out: {out} must end in .npz")
    check_out(out, parents=False)
    from genelab.motion import Kinematics, cut, smooth

    kinematics = Kinematics(_compiled(_robot(options)), "robot/")
    clip = cut(_read(source, options, kinematics), start, end)
    if cutoff is not None:
        clip = smooth(clip, cutoff)
    motion = kinematics.motion(clip, to_fps)
    motion.write(out)
    echo(f"{source}: {len(clip)} frames at {clip.fps:g} Hz")
    echo(
        f"{out}: {len(motion)} frames at {motion.fps:g} Hz, {motion.seconds:.3f} s, {len(motion.joint_names)} joints, "
        f"{len(motion.body_names)} bodies"
    )


@command.command("check", cls=Command)
@click.argument("source", metavar="FILE")
@_robot_options
def check(source: str, **options: Any) -> None:
    """Tell how fast a motion is, where it leaves joint limits, slips or sinks in, and which torques it takes.

    Torques are by inverse dynamics, with the ground forces that come nearest to what the motion needs. Exits with 1 if
    something is beyond its bound.
    """

    from genelab.motion import MotionCheck

    judge = MotionCheck(_robot(options))
    clip = _read(source, options, judge.kinematics)
    found = judge.findings(clip)
    echo(f"{source}: {len(clip)} frames at {clip.fps:g} Hz, {clip.seconds:.3f} s")
    show(_table(found, clip.fps))
    click.get_current_context().exit(0 if all(one.is_good for one in found) else 1)


@command.command("play", cls=Command)
@click.argument("source", metavar="FILE")
@click.option("--max-steps", type=click.IntRange(min=0), help="Stop after this many frames.")
@motion_film_options
@click.option("-v", "--vis", is_flag=True, help="Show a viewer: a page without a display.")
@click.option("--headless", is_flag=True, help="Show no viewer.")
@viewer_options
@_robot_options
def play(source: str, max_steps: int | None, **options: Any) -> None:
    """Show a motion, without physics."""
    viewer = viewer_from(options)
    if options["vis"] and options["headless"]:
        raise click.UsageError("--vis and --headless exclude each other: pass one of them")
    film = film_from(options)
    robot = _robot(options)
    from genelab.rl import play_motion

    if film is not None:
        film.check()
    result = play_motion(
        robot,
        partial(_read, source, options),
        source,
        film=film,
        viewer=viewer,
        vis=True if options["vis"] else False if options["headless"] else None,
        max_steps=max_steps,
        notify=say,
    )
    echo(f"{source}: {result.steps} frames")
    if film is not None:
        echo(f"film in {film.path}: {result.frames} picture{'' if result.frames == 1 else 's'}")


def _robot(options: dict[str, Any]) -> EntityCfg:
    """The robot that a motion is of."""
    from genelab.scene import EntityCfg, mjcf_file

    if options["model"] is not None:
        return EntityCfg(spec=mjcf_file, spec_args={"path": str(options["model"])})
    entities = TASKS.get(options["task"]).playing.scene.entities
    if "robot" not in entities:
        raise UsageError(f"{TASKS.entry(options['task']).id} has no entity called 'robot': name another `task`")
    return entities["robot"]


def _compiled(robot: EntityCfg) -> Any:
    """The model of a robot alone."""
    from genelab.scene import Scene, SceneCfg
    from genelab.sim import SimulationCfg

    scene = Scene(SceneCfg(entities={"robot": robot}), SimulationCfg(engine="mujoco"))
    scene.engine.close()
    return scene.engine.model


def _read(source: str, options: dict[str, Any], kinematics: Kinematics) -> Clip:
    """The motion in a file; a CSV file is at 30 Hz unless somebody says otherwise."""
    from genelab.motion import find_motion

    package = "" if options["model"] is not None else TASKS.entry(options["task"]).package
    path = find_motion(source, package)
    is_csv = path.suffix.lower() == ".csv"
    return kinematics.read(path, options["fps"] or (30.0 if is_csv else None))


def _table(found: Sequence[Finding], fps: float) -> Any:
    from rich.table import Table

    table = Table("at its worst", "value", "frame", "time", "where", "bound")
    table.columns[4].overflow = "fold"
    for one in found:
        bound = "" if one.bound is None else f"{one.bound:.3g}" + ("" if one.is_good else ", exceeded")
        unit = "" if one.unit == "1" else f" {one.unit}"
        table.add_row(
            one.what, f"{one.value:.3f}{unit}", str(one.frame + 1), f"{one.frame / fps:.2f} s", one.where, bound
        )
    return table
