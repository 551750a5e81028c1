"""Commands as users type them: `-` and `_` alike, dotted overrides anywhere, errors in one line."""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from genelab.cli.flags import in_flags
from genelab.config import TASKS, split_overrides
from genelab.errors import GenelabError
from genelab.sim import ENGINES
from genelab.text import printable

if TYPE_CHECKING:
    from rich.table import Table

Function = TypeVar("Function", bound=Callable[..., Any])

SEED = click.IntRange(0, 2**32 - 1)
"""What NumPy's and torch's generators both take."""
CHECKPOINT_HELP = (
    "A checkpoint is a file, a run directory (its final or newest checkpoint, its best with --best), `latest` (of the "
    "task's newest run below ./logs) or `pretrained` (shipped with the task); a file of such a name is ./latest. It "
    "may be an address, too: file://, https:// or hf://owner/repository/file, with #sha256=HEX to say what must arrive."
)


class Registered(click.Choice[str]):
    """A choice of what is registered when it is made, that is after `--import`."""

    def __init__(self, names: Callable[[], Sequence[str]], *more: str) -> None:
        self.case_sensitive = True
        self._names, self._more = names, more

    @property
    def choices(self) -> Sequence[str]:  # type: ignore[override]
        return (*self._names(), *self._more)


class FiniteRange(click.FloatRange):
    """A number within bounds. Infinity and NaN, which pass any comparison with no bound, are refused."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number", param, ctx)
        return number


class InputFile(click.Path):
    """A file to read. A pipe or a device is refused: nobody may ever write to it, or stop."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.exists() and not path.is_file() and not path.is_dir():
            self.fail(f"{path} is no regular file", param, ctx)
        return path


class _SpeaksFlags(click.Command):
    """A command that tells in its own flags what goes wrong below it."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except GenelabError as error:
            error.args = (in_flags(str(error), self),)
            raise


class Group(_SpeaksFlags, click.Group):
    """A command that has commands of its own."""


class Command(_SpeaksFlags):
    """A command whose options may be written with underscores."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_dashes(args))


class TaskCommand(Command):
    """A command on a task: dotted words are overrides of its config, collected in the parameter `overrides`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        overrides, rest = split_overrides(args)
        left = super().parse_args(ctx, rest)
        ctx.params["overrides"] = overrides
        return left

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Config overrides"):
            formatter.write_text(
                "--a.b.c VALUE, --a.b.c=VALUE or a.b.c=VALUE sets any field of the task's config, for example "
                "--env.simulation.dt 0.002 or env.rewards.alive.weight=2. `genelab info TASK` lists them all."
            )


def with_dashes(args: Sequence[str]) -> list[str]:
    """Option names with `-` for `_`; values are left alone."""
    words: list[str] = []
    for i, word in enumerate(args):
        if word == "--":
            return [*words, *args[i:]]
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            word = name.replace("_", "-") + equals + value
        words.append(word)
    return words


def add_options(function: Function, *options: Callable[[Function], Function]) -> Function:
    """Decorate a command, so that its help lists the options in this order."""
    for option in reversed(options):
        function = option(function)
    return function


def import_option(function: Function) -> Function:
    """The option that imports code which is not installed; before the other options, which may be about what it has."""
    text = "Import a module, or a .py file, that brings tasks, engines, RL libraries or targets."
    option = click.option(
        "--import",
        metavar="MODULE",
        multiple=True,
        is_eager=True,
        expose_value=False,
        callback=_import_modules,
        help=text,
    )
    return option(function)


def task_argument(function: Function) -> Function:
    """The argument TASK, and `--import` beside it."""
    return click.argument("task", metavar="TASK")(import_option(function))


def checkpoint_words(*, required: bool) -> Callable[[Function], Function]:
    """Decorate a command with the argument CKPT and the option --checkpoint, which are two names of one thing."""

    def decorate(function: Function) -> Function:
        @click.argument("ckpt", metavar="CKPT" if required else "[CKPT]", required=False)
        @click.option("--checkpoint", metavar="CKPT", help="The same as the argument CKPT.")
        @functools.wraps(function)
        def command(*args: Any, ckpt: str | None, checkpoint: str | None, **options: Any) -> Any:
            if ckpt is not None and checkpoint is not None:
                raise click.UsageError(f"CKPT and --checkpoint are the same, got {ckpt} and {checkpoint}: pass one")
            found = checkpoint if ckpt is None else ckpt
            if required and found is None:
                raise click.UsageError(
                    "Missing argument 'CKPT': a file, a run directory, latest, pretrained or an address"
                )
            return function(*args, checkpoint=found, **options)

        return cast(Function, command)

    return decorate


def best_option(function: Function) -> Function:
    """The flag that takes the best checkpoint of a run."""
    text = "Of a run directory or latest, the checkpoint with the best evaluation in training."
    return click.option("--best", is_flag=True, help=text)(function)


def assets_option(function: Function) -> Function:
    """The option that allows folders besides the model's own to be copied from."""
    text = "Copy meshes and textures from DIR, too; else only from below the folder of the model's file. Repeatable."
    folder = click.Path(path_type=Path, exists=True, file_okay=False)
    return click.option("--assets", metavar="DIR", multiple=True, type=folder, help=text)(function)


