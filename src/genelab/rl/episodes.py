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

    def __post_init__(self) -> None:
        self.returns: deque[float] = deque(maxlen=self.keep)
        self.lengths: deque[float] = deque(maxlen=self.keep)
        self._return = torch.zeros(self.num_envs, device=self.device)
        self._length = torch.zeros(self.num_envs, device=self.device)
        self._logs: list[dict[str, Any]] = []

    def add(self, reward: Tensor, done: Tensor, info: dict[str, Any]) -> None:
        """Take a step of all environments."""
        self._return += reward
        self._length += 1
        if "log" in info:
            self._logs.append(info["log"])
        ended = done.nonzero().flatten()
        if len(ended):
            self.returns.extend(self._return[ended].tolist())
            self.lengths.extend(self._length[ended].tolist())
            self._return[ended] = 0.0
            self._length[ended] = 0.0

    def restart(self) -> None:
        """All episodes begin anew; those that were running do not count."""
        self._return.zero_()
        self._length.zero_()

    @property
    def return_mean(self) -> float | None:
        """Mean return; None before an episode has ended."""
        return sum(self.returns) / len(self.returns) if self.returns else None

    @property
    def length_mean(self) -> float | None:
        """Mean length in control steps; None before an episode has ended."""
        return sum(self.lengths) / len(self.lengths) if self.lengths else None

    def drain(self) -> dict[str, float]:
        """Mean of what was logged since the last call, by key."""
        values: dict[str, list[float]] = {}
        for log in self._logs:
            for key, value in log.items():
                values.setdefault(key, []).append(float(value))
        self._logs.clear()
        return {key: sum(numbers) / len(numbers) for key, numbers in values.items()}

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
