"""Observations: what the policy sees, and what only the critic does (privileged observations).

All terms of a group are laid side by side and go together through noise → clip → scale; then a term may be delayed, and
the group may stack its last frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import torch
from torch import Tensor

from genelab import math as gm
from genelab.config.bounds import Bounds
from genelab.errors import ConfigError
from genelab.managers.base import Table, Term, TermCfg, _name, _shape
from genelab.managers.delay import DelayBuffer
from genelab.managers.noise import GaussianNoiseCfg, NoiseCfg, UniformNoiseCfg
from genelab.sim import EnvIds
from genelab.state import Stateful, undone

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv


@dataclass(kw_only=True)
class ObservationTermCfg(TermCfg):
    """A measured quantity: a function that returns `(num_envs, d)`."""

    noise: NoiseCfg | None = None
    """Added first."""
    clip: tuple[float, float] | None = None
    """Bounds after the noise."""
    scale: float | tuple[float, ...] = 1.0
    """Factor after the clip; one number, or one per column."""
    delay: tuple[int, int] = (0, 0)
    """Fewest and most control steps it arrives late; drawn for each environment at its reset."""

    def then(
        self,
        *,
        noise: NoiseCfg | None = None,
        clip: tuple[float, float] | None = None,
        scale: float | tuple[float, ...] = 1.0,
        delay: tuple[int, int] = (0, 0),
    ) -> ObservationTermCfg:
        """The same quantity, processed, in this order."""
        return replace(self, noise=noise, clip=clip, scale=scale, delay=delay)


@dataclass(kw_only=True)
class ObservationGroupCfg:
    """Terms that go to one network as one vector."""

    terms: dict[str, ObservationTermCfg] = field(default_factory=dict)
    """Terms in the order they are laid out."""
    enable_noise: bool = True
    """Whether the terms' noise is on; off for critics, playback and evaluation."""
    history_length: Annotated[int, Bounds(1, 10_000)] = 1
    """Frames stacked, oldest first. After a reset the first frame fills the stack."""


@dataclass(frozen=True)
class TermLayout:
    """Where a term lies in one frame of its group."""

    name: str
    start: int
    dim: int
    scale: float | tuple[float, ...]
    clip: tuple[float, float] | None


