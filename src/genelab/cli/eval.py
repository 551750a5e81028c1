"""`genelab eval`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genelab.cli.command import (
    CHECKPOINT_HELP,
    SEED,
    TaskCommand,
    best_option,
    checkpoint_words,
    echo,
    say,
    shortcut_overrides,
    show,
    simulation_options,
    task_argument,
)
from genelab.cli.progress import progress_bar
from genelab.cli.robustness import print_robustness

PHYSICS = ("fine", "coarse", "both")

if TYPE_CHECKING:
    from rich.table import Table


@click.command("eval", cls=TaskCommand, help=f"Judge the policy CKPT by full episodes of TASK.\n\n{CHECKPOINT_HELP}")
@task_argument
@checkpoint_words(required=True)
@best_option
@click.option("--num-envs", type=click.IntRange(min=1), default=64, help="Environments side by side [64].")
@click.option("--episodes", type=click.IntRange(min=1), default=100, help="Episodes in all [100].")
@click.option("--seed", type=SEED, default=0, help="Seed of the evaluation [0].")
@click.option("--deterministic/--stochastic", default=True, help="The policy's mean, or samples [deterministic].")
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Where the report goes [eval.json, in the run directory that CKPT is of or lies in].",
)
@click.option("--max-steps", type=click.IntRange(min=1), help="Stop after this many control steps.")
@click.option(
    "--probe/--no-probe", default=True, help="Judge commands by their probes, too: a velocity by direction [probe]."
)
@click.option(
    "--physics", type=click.Choice(PHYSICS), default="fine", help="That of judging, that of training, or both [fine]."
)
@click.option(
    "--published-noise",
    is_flag=True,
    help="Leave the noise of the training observations on, as the published evaluations do [off].",
)
@click.option(
    "--robustness",
    is_flag=True,
    help="Also change friction, mass, gains, delay, noise, encoders and pushes, one at a time: where does it break?",
)
@partial(simulation_options, more_engines=("all",), viewer=False)
def command(
    task: str,
    checkpoint: str,
    best: bool,
    num_envs: int,
    episodes: int,
    seed: int,
    deterministic: bool,
    out: Path | None,
    max_steps: int | None,
    probe: bool,
    physics: str,
    published_noise: bool,
    robustness: bool,
    overrides: Mapping[str, Any],
    **options: Any,
) -> None:
    everywhere, twice = options["engine"] == "all", physics == "both"
    if everywhere and twice:
        raise click.UsageError("--engine all and --physics both exclude each other: pass one of them")
    if robustness and (everywhere or twice):
        raise click.UsageError("--robustness judges in one world: leave out --engine all and --physics both")
    if everywhere:
        options["engine"] = None
    changes = {**shortcut_overrides(options), **overrides}
    out = _home(task, checkpoint, best) / "eval.json" if out is None else out
    from genelab.rl import EvalSettings, evaluate_task

    settings = EvalSettings(
        num_envs=num_envs,
        episodes=episodes,
        seed=seed,
        deterministic=deterministic,
        max_steps=max_steps,
        probe=probe,
        physics="coarse" if physics == "coarse" else "fine",
        published_noise=published_noise,
        robustness=robustness,
    )
    with progress_bar() as show:
        report = evaluate_task(
            task,
            checkpoint,
            settings,
            best=best,
            compare="engines" if everywhere else "physics" if twice else None,
            overrides=changes,
            out=out,
            notify=say,
            show=show,
        )
    reports = report["engines"] if everywhere else report["variants"] if twice else {report["engine"]: report}
    _print(reports, report.get("changes", {}), settings.deterministic)
    if robustness:
        print_robustness(report)
        if report["robustness"]["sweeps"]:
            _draw_robustness(report, out.with_suffix(".robustness.png"))
    if len(reports) > 1:
        _print_differences(next(iter(reports)), report["differences"])
    seconds = sum(
        one["wall_clock_seconds"] + one.get("robustness", {}).get("wall_clock_seconds", 0.0) for one in reports.values()
    )
    echo(f"written to {out} after {seconds:.1f} s")


def _home(task: str, checkpoint: str, best: bool) -> Path:
    """Return the run directory that a checkpoint lies in, where `genelab report` looks; else the working directory."""
    from genelab.rl.fetch import is_uri
    from genelab.rl.locate import find_checkpoint

    if checkpoint == "pretrained" or is_uri(checkpoint):
        return Path()
    home = find_checkpoint(task, checkpoint, best=best).parent
    return home if (home / "run.json").is_file() else Path()


def _draw_robustness(report: dict[str, Any], path: Path) -> None:
    from genelab.config import write_out
    from genelab.errors import UsageError
    from genelab.report.robustness import draw_robustness

    try:
        write_out({path: draw_robustness(report, "png")})
    except UsageError as error:
        say(f"no picture: {error}")
    else:
        echo(f"drawn in {path}")


def _print(reports: Mapping[str, dict[str, Any]], changes: Mapping[str, Any], deterministic: bool) -> None:
    """Reports by name, side by side, and what tells their physics apart."""

    from genelab.envs import describe_physics

    first, *_ = reports.values()
    engines, physics = (_listed(dict.fromkeys(one[key] for one in reports.values())) for key in ("engine", "physics"))
    where = engines if physics == "fine" else f"{engines} in {physics} physics"
    mode = "deterministic" if deterministic else "stochastic"
    mode += ", noisy observations" * bool(first.get("observation_noise"))
    echo(f"{first['task']}: {first['num_episodes']} episodes on {where}, {mode}, seed {first['seed']}")
    if changes:
        for report in reports.values():
            echo(f"{report['physics']}: {describe_physics(changes, report['physics'])}")
    echo(f"checkpoint {first['checkpoint']}")
    show(_table(reports))
    for name, report in reports.items():
        if report.get("identical_episodes"):
            on = f" on {name}" * (len(reports) > 1)
            echo(f"all {report['num_episodes']} episodes{on} are the same one: there is no interval to tell")
        if "ground" in report:
            show(_ground_table(name, report))
    if "velocity_probe" in first:
        show(_probe_table(reports))
        for name, report in reports.items():
            _print_falls(name, report["velocity_probe"])
            if "kinds" in report["velocity_probe"]:
                show(_kinds_table(name, report))
    for section in first:
        if section.endswith("_probe") and section != "velocity_probe":
            show(_any_probe_table(section, reports))


def _listed(words: Iterable[str]) -> str:
    *several, last = words
    return f"{', '.join(several)} and {last}" if several else last


def _table(reports: Mapping[str, dict[str, Any]]) -> Table:
    """Means with their 95 % intervals, a column for each report, and how the others differ from the first."""
    from rich.table import Table

    first, *others = reports
    table = Table("mean, 95 % interval", first, *others)
    for other in others:
        table.add_column("difference" if len(others) == 1 else f"{other} − {first}")
    columns = list(reports.values())
    metrics = [report["metrics"] for report in columns]

    def row(name: str, values: Sequence[float | None], digits: int, texts: Sequence[str] | None = None) -> None:
        cells = list(texts or [_number(value, digits, "no number") for value in values])
        a = values[0]
        cells += ["" if a is None or b is None else f"{b - a:+.{digits}f}" for b in values[1:]]
        table.add_row(name, *cells)

    for name, digits in (("return", 3), ("length", 1)):
        means, intervals = [one[f"{name}_mean"] for one in metrics], [one[f"{name}_ci95"] for one in metrics]
        halves = ["" if one is None else f" ± {(one[1] - one[0]) / 2:.{digits}f}" for one in intervals]
        texts = [_number(mean, digits) + half for mean, half in zip(means, halves, strict=True)]
        row(name, means, digits, texts)
    rates, intervals = [one["success_rate"] for one in metrics], [one["success_ci95"] for one in metrics]
    ranges = ["" if one is None else f" ({one[0]:.3f} … {one[1]:.3f})" for one in intervals]
    row("success", rates, 3, [_number(rate, 3) + text for rate, text in zip(rates, ranges, strict=True)])
    for key, title, digits in (("task_metrics", "", 4), ("terminations", "ended by ", 3)):
        for name in columns[0][key]:
            row(f"{title}{name}", [report[key][name] for report in columns], digits)
    return table


def _ground_table(name: str, report: dict[str, Any]) -> Table:
    """The return on each kind of generated ground."""
    from rich import box
    from rich.table import Table

    ground = report["ground"]
    title = f"return by kind of ground, {len(ground['levels'])} levels, {name}"
    table = Table(*ground["kinds"], title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_row(*(f"{one['return_mean']:.2f}" for one in ground["kinds"].values()))
    table.add_row(*(f"{one['episodes']} episodes" for one in ground["kinds"].values()), style="dim")
    return table


def _probe_table(reports: Mapping[str, dict[str, Any]]) -> Table:
    """Return the table of a velocity probe: shares of the command, errors by axis, heading drift and falls."""
    from rich import box
    from rich.table import Table

    probes = {name: report["velocity_probe"] for name, report in reports.items()}
    first = next(iter(probes.values()))
    title = f"{first['envs_per_direction']} robots per direction for {first['seconds']:g} s: the share of the command, "
    title += "the error ahead, left and turning (m/s, rad/s), and how far the heading drifts"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("direction", no_wrap=True)
    table.add_column("command", no_wrap=True)
    for name in probes:
        where = "" if len(probes) == 1 else f"\n{name}"
        for column in ("share", "error", "drift", "fell"):
            table.add_column(column + where, no_wrap=True)
    for name, direction in first["directions"].items():
        cells = []
        for probe in probes.values():
            one = probe["directions"][name]
            error = " ".join(f"{part:.2f}" for part in one["error"])
            cells += [_share(one), error, f"{one['heading_drift']:+.0f}°", str(one["falls"] or "")]
        table.add_row(name, " ".join(f"{part:g}" for part in direction["command"]), *cells)
    return table


def _print_falls(name: str, probe: Mapping[str, Any]) -> None:
    """Of how many robots something is known: copies count once."""
    low, high = probe["falls_ci95"]
    alike = probe["robots"] - probe["trials"]
    text = f"{name}: {probe['falls']} of {probe['robots']} robots fell"
    if alike:
        text += f", in {probe['trials']} different trials ({alike} did as another one)"
    echo(f"{text}: 95 % interval {100 * low:.1f} to {100 * high:.1f} %")


def _any_probe_table(section: str, reports: Mapping[str, dict[str, Any]]) -> Table:
    """The numbers of a probe that is not ours, as they stand in the report."""
    from rich.table import Table

    table = Table(section.replace("_", " "), *reports)
    probes = [dict(_flat(report[section])) for report in reports.values()]
    for key in probes[0]:
        table.add_row(key, *(f"{probe.get(key, '')}" for probe in probes))
    return table


def _flat(value: Any, path: str = "") -> Iterable[tuple[str, str]]:
    """The leaves of nested dicts, by their paths."""
    if not isinstance(value, Mapping):
        yield path, " ".join(_short(one) for one in value) if isinstance(value, list | tuple) else _short(value)
        return
    for key, item in value.items():
        yield from _flat(item, f"{path}.{key}" if path else str(key))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _kinds_table(name: str, report: dict[str, Any]) -> Table:
    """The same by kind of ground."""
    from rich import box
    from rich.table import Table

    probe = report["velocity_probe"]
    kinds, levels = probe["kinds"], probe["levels"]
    robots = probe["envs_per_direction"] // len(kinds)
    where = "level 0" if levels == 1 else f"levels 0 to {levels - 1}"
    title = f"by kind of ground, {robots} robots each on {where}, {name}; ×N: N of them fell"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("direction", no_wrap=True)
    for kind in kinds:
        table.add_column(kind)
    for direction in probe["directions"]:
        cells = []
        for directions in kinds.values():
            one = directions[direction]
            cells.append(_share(one) + (f" ×{one['falls']}" if one["falls"] else ""))
        table.add_row(direction, *cells)
    return table


def _share(direction: dict[str, Any]) -> str:
    """Of the command; standing, the speed that was left."""
    fraction = direction["fraction"]
    return f"{direction['achieved']:.3f}" if fraction is None else f"{fraction:.0%}"


def _number(value: float | None, digits: int, absent: str = "not published") -> str:
    return absent if value is None else f"{value:.{digits}f}"


def _print_differences(first: str, differences: Mapping[str, dict[str, Any]]) -> None:
    for other, found in differences.items():
        if found["return_mean"] is None:
            echo(f"{other} and {first} have no episode in common")
            continue
        text = f"{found['return_mean']:+.3f}"
        if found["return_ci95"] is None:
            text += " in each" if found["pairs"] > 1 else ""
        else:
            low, high = found["return_ci95"]
            text += f", 95 % interval {low:+.3f} … {high:+.3f}: " + (
                "no difference shown" * (low <= 0.0 <= high) or "they differ"
            )
        echo(f"return, {other} minus {first}, over {found['pairs']} pairs of episodes: {text}")
