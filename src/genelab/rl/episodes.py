"""The book of episodes: what came of each, whoever steps the environment."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from genelab.envs import StepResult

SUCCESS = "is_success"
"""The one key of a step's info that says which environments succeed."""


class Episode(NamedTuple):
    """One that ended."""

    number: int
    """Which of its environment's, from 0."""
    environment: int
    total: float
    """Its return."""
    length: int
    """Control steps."""
    success: bool
    """What the step that ended it said; False if it did not say."""
    details: tuple[float, ...] = ()


@dataclass(kw_only=True)
class Episodes:
    """Keeps episodes as they end, and what the managers log of them."""

    num_envs: int
    device: torch.device
    keep: int | None = None
    """How many of the last episodes count; None: all."""
    quota: int | None = None
    """How many of the first episodes of each environment count; None: all.

    Taking the first episodes to finish, whoever finishes them, would favour short ones.
    """
    restarts: bool = True
    """Whether an environment whose episode ended begins another one by itself; if not, `restart` does."""
    details: Callable[[], Tensor] | None = None
    """What else to keep of the episodes that end with a step, `(width, N)`; meaningless where none ends."""

    def __post_init__(self) -> None:
        self.ended: deque[Episode] = deque(maxlen=self.keep)
        """Those that count, in the order in which they ended."""
        self.tells_success = False
        """Whether a step said who succeeds."""
        self._now = torch.zeros(3, self.num_envs, dtype=torch.float64, device=self.device)
        """Of the episode that each environment is in: which it is, its return and its length so far."""
        self._return, self._length = self._now[1], self._now[2]
        self._over = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        self._logs: list[tuple[int, dict[str, Any]]] = []

    def add(self, step: StepResult) -> None:
        """Take a step of all environments."""
        self._return += step.reward
        self._length += 1
        self.tells_success |= SUCCESS in step.info
        done = step.done
        if not self.restarts:
            done = done & ~self._over
            self._over |= done
        ended = done.nonzero().flatten()
        if "log" in step.info:
            self._logs.append((max(len(ended), 1), step.info["log"]))
        if len(ended):
            self._note(ended if self.keep is None else ended[-self.keep :], step.info)
            self._now[0, ended] += 1.0
            self._now[1:, ended] = 0.0

    def _note(self, ended: Tensor, info: dict[str, Any]) -> None:
        nothing = [()] * len(ended)
        success = info[SUCCESS][ended.to(info[SUCCESS].device)].tolist() if SUCCESS in info else nothing
        details = nothing if self.details is None else self.details()[:, ended].double().T.tolist()
        rows = zip(ended.tolist(), self._now[:, ended].T.tolist(), success, details, strict=True)
        for environment, (number, total, length), succeeded, more in rows:
            if self.quota is None or number < self.quota:
                episode = Episode(int(number), environment, total, int(length), bool(succeeded), tuple(more))
                self.ended.append(episode)

    def first(self, count: int | None = None) -> Sequence[Episode]:
        """The first `count` of those that count: the first ones of all environments before the second ones."""
        return sorted(self.ended)[:count]

    def restart(self) -> None:
        """All episodes begin anew; those that were running do not count."""
        self._return.zero_()
        self._length.zero_()
        self._over.zero_()

    @property
    def full(self) -> bool:
        """Whether every environment has its quota."""
        return self.quota is not None and len(self.ended) == self.quota * self.num_envs

    @property
    def return_mean(self) -> float | None:
        """Mean return; None before an episode has ended."""
        return sum(episode.total for episode in self.ended) / len(self.ended) if self.ended else None

    @property
    def length_mean(self) -> float | None:
        """Mean length in control steps; None before an episode has ended."""
        return sum(episode.length for episode in self.ended) / len(self.ended) if self.ended else None

    def drain(self) -> dict[str, float]:
        """Mean of what was logged since the last call, by key, over the episodes that ended.

        A log is the mean over those that ended in one step; it counts as often as there were.
        """
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for count, log in self._logs:
            for key, value in log.items():
                sums[key] = sums.get(key, 0.0) + count * float(value)
                counts[key] = counts.get(key, 0) + count
        self._logs.clear()
        return {key: total / counts[key] for key, total in sums.items()}

    def state(self) -> dict[str, Any]:
        """To go on counting after a stop."""
        return {
            "returns": [episode.total for episode in self.ended],
            "lengths": [episode.length for episode in self.ended],
            "return": self._return.to("cpu", copy=True),
            "length": self._length.to("cpu", copy=True),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; which environments the episodes of before were in is not known."""
        pairs = zip(state["returns"], state["lengths"], strict=True)
        self.ended.extend(Episode(-1, -1, total, int(length), False) for total, length in pairs)
        self._return.copy_(state["return"])
        self._length.copy_(state["length"])