class ObservationGroup(Stateful):
    """Computes one vector per environment."""

    parts = ("terms",)
    not_state = (
        "layout",
        "raw",
        "_with_memory",
        "_scale",
        "_clip_low",
        "_clip_high",
        "_noisy",
        "_noise_middle",
        "_noise_reach",
        "_noise_std",
        "_noise_share",
    )

    _shown: Tensor | None = None
    """The last observation."""

    def __init__(self, name: str, cfg: ObservationGroupCfg, env: ManagerBasedEnv) -> None:
        self.name = name
        self.cfg = cfg
        self.env = env
        self.cfgs = cfg.terms
        if not self.cfgs:
            raise ConfigError(f"env.observations.{name}: a group needs at least one term")
        self.terms = {key: Term(key, term, env, f"observation {name!r}") for key, term in self.cfgs.items()}
        self._with_memory = [term for term in self.terms.values() if term.instance is not None]
        values = {key: self._checked(term, term()) for key, term in self.terms.items()}
        self.layout = self._lay_out({key: value.shape[1] for key, value in values.items()})
        self.frame_dim = sum(term.dim for term in self.layout)
        self.dim = self.frame_dim * cfg.history_length
        self._noise_share: Tensor | None = None
        self._set_transforms()
        self._delays = {
            term.name: (slice(term.start, term.start + term.dim), DelayBuffer(delay, env.num_envs, env.rng))
            for term in self.layout
            if (delay := self.cfgs[term.name].delay) != (0, 0)
        }
        self.raw = False
        """Whether clip and scale are left to the policy, as an exported one has them inside; set it before a reset."""
        self._history: Tensor | None = None
        self._begun: list[EnvIds] = []
        """Environments that have begun an episode since the last frame."""

    def _checked(self, term: Term, value: Any) -> Tensor:
        if not isinstance(value, Tensor) or value.dim() != 2 or value.shape[0] != self.env.num_envs:
            raise ConfigError(f"{term.where} must return shape ({self.env.num_envs}, d), got {_shape(value)}")
        term.check_real(value)
        # Contacts are booleans, model parameters are doubles.
        return value if value.dtype == self.env.dtype else value.to(self.env.dtype)

    def _lay_out(self, dims: Mapping[str, int]) -> list[TermLayout]:
        layout, start = [], 0
        for key, dim in dims.items():
            cfg = self.cfgs[key]
            if isinstance(cfg.scale, tuple) and len(cfg.scale) != dim:
                raise ConfigError(f"{self.terms[key].where}: {len(cfg.scale)} scales for {dim} columns")
            layout.append(TermLayout(key, start, dim, cfg.scale, cfg.clip))
            start += dim
        return layout

    def clip_and_scale(self) -> tuple[Tensor, Tensor, Tensor]:
        """Lowest and highest value and factor of every column of a frame, `(frame_dim,)` each."""
        zeros = torch.zeros(self.frame_dim, dtype=torch.float64)
        low, high, scale = zeros - torch.inf, zeros + torch.inf, zeros + 1.0
        for term in self.layout:
            columns = slice(term.start, term.start + term.dim)
            scale[columns] = torch.tensor(term.scale, dtype=torch.float64)
            if term.clip is not None:
                low[columns], high[columns] = term.clip
        return low, high, scale

    def _set_transforms(self) -> None:
        """Noise, clip and scale of every column; None where no term has any."""
        low, high, scale = self.clip_and_scale()
        noise_low, noise_span, noise_std = torch.zeros(3, self.frame_dim, dtype=torch.float64)
        for term in self.layout:
            columns, cfg = slice(term.start, term.start + term.dim), self.cfgs[term.name]
            if isinstance(cfg.noise, UniformNoiseCfg):
                noise_low[columns], noise_span[columns] = cfg.noise.low, cfg.noise.high - cfg.noise.low
            elif isinstance(cfg.noise, GaussianNoiseCfg):
                noise_low[columns], noise_std[columns] = cfg.noise.mean, cfg.noise.std
            elif cfg.noise is not None:
                raise ConfigError(f"{self.terms[term.name].where}: unknown noise {type(cfg.noise).__name__}")

        def on_device(values: Tensor, needed: bool) -> Tensor | None:
            return values.to(self.env.device, self.env.dtype) if needed else None

        noisy = self.cfg.enable_noise or self._noise_share is not None
        amount = (noise_low != 0) | (noise_span != 0) | (noise_std != 0)
        columns = amount.nonzero().flatten().tolist()
        self._noisy = slice(columns[0], columns[-1] + 1) if noisy and columns else slice(0, 0)
        middle = (noise_low + noise_span / 2)[self._noisy]
        self._scale = on_device(scale, bool((scale != 1).any()))
        self._clip_low = on_device(low, bool(low.isfinite().any() or high.isfinite().any()))
        self._clip_high = on_device(high, self._clip_low is not None)
        self._noise_middle = on_device(middle, bool((middle != 0).any()))
        self._noise_reach = on_device(noise_span[self._noisy] / 2, bool((noise_span[self._noisy] != 0).any()))
        self._noise_std = on_device(noise_std[self._noisy], bool((noise_std[self._noisy] != 0).any()))

    def compute(self, *, keep: bool = True) -> Tensor:
        """The observation now, `(N, dim)`. With `keep=False` nothing is remembered: a look at an ending state."""
        with nullcontext() if keep else undone(self._with_memory):
            values = self._measure()
        values = self._add_noise(values)
        if not self.raw:
            values = self._clip_and_scale(values)
        for columns, delay in self._delays.values():
            values[:, columns] = delay.push(values[:, columns], keep=keep)
        if self.cfg.history_length > 1:
            values = self._stack(values, keep)
        if keep:
            self._shown = values
        return values

    def begin(self, env_ids: Tensor) -> Tensor:
        """The observation `(N, dim)` after a reset of these environments between two steps.

        For the others no time has passed: they are shown what they were shown last, and their histories, delays and
        terms with memory stay as they are. No noise is drawn for them.
        """
        if self._shown is None:
            return self.compute()
        begun = torch.zeros(self.env.num_envs, dtype=torch.bool, device=self.env.device)
        gm.fill(begun, env_ids, True)
        with undone(self._with_memory, but=begun):
            values = self._measure()
        values = self._add_noise(gm.rows(values, env_ids), env_ids)
        if not self.raw:
            values = self._clip_and_scale(values)
        for columns, delay in self._delays.values():
            delay.begin(values[:, columns], env_ids)
        self._shown = self._shown.clone()  # the caller holds the last one
        gm.put_rows(self._shown, env_ids, values.repeat(1, self.cfg.history_length))
        if self.cfg.history_length > 1:
            self._history, self._begun = self._shown, []
        return self._shown

    def _measure(self) -> Tensor:
        """What the terms return, side by side, `(N, frame_dim)`."""
        values = torch.cat([self._checked(term, term()) for term in self.terms.values()], dim=1)
        if values.shape[1] != self.frame_dim:
            raise ConfigError(f"observation {self.name!r}: width changed from {self.frame_dim} to {values.shape[1]}")
        return values

    @property
    def is_noisy(self) -> bool:
        """Whether noise is added to what is observed."""
        return self._noisy != slice(0, 0)

    def process(self, raw: Tensor) -> Tensor:
        """What a raw observation `(N, dim)` would be if it were not: clip and scale of every frame."""
        return self._clip_and_scale(raw.unflatten(1, (-1, self.frame_dim))).flatten(1)

    def _clip_and_scale(self, frames: Tensor) -> Tensor:
        if self._clip_low is not None:
            frames = frames.clamp(self._clip_low, self._clip_high)
        return frames if self._scale is None else frames * self._scale

    def share_noise(self, share: Tensor | None) -> None:
        """Add the terms' noise times a share of each environment's, `(N,)`, be it enabled or not; None: no longer."""
        self._noise_share = None if share is None else share[:, None]
        self._set_transforms()

    def _add_noise(self, values: Tensor, env_ids: EnvIds = None) -> Tensor:
        """Add noise to the values of these environments, `(len(env_ids), frame_dim)`."""
        if self._noise_share is None:
            return self._with_noise(values)
        share = gm.rows(self._noise_share, env_ids)
        return torch.addcmul(values, self._with_noise(torch.zeros_like(values)), share)

    def _with_noise(self, values: Tensor) -> Tensor:
        """Add to the columns between the first and the last that have any, in place."""
        rng, noisy = self.env.rng, values[:, self._noisy]
        if self._noise_reach is not None:
            random = torch.empty(noisy.shape, device=rng.device, dtype=noisy.dtype).uniform_(-1.0, 1.0, generator=rng)
            noisy.addcmul_(random, self._noise_reach)
        if self._noise_std is not None:
            random = torch.randn(noisy.shape, generator=rng, device=rng.device, dtype=noisy.dtype)
            noisy.addcmul_(random, self._noise_std)
        if self._noise_middle is not None:
            noisy += self._noise_middle
        return values

    def _stack(self, frame: Tensor, keep: bool) -> Tensor:
        frames = self.cfg.history_length
        past = frame.repeat(1, frames) if self._history is None else self._history
        stacked = torch.cat((past[:, self.frame_dim :], frame), dim=1)
        for env_ids in self._begun:
            gm.put_rows(stacked, env_ids, gm.rows(frame, env_ids).repeat(1, frames))
        if keep:
            self._history, self._begun = stacked, []
        return stacked

    def reset(self, env_ids: EnvIds) -> None:
        """Forget the past of these environments."""
        for term in self.terms.values():
            term.reset(env_ids)
        for _, delay in self._delays.values():
            delay.reset(env_ids)
        if self.cfg.history_length > 1:
            self._begun.append(env_ids)


