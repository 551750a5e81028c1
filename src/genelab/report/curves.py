"""Learning curves as pictures: one line per config, the mean of its seeds, in a band from the lowest to the highest."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from genelab.errors import UsageError
from genelab.report.runs import Group, Run
from genelab.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Unit = Literal["steps", "minutes", "iterations"]
"""How long was learned: control steps of all environments, minutes of learning, or what the budget counts."""
UNITS: tuple[Unit, ...] = get_args(Unit)
POINTS = 150
"""Points of a curve: means over as many equal parts of the run."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
"""Colours that the colour-blind can tell apart, after Okabe and Ito."""
COLUMNS = 3
"""Panels in a row."""
MOST_PANELS = 9
TERMS = "Episode_Reward/"
INK = "#26323a"
"""Of letters and axes."""
_PANELS = {
    "Train/mean_reward": "return of an episode",
    "Train/mean_episode_length": "length of an episode, control steps",
    "Eval/return_mean": "return, evaluated",
    "Eval/success_rate": "success, evaluated",
}
"""What is shown of every task, in this order, with its title."""
_AXES: dict[Unit, str] = {"steps": "control steps", "minutes": "minutes of learning"}

Band = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Where, mean, lowest, highest."""


def thin(x: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The means over equal parts of a curve."""
    parts = np.array_split(np.arange(len(x)), min(POINTS, len(x)))
    return np.array([x[part].mean() for part in parts]), np.array([values[part].mean() for part in parts])


def band(runs: Sequence[Run], tag: str, unit: Unit) -> Band | None:
    """Mean, lowest and highest of some runs, as far as all of them go; None if none logged this."""
    curves = []
    for run in runs:
        if (curve := run.curves.get(tag)) is not None:
            fine = np.isfinite(curve.values)
            if fine.any():
                curves.append(thin(run.axis(curve.iteration[fine], unit), curve.values[fine]))
    if not curves:
        return None
    if len(curves) == 1:
        x, values = curves[0]
        return x, values, values, values
    start, end = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    grid = np.linspace(start, max(start, end), min(POINTS, max(len(x) for x, _ in curves)))
    values = np.stack([np.interp(grid, x, y) for x, y in curves])
    return grid, values.mean(axis=0), values.min(axis=0), values.max(axis=0)


