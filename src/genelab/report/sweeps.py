"""What a sweep found: its trials as a table, and pictures of how the objective came down or up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from genelab.report.curves import COLOURS, COLUMNS, INK, as_drawn, draw_on, save_figure
from genelab.report.tables import Table, duration
from genelab.rl.sweep.objective import Objective, told
from genelab.rl.sweep.space import Range, parse_ranges
from genelab.rl.sweep.study import STUDY_FILE, SweepSettings, Trial, best_of, read_study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GREY = "#9aa5ac"


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep as a report reads it."""

    path: Path
    settings: SweepSettings
    trials: Sequence[Trial]

    @property
    def objective(self) -> Objective:
        """What it looked for."""
        return self.settings.goal

    @property
    def ranges(self) -> list[Range]:
        """What it searched."""
        return parse_ranges(self.settings.params)

    @property
    def best(self) -> Trial | None:
        """The best trial."""
        return best_of(self.trials, self.objective)

    @property
    def own(self) -> Trial | None:
        """The trial of the task's own settings, if it was completed."""
        return next((one for one in self.trials if one.is_own and one.state == "completed"), None)


def is_sweep(path: Path) -> bool:
    """Whether a directory is that of a sweep."""
    return (path / STUDY_FILE).is_file()


def read_sweep(path: Path) -> Sweep:
    """What is known of a sweep."""
    settings, trials = read_study(path)
    return Sweep(path=path, settings=settings, trials=trials)


def trial_table(sweep: Sweep) -> Table:
    """Every trial, the best first; those without a result after them, in their order."""
    paths = [one.path for one in sweep.ranges]
    best = sweep.best
    rows = []
    for trial in sorted(sweep.trials, key=lambda one: _rank(one, sweep.objective)):
        marks = ["best"] * (trial is best) + ["task's own"] * trial.is_own
        if trial.retry_of is not None:
            marks.append(f"trial {trial.retry_of} again")
        state = ", ".join([trial.state, *marks]) + (f": {trial.reason}" if trial.reason else "")
        values = (_shown(trial.params.get(path)) for path in paths)
        time = "–" if trial.seconds is None else duration(trial.seconds)
        rows.append((str(trial.number), told(trial.value), *values, time, state))
    return Table(head=("trial", "objective", *paths, "time", "state"), rows=rows)


def _rank(trial: Trial, objective: Objective) -> tuple[bool, float, int]:
    if trial.value is None:
        return True, 0.0, trial.number
    return False, trial.value if objective.is_race else -trial.value, trial.number


def _shown(value: object) -> str:
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def summary_table(sweep: Sweep) -> Table:
    """What was looked for, and what was found."""
    settings, best, own = sweep.settings, sweep.best, sweep.own
    counts = {state: sum(trial.state == state for trial in sweep.trials) for state in ("completed", "pruned", "failed")}
    killed = sum(trial.state == "killed" for trial in sweep.trials)
    counted = ", ".join(f"{count} {state}" for state, count in counts.items())
    rows = [
        ("objective", str(sweep.objective)),
        ("best", "none" if best is None else f"{told(best.value)}, trial {best.number}"),
        ("task's own settings", "–" if own is None else f"{told(own.value)}, trial {own.number}"),
        ("trials", f"{counted} of {settings.trials}; {killed} killed, which do not count"),
        *((f"range of {one.path}", one.text) for one in sweep.ranges),
        ("seed of every training", str(settings.seed)),
        ("evaluation", f"every {settings.eval_every} iterations, {settings.eval_episodes} episodes"),
    ]
    if settings.overrides:
        rows.append(("overrides", " ".join(f"{path}={text}" for path, text in settings.overrides.items())))
    return Table(head=("", "sweep"), rows=rows)


