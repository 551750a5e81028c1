"""What the trajectory `wave` is made of: fingers curl in turn, a fist, a spread hand, an OK sign.

`python -m genelab_showcase.gestures FILE.csv` writes it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from genelab.config import atomic_write_text
from genelab_showcase.robots.wuji_hand import FINGERS, JOINTS

STEP_S = 0.01
"""Time from row to row, s."""
LENGTH_S = 5.0
"""Length of all of it, s; it ends as it begins."""

Pose = dict[str, tuple[float, float, float, float]]
"""Angles of the four joints of each finger, from the palm outwards, rad."""

OPEN: Pose = dict.fromkeys(FINGERS, (0.0, 0.0, 0.0, 0.0))
CURLED: Pose = {**dict.fromkeys(FINGERS, (0.9, 0.0, 1.2, 0.7)), "thumb": (0.8, -0.3, 0.5, 0.5)}
FIST: Pose = {**dict.fromkeys(FINGERS, (1.35, 0.0, 1.7, 1.0)), "thumb": (0.76, -0.69, 1.0, 0.67)}
SPREAD: Pose = {
    "thumb": (-0.3, 0.0, -0.2, -0.2),
    "index_finger": (-0.1, -0.3, 0.0, 0.0),
    "middle_finger": (-0.1, 0.0, 0.0, 0.0),
    "ring_finger": (-0.1, 0.2, 0.0, 0.0),
    "pinky": (-0.1, 0.35, 0.0, 0.0),
}
OK_SIGN: Pose = {
    **SPREAD,
    "thumb": (1.06, -0.2, 0.1, 0.11),
    "index_finger": (0.57, 0.0, 0.96, 0.21),
}

WAVE_START_S, WAVE_SHIFT_S, WAVE_CURL_S = 0.1, 0.2, 0.35
"""When the first finger starts to curl, how much later the next one does, and how long each takes to curl, s."""
GESTURES = ((1.7, OPEN), (2.2, FIST), (2.5, FIST), (2.9, SPREAD), (3.2, SPREAD), (3.7, OK_SIGN), (4.4, OK_SIGN))
"""What the whole hand shows after the wave, and when, s."""


def wave() -> np.ndarray:
    """The trajectory, `(500, 20)`."""
    times = np.arange(round(LENGTH_S / STEP_S)) * STEP_S
    columns: list[np.ndarray] = []
    for i, finger in enumerate(reversed(FINGERS)):
        start = WAVE_START_S + i * WAVE_SHIFT_S
        curl = [(start, OPEN), (start + WAVE_CURL_S, CURLED), (start + 2 * WAVE_CURL_S, OPEN)]
        keys = [(0.0, OPEN), *curl, *GESTURES, (LENGTH_S, OPEN)]
        columns.insert(0, _between([(time, pose[finger]) for time, pose in keys], times))
    return np.hstack(columns)


def _between(keys: list[tuple[float, tuple[float, ...]]], times: np.ndarray) -> np.ndarray:
    """Angles at these times, each way from key to key begun and ended at rest, `(len(times), 4)`."""
    marks, angles = np.array([time for time, _ in keys]), np.array([values for _, values in keys])
    last = np.searchsorted(marks, times, side="right") - 1
    share = ((times - marks[last]) / (marks[last + 1] - marks[last]))[:, None]
    share = share**3 * (10.0 - 15.0 * share + 6.0 * share**2)
    return (1.0 - share) * angles[last] + share * angles[last + 1]


def write_csv(path: Path, rows: np.ndarray) -> None:
    """A trajectory as a CSV file, to a tenth of a milliradian."""
    rounded = np.round(rows, 4) + 0.0  # no −0
    lines = [",".join(JOINTS), *(",".join(f"{angle:g}" for angle in row) for row in rounded)]
    atomic_write_text(path, "\n".join(lines) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m genelab_showcase.gestures FILE.csv")
    write_csv(Path(sys.argv[1]), wave())