def draw_curves(groups: Sequence[Group], unit: Unit, form: Literal["svg", "png"]) -> bytes:
    """The curves of all groups, a block of panels for every task."""
    tasks = list(dict.fromkeys(group.task for group in groups))
    blocks = [[group for group in groups if group.task == task] for task in tasks]
    panels = [_panels(block) for block in blocks]
    rows = [-(-len(block) // COLUMNS) for block in panels]
    heights = [2.75 * n + 0.75 for n in rows]
    figure = draw_on(4.1 * COLUMNS, sum(heights))
    parts = np.atleast_1d(figure.subfigures(len(blocks), 1, height_ratios=heights, squeeze=True))
    for part, block, titles, count in zip(parts, blocks, panels, rows, strict=True):
        part.suptitle(as_drawn(block[0].task), x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
        axes = np.atleast_1d(part.subplots(count, COLUMNS)).flatten()
        for panel in axes[len(titles) :]:
            panel.set_visible(False)
        for panel, (tag, title) in zip(axes, titles.items(), strict=False):
            _draw_panel(panel, block, tag, title, unit)
        if len(block) > 1:
            handles, labels = axes[0].get_legend_handles_labels()
            part.legend(handles, labels, loc="outside upper right", ncols=min(len(block), 4), frameon=False, fontsize=9)
    return save_figure(figure, form)


def axis_label(groups: Sequence[Group], unit: Unit) -> str:
    """What the axis counts; what a budget counts is its library's to say."""
    return _AXES.get(unit) or " or ".join(dict.fromkeys(run.unit for group in groups for run in group.runs))


def _panels(groups: Sequence[Group]) -> dict[str, str]:
    """Tags that at least one run has, with their titles."""
    tags = {tag for group in groups for run in group.runs for tag in run.curves}
    chosen = {tag: title for tag, title in _PANELS.items() if tag in tags}
    for kind in ("Metrics/", "Curriculum/"):
        chosen |= {tag: tag.removeprefix(kind) for tag in sorted(tags) if tag.startswith(kind)}
    if "Policy/mean_std" in tags:
        chosen["Policy/mean_std"] = "standard deviation of the actions"
    if not chosen:  # no episode has ended yet
        chosen["Train/env_steps"] = "control steps"
    return dict(list(chosen.items())[:MOST_PANELS])


def _draw_panel(axes: Axes, groups: Sequence[Group], tag: str, title: str, unit: Unit) -> None:
    drawn = [one for one in (band(group.runs, tag, unit) for group in groups) if one is not None]
    for i, group in enumerate(groups):
        found, colour = band(group.runs, tag, unit), COLOURS[i % len(COLOURS)]
        if found is not None:
            x, mean, low, high = found
            axes.plot(
                x,
                mean,
                color=colour,
                linewidth=1.7,
                label=as_drawn(group.label),
                marker="o" if len(x) < 12 else "",
                markersize=4,
            )
            if len(group.runs) > 1:
                axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_title(as_drawn(title), fontsize=10, loc="left", color=INK)
    axes.set_xlabel(axis_label(groups, unit), fontsize=9, color=INK)
    axes.set_xlim(left=0)
    if all(low.min() >= 0 for _, _, low, _ in drawn):
        axes.set_ylim(bottom=0)
    axes.grid(color="#e3e7ea", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8.5, colors=INK, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#9aa5ac")
    if unit == "steps":
        axes.xaxis.set_major_formatter(_short_number)


def _short_number(value: float, position: float) -> str:
    """A number as it is said: 1.5 M."""
    for size, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:g}{name}"
    return f"{value:g}"


def draw_terms(groups: Sequence[Group]) -> bytes | None:
    """What each reward term paid at the end, for the groups of one task, as bars; None if it was not logged."""
    names = list(dict.fromkeys(tag for group in groups for tag in group.runs[0].curves if tag.startswith(TERMS)))
    if not names:
        return None
    figure = draw_on(8.6, 0.55 + len(names) * (0.16 + 0.14 * len(groups)), pad=None)
    axes = figure.add_subplot()
    thickness = 0.8 / len(groups)
    for i, group in enumerate(groups):
        values = [last_share(group.runs, name) for name in names]
        places = np.arange(len(names)) + (i - (len(groups) - 1) / 2) * thickness
        axes.barh(places, values, height=thickness, color=COLOURS[i % len(COLOURS)], label=as_drawn(group.label))
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(names)), [as_drawn(name.removeprefix(TERMS)) for name in names], fontsize=9)
    axes.invert_yaxis()
    axes.grid(axis="x", color="#e3e7ea", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9, colors=INK, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines[["bottom"]].set_color("#9aa5ac")
    axes.set_xlabel("reward per second of a full episode, mean of the last tenth of the run", fontsize=9, color=INK)
    if len(groups) > 1:
        axes.legend(fontsize=9, frameon=False)
    return save_figure(figure, "svg")


def last_share(runs: Sequence[Run], tag: str, share: float = 0.1) -> float:
    """Mean over runs of the mean over the last part of each; NaN if none logged this."""
    found = [run.curves[tag].values for run in runs if tag in run.curves]
    return float(np.mean([values[-max(1, round(share * len(values))) :].mean() for values in found] or [np.nan]))


def as_drawn(text: str) -> str:
    """Text of a run as a picture shows it: a dollar begins no formula, and nothing turns the order of a line."""
    return printable(text).replace("$", r"\$")


def save_figure(figure: Any, form: str) -> bytes:
    """The figure as a file; the same curves make the same bytes."""
    import matplotlib

    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "genelab"}):
        figure.savefig(file, format=form, metadata={"Date": None} if form == "svg" else None)
    return file.getvalue()


def draw_on(width: float, height: float, pad: tuple[float, float] | None = (0.09, 0.07)) -> Any:
    """An empty figure of this size, inch, with room between its panels."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("curves need matplotlib: pip install 'genelab[plot]'") from error
    figure = Figure(figsize=(width, height), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    if pad is not None:
        engine: Any = figure.get_layout_engine()
        engine.set(w_pad=pad[0], h_pad=pad[1])
    return figure
