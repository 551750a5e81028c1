"""Where a policy breaks, as a picture: one panel per sweep, what is left of the task over what was changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from genelab.report.curves import COLOURS, COLUMNS, INK, draw_on, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TITLES = {"share": "command followed", "success_rate": "success", "return_mean": "return"}
_KEPT, _WORST, _FALLS = COLOURS[0], COLOURS[5], COLOURS[1]


def draw_robustness(report: Mapping[str, Any], form: Literal["svg", "png"]) -> bytes:
    """The section `robustness` of an evaluation's report."""
    robustness = report["robustness"]
    sweeps = robustness["sweeps"]
    rows = -(-len(sweeps) // COLUMNS)
    figure = draw_on(4.1 * COLUMNS, 2.9 * rows + 0.9)
    figure.suptitle(f"{report['task']}: one thing changed at a time", x=0.01, ha="left", fontsize=12, color=INK)
    axes = figure.subplots(rows, COLUMNS, squeeze=False).flatten()
    for panel in axes[len(sweeps) :]:
        panel.set_visible(False)
    for panel, (name, sweep) in zip(axes, sweeps.items(), strict=False):
        _draw(panel, name, sweep, robustness)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=len(labels), frameon=False, fontsize=9)
    return save_figure(figure, form)


def _draw(axes: Axes, name: str, sweep: Mapping[str, Any], robustness: Mapping[str, Any]) -> None:
    """One sweep; values are evenly spaced, in their order, and the task's own world is a dashed line."""
    measure, nominal = robustness["measure"], robustness["nominal"]
    own = {"value": sweep["nominal"], "text": _own(sweep), "holds": True, **nominal}
    settings = sorted([own, *sweep["settings"]], key=lambda one: one["value"])
    places = range(len(settings))
    axes.axvline(settings.index(own), color="#9aa5ac", linewidth=1.0, linestyle="dashed")
    for i, one in enumerate(settings):
        if not one["holds"]:
            axes.axvspan(i - 0.5, i + 0.5, color=_FALLS, alpha=0.1, linewidth=0)
    if "worst_share" in nominal:
        values = [one["worst_share"] for one in settings]
        axes.plot(places, values, color=_WORST, linewidth=1.3, marker="o", markersize=3, label="in the worst direction")
    values = [one[measure] for one in settings]
    axes.plot(places, values, color=_KEPT, linewidth=1.8, marker="o", markersize=4, label=_TITLES[measure])
    falls = [one["falls"] / one["robots"] for one in settings]
    fallen = axes.twinx() if measure == "return_mean" else axes
    fallen.plot(places, falls, color=_FALLS, linewidth=1.3, marker="x", markersize=5, label="share that failed")
    if fallen is not axes:
        axes.plot([], [], color=_FALLS, linewidth=1.3, marker="x", markersize=5, label="share that failed")
        fallen.set_ylim(-0.04, 1.04)
        fallen.tick_params(labelsize=8.5, colors=_FALLS, length=3)
        fallen.spines[["top", "left"]].set_visible(False)
        axes.set_ylim(bottom=min(0.0, *values) - 0.04 * max(map(abs, values)))
    else:
        axes.set_ylim(-0.05, 1.1)
    axes.set_xlim(-0.5, len(settings) - 0.5)
    axes.set_xticks(places, [one["text"] for one in settings])
    axes.set_title(name, fontsize=10, loc="left", color=INK)
    axes.grid(axis="y", color="#e3e7ea", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8.5, colors=INK, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#9aa5ac")


def _own(sweep: Mapping[str, Any]) -> str:
    return f"× {sweep['nominal']:g}" if sweep["unit"] == "×" else "0"
