"""How a bundle is shown and kept. All formatters are given the same bundle, so that they show the same numbers."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genelab.bench.schema import Bundle, MeanStd, PlayBundle, Scalar, StartupBundle, TrainingBundle, workflow_of
from genelab.bench.serialize import to_dict, write_bundle
from genelab.config import atomic_write_text
from genelab.errors import GenelabError, UsageError, did_you_mean

if TYPE_CHECKING:
    from rich.table import Table

DEFAULT_OUT = Path("logs/benchmark")
_COVERED = {"runtime": "env.step alone", "play": "policy and env.step", "training": "rollouts and updates"}
"""What the clock of each workflow covers."""
_NAME_WIDTH = 18
_MEAN_STD = {field.name for field in dataclasses.fields(MeanStd)}


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where bundles go."""

    directory: Path = DEFAULT_OUT
    formatters: tuple[str, ...] = ("schema",)
    """Names of `FORMATTERS`."""
    echo: Callable[[str], None] = print
    """Takes what is for the terminal."""

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Refuse what could not be written in the end, before anything is measured; nothing written leaves nothing."""
        for name in self.formatters:
            if name not in FORMATTERS:
                raise UsageError(
                    f"`formatters`: there is no {name!r}, only {', '.join(FORMATTERS)}.{did_you_mean(name, FORMATTERS)}"
                )
        missing: list[Path] = []
        try:
            try:
                missing = [path for path in (self.directory, *self.directory.parents) if not path.exists()]
                self.directory.mkdir(parents=True, exist_ok=True)
                probe = self.directory / f".{os.urandom(4).hex()}.tmp"
                probe.touch()
                probe.unlink()
            except OSError as error:
                raise UsageError(f"`out`: cannot write to {self.directory}: {error.strerror}") from error
            yield
        finally:
            for path in missing:
                with suppress(OSError):  # it has something in it
                    path.rmdir()


def attach_bundle(bundle: Bundle, output: Output) -> list[Path]:
    """Give a bundle to every formatter; returns the files that were written."""
    try:
        results = [FORMATTERS[name](bundle, output) for name in output.formatters]
    except OSError as error:
        raise GenelabError(f"`out`: cannot write to {output.directory}: {error.strerror}") from error
    return [path for path in results if path is not None]


def bundle_name(bundle: Bundle) -> str:
    """Name of the file, without suffix: benchmark_<workflow>_<task>_<start>."""
    start = bundle.run.start_time_utc[:19].replace("T", "_").replace(":", "-")
    return f"benchmark_{workflow_of(bundle)}_{bundle.run.task}_{start}"


def flat_phases(bundle: Bundle) -> dict[str, dict[str, Scalar]]:
    """A flat dict for each part of the bundle, by dotted names; functions of a profile by their name, own time."""
    parts = to_dict(bundle)
    parts["result"] = {name: parts.pop(name) for name in list(parts) if not isinstance(parts[name], dict)}
    for name, phase in parts.pop("phases", {}).items():
        functions = {one["name"]: one["own_time_s"] for one in phase["top_functions"]}
        parts[name] = {"total_time_s": phase["total_time_s"], **functions}
    return {name: flat for name, part in parts.items() if (flat := dict(_leaves(part, "")))}


def _leaves(value: Any, path: str) -> list[tuple[str, Scalar]]:
    """Scalars below a value; lists are left out."""
    if isinstance(value, Mapping):
        return [leaf for key, one in value.items() for leaf in _leaves(one, f"{path}.{key}" if path else str(key))]
    return [] if isinstance(value, list) else [(path, value)]


def _schema(bundle: Bundle, output: Output) -> Path:
    path = _free(output.directory / f"{bundle_name(bundle)}.json")
    write_bundle(bundle, path)
    return path


def _json(bundle: Bundle, output: Output) -> Path:
    path = _free(output.directory / f"{bundle_name(bundle)}.phases.json")
    atomic_write_text(path, json.dumps(flat_phases(bundle), indent=2, allow_nan=False) + "\n")
    return path


def _free(path: Path) -> Path:
    """The path, with a number if another run of the same second has taken it."""
    stem, dot, suffix = path.name.partition(".")
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{stem}_{number}{dot}{suffix}")
    return candidate


def _summary(bundle: Bundle, output: Output) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    run = bundle.run
    title = f"{workflow_of(bundle)} {run.task}, {run.num_envs} envs on {run.config.physics_backend}, {run.status}"
    columns = [Column(name, no_wrap=True) for name in ("what", "mean", "std", "peak")]
    table = Table(*columns, title=title, title_justify="left")
    parts = to_dict(bundle)
    for name in ("run", "versions", "hardware", "config", "schema_version"):
        parts.pop(name, None)
    for name, values in _rows(parts, ""):
        table.add_row(".".join(name.split(".")[-2:]), *(_text(value) for value in values))
    console = Console(width=max(120, Console().width), color_system=None)
    with console.capture() as captured:
        console.print(table)
        if isinstance(bundle, StartupBundle):
            console.print(_functions(bundle))
    output.echo(captured.get().rstrip())


def _functions(bundle: StartupBundle) -> Table:
    """The functions that took most of each phase."""
    from rich.table import Column, Table
    from rich.text import Text

    columns = [Column(name, no_wrap=True) for name in ("phase", "own, s", "with calls, s", "calls")]
    table = Table(*columns, Column("function", overflow="fold"))
    for name, phase in bundle.phases.items():
        for one in phase.top_functions:
            table.add_row(name, _text(one.own_time_s), _text(one.cum_time_s), f"{one.calls:,}", Text(one.name))
    return table


def headline(bundle: Bundle) -> list[str]:
    """The numbers that one runs this workflow for, in a few short lines; what is not known is left out."""
    run = bundle.run
    lines = [f"{workflow_of(bundle)} {run.task}: {run.num_envs} envs on {run.config.physics_backend}, {run.status}"]
    if isinstance(bundle, StartupBundle):
        times = {name: phase.total_time_s for name, phase in bundle.phases.items()}
        lines.append(_item("start", f"{sum(times.values()):.2f} s, profiled"))
        return lines + [_item(f"  {name}", f"{seconds:.2f} s") for name, seconds in times.items()]
    if (speed := bundle.runtime.total_fps) is not None:
        lines.append(_item("speed", f"{speed.mean:,.0f} steps/s, {_COVERED[workflow_of(bundle)]}"))
    if isinstance(bundle, TrainingBundle):
        if (collecting := bundle.runtime.collection_fps) is not None:
            lines.append(_item("collecting", f"{collecting.mean:,.0f} steps/s"))
        if (curve := bundle.learning.reward) is not None and curve.final_raw is not None:
            lines.append(_item("return", f"{curve.final_raw:.3f}, of the last episodes"))
    elif (timing := bundle.runtime.environment_step_timing) is not None:
        if isinstance(bundle, PlayBundle):
            lines.append(_item("env.step", f"{timing.environment_step_fps.mean:,.0f} steps/s alone"))
        if (rest := timing.outside_simulation_step_fraction) is not None:
            lines.append(_item("physics", f"{1 - rest:.0%} of env.step"))
    if isinstance(bundle, PlayBundle) and bundle.reward is not None and bundle.ep_length is not None:
        episodes = bundle.extra.get("episodes")
        lines.append(_item("return", f"{bundle.reward.mean:.3f} over {episodes} episode{'' if episodes == 1 else 's'}"))
        lines.append(_item("length", f"{bundle.ep_length.mean:.1f} steps"))
    if isinstance(bundle, TrainingBundle | PlayBundle):
        if bundle.success_rate is not None:
            lines.append(_item("success", f"{bundle.success_rate:.3f}"))
        lines += [_item("film", bundle.video_path)] if bundle.video_path is not None else []
    return lines


def _item(name: str, text: str) -> str:
    return f"{name:<{_NAME_WIDTH}}{text}"


def _rows(value: Any, path: str) -> list[tuple[str, list[Scalar]]]:
    """Names and numbers of what is known; the three of a mean side by side."""
    if not isinstance(value, Mapping):
        return [(path, [value])] if isinstance(value, int | float) else []
    if value.keys() == _MEAN_STD:
        return [(path, list(value.values()))]
    return [row for key, one in value.items() for row in _rows(one, f"{path}.{key}" if path else str(key))]


def _text(value: Scalar) -> str:
    return "" if value is None else f"{value:,.6g}" if isinstance(value, float) else str(value)


FORMATTERS: dict[str, Callable[[Bundle, Output], Path | None]] = {"schema": _schema, "json": _json, "summary": _summary}
"""The bundle in a file, its numbers in flat phases in a file, or its numbers in a table on the terminal."""


def parse_formatters(text: str) -> tuple[str, ...]:
    """Names from a list with commas, each once."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UsageError(f"`formatters`: name one of {', '.join(FORMATTERS)}, or the run leaves nothing")
    return names
