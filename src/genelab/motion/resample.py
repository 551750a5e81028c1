"""A motion at another rate, cut, or smoothed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from genelab.errors import UsageError
from genelab.motion.clip import Clip
from genelab.motion.rotation import continuous, normalized, slerp

MAX_FRAMES = 1_000_000
"""More than five hours at 50 Hz: a rate that asks for more is a mistake, and would fill the memory."""


def resample(clip: Clip, fps: float) -> Clip:
    """The same motion at another rate: straight lines between frames, and even turns."""
    if fps == clip.fps:
        return clip
    count = math.floor(clip.seconds * fps + 1e-6) + 1
    if count < 2:
        raise UsageError(f"{clip.seconds:.3g} s at {fps:g} Hz are one frame, a motion has two at least")
    if count > MAX_FRAMES:
        raise UsageError(f"{clip.seconds:.3g} s at {fps:g} Hz are {count:.3g} frames, and {MAX_FRAMES:,} are the most")
    place = np.minimum(np.arange(count) * (clip.fps / fps), len(clip) - 1.0)
    first = np.minimum(place.astype(int), len(clip) - 2)
    share = place - first

    def blend(values: np.ndarray) -> np.ndarray:
        return values[first] + share[:, None] * (values[first + 1] - values[first])

    quat = normalized(clip.root_quat)
    return Clip(
        fps=fps,
        root_pos=blend(clip.root_pos),
        root_quat=slerp(quat[first], quat[first + 1], share),
        joint_pos=blend(clip.joint_pos),
    )


def cut(clip: Clip, start: float | None, end: float | None) -> Clip:
    """What lies between two times, s."""
    low = 0 if start is None else round(start * clip.fps)
    high = len(clip) if end is None else round(end * clip.fps) + 1
    if not 0 <= low < high - 1 or high > len(clip):
        given = f"from {'0' if start is None else f'{start:g}'} to {'its end' if end is None else f'{end:g}'} s"
        raise UsageError(f"there is no motion {given}: it lasts {clip.seconds:.3f} s")
    part = slice(low, high)
    bodies = None if clip.bodies is None else (clip.bodies[0][part], clip.bodies[1][part])
    return replace(
        clip,
        root_pos=clip.root_pos[part],
        root_quat=clip.root_quat[part],
        joint_pos=clip.joint_pos[part],
        bodies=bodies,
    )


def smooth(clip: Clip, cutoff: float) -> Clip:
    """Without what is faster than `cutoff`, Hz, and without delay: a Gaussian that leaves half of that frequency's
    power. The ends stay where they are."""
    sigma = math.sqrt(math.log(2.0)) / (2.0 * math.pi * cutoff) * clip.fps  # frames
    reach = min(math.ceil(4.0 * sigma), len(clip) - 1)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / max(sigma, 1e-9)) ** 2)
    kernel /= kernel.sum()

    def filtered(values: np.ndarray) -> np.ndarray:
        # Turned about its ends, a signal goes on with the same slope, and keeps its first and last value.
        before, after = 2 * values[0] - values[reach:0:-1], 2 * values[-1] - values[-2 : -reach - 2 : -1]
        padded = np.concatenate((before, values, after))
        return np.stack([np.convolve(column, kernel, mode="valid") for column in padded.T], axis=1)

    return Clip(
        fps=clip.fps,
        root_pos=filtered(clip.root_pos),
        root_quat=normalized(filtered(continuous(normalized(clip.root_quat)))),
        joint_pos=filtered(clip.joint_pos),
    )