def draw_sweep(sweep: Sweep, form: Literal["svg", "png"]) -> bytes:
    """The objective by trial, the evaluations on the way, and the objective by each setting."""
    panels = 2 + len(sweep.ranges)
    rows = -(-panels // COLUMNS)
    figure = draw_on(4.1 * COLUMNS, 2.9 * rows + 0.5, pad=None)
    figure.suptitle(as_drawn(f"{sweep.settings.task}: {sweep.objective}"), x=0.01, ha="left", fontsize=12, color=INK)
    axes = np.atleast_1d(figure.subplots(rows, COLUMNS)).flatten()
    for panel in axes[panels:]:
        panel.set_visible(False)
    _draw_history(axes[0], sweep)
    _draw_way(axes[1], sweep)
    for panel, one in zip(axes[2:], sweep.ranges, strict=False):
        _draw_setting(panel, sweep, one)
    for panel in axes[:panels]:
        panel.grid(color="#e3e7ea", linewidth=0.7)
        panel.set_axisbelow(True)
        panel.tick_params(labelsize=8.5, colors=INK, length=3)
        panel.spines[["top", "right"]].set_visible(False)
        panel.spines[["left", "bottom"]].set_color(_GREY)
    return save_figure(figure, form)


def _draw_history(axes: Axes, sweep: Sweep) -> None:
    done = [trial for trial in sweep.trials if trial.has_value]
    _title(axes, "objective", "trial")
    best: list[tuple[int, float]] = []
    for trial in done:
        assert trial.value is not None
        if not best or sweep.objective.is_better(trial.value, best[-1][1]):
            best.append((trial.number, trial.value))
    numbers, values = [trial.number for trial in done], [trial.value or 0.0 for trial in done]
    axes.scatter(numbers, values, color=COLOURS[0], s=18, label="a trial")
    if best:
        ends = [*best, (max(trial.number for trial in sweep.trials), best[-1][1])]
        axes.step(
            [at for at, _ in ends],
            [value for _, value in ends],
            where="post",
            color=COLOURS[1],
            linewidth=1.7,
            label="best so far",
        )
    if sweep.own is not None and sweep.own.has_value:
        axes.axhline(sweep.own.value or 0.0, color=_GREY, linestyle="dashed", linewidth=1.2, label="task's own")
    for trial in sweep.trials:
        if not trial.has_value and trial.state != "waiting":
            axes.axvline(trial.number, color=_GREY, linewidth=0.6, alpha=0.6)
    if done:
        axes.legend(fontsize=8, frameon=False)


def _draw_way(axes: Axes, sweep: Sweep) -> None:
    """What evaluations found while it learned."""
    sign = -1.0 if sweep.objective.is_race else 1.0
    _title(axes, "evaluations on the way", "control steps")
    best = sweep.best
    for trial in sweep.trials:
        steps, values = list(trial.curve), [sign * value for value in trial.curve.values()]
        colour, width = (COLOURS[1], 2.0) if trial is best else (COLOURS[0], 0.9)
        if trial.is_own and trial is not best:
            colour, width = "#26323a", 1.8
        dead = trial.state != "completed"
        shown = _GREY if dead else colour
        axes.plot(steps, values, color=shown, linewidth=width, marker="x" if dead else "", markevery=[-1])
    if sweep.objective.target is not None:
        axes.axhline(sweep.objective.target, color=_GREY, linestyle="dashed", linewidth=1.2)


def _draw_setting(axes: Axes, sweep: Sweep, one: Range) -> None:
    done = [trial for trial in sweep.trials if trial.has_value and one.path in trial.params]
    _title(axes, one.path, one.text)
    if one.kind == "choice":
        places = {choice: place for place, choice in enumerate(one.choices)}
        at = [float(places.get(str(trial.params[one.path]), math.nan)) for trial in done]
        axes.set_xticks(range(len(one.choices)), map(as_drawn, one.choices))
    else:
        at = [float(trial.params[one.path]) for trial in done]
        axes.set_xscale("log" if one.kind == "log" else "linear")
    colours = [COLOURS[1] if trial is sweep.best else "#26323a" if trial.is_own else COLOURS[0] for trial in done]
    axes.scatter(at, [trial.value or 0.0 for trial in done], color=colours, s=20)


def _title(axes: Axes, title: str, below: str) -> None:
    axes.set_title(as_drawn(title), fontsize=9.5, loc="left", color=INK)
    axes.set_xlabel(as_drawn(below), fontsize=9, color=INK)
