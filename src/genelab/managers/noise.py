"""Noise on observations and actions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(kw_only=True)
class NoiseCfg:
    """Random numbers added to a value."""


@dataclass(kw_only=True)
class UniformNoiseCfg(NoiseCfg):
    """Equally likely between two bounds."""

    low: float
    """The least that is added, in the unit of the value."""
    high: float
    """The most that is added."""


@dataclass(kw_only=True)
class GaussianNoiseCfg(NoiseCfg):
    """Normally distributed."""

    std: float
    """Standard deviation, in the unit of the value."""
    mean: float = 0.0
    """What is added on average."""


def symmetric(amplitude: float) -> UniformNoiseCfg:
    """Uniform noise of ± an amplitude."""
    return UniformNoiseCfg(low=-amplitude, high=amplitude)
