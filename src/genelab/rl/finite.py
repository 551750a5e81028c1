"""Detect NaN and infinity in what judges and learns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from genelab.envs import FiniteGuard, ManagerBasedRlEnv


class Diverged(Exception):
    """A learner that cannot go on; says which of its numbers is none."""


@contextmanager
def guarded(env: ManagerBasedRlEnv) -> Iterator[None]:
    """Let a guard look on, if none does."""
    if any(isinstance(watcher, FiniteGuard) for watcher in env.watchers):
        yield
        return
    guard = FiniteGuard(env)
    with env.watched_by(guard):
        yield
        guard.look()


def first_not_finite(numbers: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor that has a NaN or an infinity in it; the device is asked once if none has."""
    if not numbers or torch.stack([values.sum().double() for values in numbers.values()]).isfinite().all():
        return None
    return next((name for name, values in numbers.items() if not values.isfinite().all()), None)
