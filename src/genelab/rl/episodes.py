"""Episodes as they end: returns, lengths, and what the managers log of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(kw_only=True)
class Episodes:
    """Returns and lengths of episodes as they end, and what the managers log of them."""

    num_envs: int
    device: torch.device
    keep: int | None = None
    """How many of the last episodes count; None: all."""
    restarts: bool = True
    """Whether an environment whose episode ended begins another one by itself; if not, `restart` does."""

    def __post_init__(self) -> None:
        self.returns: deque[float] = deque(maxlen=self.keep)
        self.lengths: deque[float] = deque(maxlen=self.keep)
        self._return = torch.zeros(self.num_envs, device=self.device)
        self._length = torch.zeros(self.num_envs, device=self.device)
        self._over = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        self._logs: list[tuple[int, dict[str, Any]]] = []

    def add(self, reward: Tensor, done: Tensor, info: dict[str, Any]) -> None:
        """Take a step of all environments."""
        self._return += reward
        self._length += 1
        if not self.restarts:
            done = done & ~self._over
            self._over |= done
        ended = done.nonzero().flatten()
        if "log" in info:
            self._logs.append((max(len(ended), 1), info["log"]))
        if len(ended):
            self.returns.extend(self._return[ended].tolist())
            self.lengths.extend(self._length[ended].tolist())
            self._return[ended] = 0.0
            self._length[ended] = 0.0

    def restart(self) -> None:
        """All episodes begin anew; those that were running do not count."""
        self._return.zero_()
        self._length.zero_()
        self._over.zero_()

    @property
    def return_mean(self) -> float | None:
        """Mean return; None before an episode has ended."""
        return sum(self.returns) / len(self.returns) if self.returns else None

    @property
    def length_mean(self) -> float | None:
        """Mean length in control steps; None before an episode has ended."""
        return sum(self.lengths) / len(self.lengths) if self.lengths else None

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
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "return": self._return.cpu(),
            "length": self._length.cpu(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.returns.extend(state["returns"])
        self.lengths.extend(state["lengths"])
        self._return, self._length = state["return"].to(self.device), state["length"].to(self.device)
