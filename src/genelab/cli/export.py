"""`genelab export`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click

from genelab.cli.command import (
    CHECKPOINT_HELP,
    Registered,
    TaskCommand,
    assets_option,
    best_option,
    checkpoint_words,
    echo,
    say,
    shortcut_overrides,
    simulation_options,
    task_argument,
)
from genelab.rl.targets import TARGETS
from genelab.rl.targets.registry import TargetEntry


class ExportCommand(TaskCommand):
    """Tells who policies are exported for."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Targets of --for, and their settings"):
            formatter.write_dl([(name, _about(TARGETS.entry(name))) for name in TARGETS.names()])
        super().format_epilog(ctx, formatter)


def _about(target: TargetEntry) -> str:
    """What a target writes, and what it can be told."""
    settings = ", ".join(f"{name}={value}" for name, value in target.settings.items())
    return f"{target.about} [{settings}]" if settings else target.about


@click.command(
    "export",
    cls=ExportCommand,
    help="Write the policy CKPT to a file that runs without genelab.\n\n"
    "The file takes raw observations: clip, scale and learned normaliser are inside. Beside it goes "
    "FILE.metadata.json, which tells all that a robot's program has to know; it is in the file, too. An exported "
    "policy, as `pretrained` may be, is copied in its own format, or turned from TorchScript into ONNX.\n\n"
    f"With --for the files of a deploy stack are written into the directory --out.\n\n{CHECKPOINT_HELP}",
)
@task_argument
@checkpoint_words(required=True)
@best_option
@click.option(
    "--format",
    type=click.Choice(["torchscript", "onnx"]),
    help="What to write [as --out or CKPT is called, torchscript].",
)
@click.option(
    "--out",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="A file [policy.ts or policy.onnx], or with --for a directory [its name].",
)
@click.option("--opset", type=int, help="Version of ONNX' operators [17].")
@click.option(
    "--batch",
    type=click.Choice(["dynamic", "static", "1"]),
    help="Robots that an ONNX file serves at once: any number, or one (static, or 1) [dynamic].",
)
@click.option("--for", "target", type=Registered(TARGETS.names), help="Write what this deploy stack reads.")
@click.option("--with", "given", metavar="NAME=VALUE", multiple=True, help="A setting of the stack that --for names.")
@assets_option
@partial(simulation_options, viewer=False)
def command(
    task: str,
    checkpoint: str,
    best: bool,
    format: Literal["torchscript", "onnx"] | None,
    out: Path | None,
    opset: int | None,
    batch: Literal["dynamic", "static", "1"] | None,
    target: str | None,
    given: Sequence[str],
    assets: Sequence[Path],
    overrides: Mapping[str, Any],
    **options: Any,
) -> None:
    changes = {**shortcut_overrides(options), **overrides}
    if target is not None:
        for name, value in (("--format", format), ("--opset", opset), ("--batch", batch)):
            if value is not None:
                raise click.UsageError(f"{name}: what is written for {target} is decided by --for")
        _export_for(target, task, checkpoint, best, out, _settings(given), assets, changes)
        return
    if given or assets:
        raise click.UsageError(f"{'--with' if given else '--assets'} is for --for")
    from genelab.rl import export_task

    result = export_task(
        task,
        checkpoint,
        best=best,
        format=format,
        out=out,
        opset=opset,
        batch="static" if batch == "1" else batch,
        overrides=changes,
        notify=say,
    )
    about = result.metadata
    memory = f", {about['recurrent']['rnn_type'].upper()}" if about["is_recurrent"] else ""
    echo(f"{about['task']}: {about['backend']} {about['algorithm']}{memory} from {result.source}")
    echo(f"policy      {result.path} ({result.size / 1024:.1f} kB, {about['format']})")
    echo(f"metadata    {result.metadata_path}")
    echo(f"input       {about['obs_dim']} raw observations of {_robots(about)}: {', '.join(about['obs_groups'])}")
    echo(f"output      {about['action_dim']} actions every {about['step_dt']:g} s")
    if result.parity_error is None:
        echo("copied      it was an exported policy already")
    else:
        echo(f"difference  {result.parity_error:.1e} from the live policy, at most")
    echo(f"latency     {result.latency}")
    echo("to run it:")
    for line in _usage(result.path, about):
        echo(f"  {line}")


def _robots(about: Mapping[str, Any]) -> str:
    """Return how many robots the file serves at once."""
    alone = about.get("batch") == "static" if about["format"] == "onnx" else about["is_recurrent"]
    return "one robot" if alone else "any number of robots"


def _settings(given: Sequence[str]) -> dict[str, str]:
    """What `--with` says, by name."""
    pairs = [word.partition("=") for word in given]
    if bad := next((name for name, equals, _ in pairs if not (name and equals)), None):
        raise click.UsageError(f"--with: {bad!r} is not NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _export_for(
    target: str,
    task: str,
    checkpoint: str,
    best: bool,
    out: Path | None,
    settings: Mapping[str, str],
    assets: Sequence[Path],
    overrides: Mapping[str, Any],
) -> None:
    from genelab.rl.targets import export_for

    result = export_for(
        target,
        task,
        checkpoint,
        best=best,
        out=out,
        settings=settings,
        overrides=overrides,
        assets=assets,
        notify=say,
    )
    about = result.metadata
    echo(f"{about['task']}: {about['backend']} {about['algorithm']} from {result.source}, for {target}")
    for name, size in result.sizes.items():
        echo(f"  {result.out / name} ({size / 1024:.1f} kB)")
    for line in result.next_steps:
        echo(line)


def _usage(path: Path, about: dict[str, Any]) -> list[str]:
    """The lines a deployer types."""
    name = str(path)
    if about["format"] == "torchscript":
        reset = "policy.reset()  # at the start of each episode"
        start = f"policy = torch.jit.load({name!r}).eval()"
        return [start, *([reset] if about["is_recurrent"] else []), "actions = policy(raw_obs)"]
    ports = about["recurrent"] if about["is_recurrent"] else {"onnx_inputs": ["obs"], "onnx_outputs": ["actions"]}
    values = {"obs": "raw_obs", "h_in": "h", "c_in": "c"}
    given = ", ".join(f'"{port}": {values[port]}' for port in ports["onnx_inputs"])
    kept = ", ".join(port.removesuffix("_out") for port in ports["onnx_outputs"])
    call = f"policy.run(None, {{{given}}})"
    return [
        f"policy = onnxruntime.InferenceSession({name!r})",
        f"{kept} = {call}" if about["is_recurrent"] else f"actions = {call}[0]",
    ]
