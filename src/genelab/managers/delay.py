"""Values that arrive late, by a number of control steps drawn for each environment."""

from __future__ import annotations

import torch
from torch import Tensor

from genelab import math as gm
from genelab.errors import ConfigError
from genelab.sim import EnvIds


class Past:
    """The last values of every environment; until it has a past, its first value."""

    def __init__(self, frames: int) -> None:
        self._frames = frames
        self._begun: list[EnvIds] = []
        """Environments that have begun an episode since the last value."""
        self._values: Tensor | None = None

    def push(self, value: Tensor, *, keep: bool = True) -> Tensor:
        """The values, `(frames, N, ...)`, the newest first; with `keep=False` as if this one came, without remembering
        it."""
        past = value.expand(self._frames - 1, *value.shape) if self._values is None else self._values[:-1]
        values = torch.cat((value[None], past))
        for env_ids in self._begun:
            gm.put_rows(values, env_ids, gm.rows(value, env_ids).expand(self._frames, -1, *value.shape[1:]), dim=1)
        if keep:
            self._values, self._begun = values, []
        return values

    def begin(self, value: Tensor, env_ids: Tensor) -> None:
        """Take the first values of these environments, `(len(env_ids), ...)`; for the others no time passes."""
        assert self._values is not None
        self._values = self._values.clone()  # whoever pushed last may still hold it
        gm.put_rows(self._values, env_ids, value.expand(self._frames, *value.shape), dim=1)
        self._begun = []

    def reset(self, env_ids: EnvIds) -> None:
        """Forget the past of these environments."""
        self._begun.append(env_ids)


class DelayBuffer(Past):
    """Remembers the last values and gives back those of `lag` steps ago.

    A reset environment draws a new lag; until it has a past, it sees its first value.
    """

    def __init__(self, lag_range: tuple[int, int], num_envs: int, rng: torch.Generator) -> None:
        self._low, self._high = lag_range
        if not 0 <= self._low <= self._high:
            raise ConfigError(f"a delay is a fewest and a most number of steps, 0 or more, got {lag_range}")
        super().__init__(self._high + 1)
        self._rng = rng
        self._rows = torch.arange(num_envs, device=rng.device)
        self.lag = torch.zeros(num_envs, dtype=torch.int64, device=rng.device)
        self._held = False
        """Whether the lags stay as they are."""

    @classmethod
    def held(cls, lag: Tensor, rng: torch.Generator) -> DelayBuffer:
        """One whose lags, `(N,)`, are given and stay."""
        buffer = cls((0, int(lag.max())), len(lag), rng)
        buffer.lag[:] = lag
        buffer._held = True
        return buffer

    def push(self, value: Tensor, *, keep: bool = True) -> Tensor:
        """The delayed value; with `keep=False` as if this value came, without remembering it."""
        return super().push(value, keep=keep)[self.lag, self._rows]

    def reset(self, env_ids: EnvIds) -> None:
        """Forget the past of these environments and draw their lags."""
        super().reset(env_ids)
        rows = self._rows if env_ids is None else env_ids
        if not self._held:
            span, shape = (self._low, self._high + 1), (len(rows),)
            self.lag[rows] = torch.randint(*span, shape, generator=self._rng, device=self._rng.device)