def simulation_options(function: Function, more_engines: Sequence[str] = (), viewer: bool = True) -> Function:
    """The flags that stand for `env.simulation.*`, the same for every verb that runs a task; `viewer` for one that can
    show it."""
    shows = (
        click.option(
            "-v", "--vis", is_flag=True, help="Show a viewer: a page without a display. Play runs until it is closed."
        ),
        click.option("--headless", is_flag=True, help="Show no viewer."),
    )
    options = (
        *(shows if viewer else ()),
        click.option("--gpu", is_flag=True, help="Run on the GPU."),
        click.option("--dt", type=FiniteRange(min=0, min_open=True), help="Physics step, s."),
        click.option("--engine", type=Registered(ENGINES.choices, *more_engines), help="What steps the physics."),
    )
    return add_options(function, *options)


def shortcut_overrides(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the shortcut flags mean as overrides; explicit overrides come after them."""
    vis, headless = (options.get(name, False) for name in ("vis", "headless"))
    if vis and headless:
        raise click.UsageError("--vis and --headless exclude each other: pass one of them")
    paths = {"steps": "env.simulation.steps", "dt": "env.simulation.dt", "engine": "env.simulation.engine"}
    paths["seed"] = "env.seed"
    given = {path: options[name] for name, path in paths.items() if options.get(name) is not None}
    if options["gpu"]:
        given["env.simulation.gpu"] = True
    if vis or headless:
        given["env.simulation.vis"] = vis
    return given


def _import_modules(ctx: click.Context, param: click.Parameter, modules: Sequence[str]) -> None:
    """Import the code that the user named."""
    TASKS.imported.clear()
    for module in modules:
        TASKS.import_module(module)


def say(message: str) -> None:
    """Print a remark to the user on the standard error output, above a live display if there is one."""
    context = click.get_current_context(silent=True)
    echo(f"genelab: {in_flags(message, context.command) if context else message}", err=True)


def echo(text: str = "", *, nl: bool = True, err: bool = False) -> None:
    """Print text, and as an escape what a terminal would act on: names and messages may be others'."""
    if err and sys.stderr is None:
        return
    # Not click's `err=True`, which looks for the file behind the stand-in that a live display puts in the place of
    # stderr while it runs: what it writes there stands in the display's line, and is written over.
    click.echo(printable(text, keep="\n"), nl=nl, file=sys.stderr if err else None)


def show(table: Table) -> None:
    """Print a table. Its cells are text, without markup, and what a terminal would act on is an escape."""
    from rich.console import Console
    from rich.segment import Segment, Segments

    console = Console(markup=False, emoji=False)
    parts = console.render(table)
    console.print(Segments([Segment(printable(part.text, keep="\n"), part.style) for part in parts]), end="")
