"""How a run learned, as a table and a picture: `python -m benchmarks.curves RUN DIR` (extra `plot`)."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

COLUMNS = {
    "return": "Train/mean_reward",
    "length": "Train/mean_episode_length",
    "error_vel_xy": "Metrics/error_vel_xy",
    "error_vel_yaw": "Metrics/error_vel_yaw",
    "level": "Curriculum/terrain_levels",
    "noise_std": "Policy/mean_std",
}
"""Columns of the table, and what they are called in the log; those that a run does not have are left out."""
POINTS = 150
"""Rows of the table: means over as many equal parts of the run."""
PANELS = {
    "return": "return of an episode, as trained",
    "length": "length of an episode, control steps",
    "error_vel_xy": "distance from the commanded velocity, m/s",
    "level": "level of the ground",
}


def main(run: Path, target: Path) -> None:
    """Write `curve.csv` and `curve.png`."""
    table = _read(run)
    target.mkdir(parents=True, exist_ok=True)
    with open(target / "curve.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table)
        writer.writerows([f"{value:.5g}" for value in row] for row in zip(*table.values(), strict=True))
    _draw(table, target / "curve.png")


def _read(run: Path) -> dict[str, np.ndarray]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = EventAccumulator(str(run), size_guidance={"scalars": 0})
    log.Reload()
    known = log.Tags()["scalars"]
    steps = log.Scalars("Train/env_steps")
    table = {
        "iteration": np.array([event.step for event in steps], dtype=float),
        "env_steps": np.array([event.value for event in steps]),
        "minutes": np.array([(event.wall_time - steps[0].wall_time) / 60 for event in steps]),
    }
    for name, tag in COLUMNS.items():
        if tag in known:
            events = log.Scalars(tag)
            table[name] = np.interp(table["iteration"], [e.step for e in events], [e.value for e in events])
    parts = np.array_split(np.arange(len(steps)), min(POINTS, len(steps)))
    return {name: np.array([values[part].mean() for part in parts]) for name, values in table.items()}


def _draw(table: dict[str, np.ndarray], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = {name: label for name, label in PANELS.items() if name in table}
    figure = Figure(figsize=(4.2 * len(panels), 3.2), dpi=90, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, label) in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels.items(), strict=True):
        axes.plot(table["minutes"], table[name], color="#1f6f8b", linewidth=1.8)
        axes.set_title(label, fontsize=10, loc="left")
        axes.set_xlabel("minutes")
        axes.set_ylim(bottom=min(0.0, float(table[name].min())))
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
