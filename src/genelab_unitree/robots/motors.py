"""What follows from a motor's data sheet: inertia felt at the joint, gains, the size of an action."""

from __future__ import annotations

import math
from dataclasses import dataclass

_FREQUENCY = 10.0
"""Natural frequency of the position servos, Hz."""
_DAMPING_RATIO = 2.0


@dataclass(frozen=True, kw_only=True)
class Motor:
    """A motor behind one or two stages of gears."""

    rotor_inertias: tuple[float, float, float]
    """Rotor, carrier of the first stage, carrier of the second, kg·m²."""
    gears: tuple[float, float]
    """Ratios of the stages."""
    effort: float
    """Peak torque at the joint, N·m."""
    count: int = 1
    """Motors that drive the joint together."""

    @property
    def armature(self) -> float:
        """Inertia of the turning parts as felt at the joint, kg·m²."""
        (rotor, first, second), (g1, g2) = self.rotor_inertias, self.gears
        return self.count * (rotor * (g1 * g2) ** 2 + first * g2**2 + second)

    @property
    def stiffness(self) -> float:
        """Gain that swings the armature at the servo's frequency, N·m/rad."""
        return self.armature * (2 * math.pi * _FREQUENCY) ** 2

    @property
    def damping(self) -> float:
        """Gain that damps that swing well above critical, N·m·s/rad."""
        return 2 * _DAMPING_RATIO * self.armature * 2 * math.pi * _FREQUENCY

    @property
    def action_scale(self) -> float:
        """Angle of a unit action, rad: a quarter of the peak torque would hold it."""
        return 0.25 * self.effort / self.stiffness