class ObservationManager(Stateful):
    """All groups; `policy` is what the actor sees, `critic` what the critic does."""

    kind = "observation"
    parts = ("groups",)

    def __init__(self, cfgs: Mapping[str, ObservationGroupCfg], env: ManagerBasedEnv) -> None:
        self.groups = {name: ObservationGroup(name, cfg, env) for name, cfg in cfgs.items()}

    def compute(self, *, keep: bool = True) -> dict[str, Tensor]:
        """Observations of all groups, `(N, dim)` each."""
        return {name: group.compute(keep=keep) for name, group in self.groups.items()}

    def begin(self, env_ids: Tensor) -> dict[str, Tensor]:
        """Observations of all groups after a reset of these environments between two steps; the others' are the last
        ones."""
        return {name: group.begin(env_ids) for name, group in self.groups.items()}

    def leave_raw(self, names: Iterable[str]) -> None:
        """Leave clip and scale of these groups to the policy from the next reset on, as an exported one wants it."""
        for name in names:
            self.groups[name].raw = True

    def reset(self, env_ids: EnvIds) -> dict[str, Any]:
        """Forget the past of these environments."""
        for group in self.groups.values():
            group.reset(env_ids)
        return {}

    def table(self) -> Table:
        """All terms, to print."""
        rows = []
        for group in self.groups.values():
            for term in group.layout:
                cfg = group.cfgs[term.name]
                noise = _noise_text(cfg.noise) if group.cfg.enable_noise else "off"
                clip = "" if cfg.clip is None else f"{cfg.clip[0]:g} … {cfg.clip[1]:g}"
                scale = f"{cfg.scale:g}" if isinstance(cfg.scale, float | int) else str(cfg.scale)
                unit = group.terms[term.name].meaning().text
                rows.append((group.name, term.name, str(term.dim), _name(cfg.func), unit, noise, clip, scale))
            stacked = "" if group.cfg.history_length == 1 else f"{group.cfg.history_length} × {group.frame_dim}"
            rows.append((group.name, "total", str(group.dim), stacked, "", "", "", ""))
        columns = ("group", "term", "dim", "function", "unit", "noise", "clip", "scale")
        return Table("observations", columns, rows)

    def __str__(self) -> str:
        return str(self.table())


def _noise_text(noise: NoiseCfg | None) -> str:
    if isinstance(noise, UniformNoiseCfg):
        if noise.low == -noise.high:
            return f"±{noise.high:g}"
        return f"{noise.low:g} … {noise.high:g}"
    if isinstance(noise, GaussianNoiseCfg):
        return f"N({noise.mean:g}, {noise.std:g})"
    return ""
