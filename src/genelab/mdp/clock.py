"""A gait clock: when each foot is to be in the air, and rewards for feet that keep to it.

Learning when to step is most of learning to walk. A clock in the observation answers it, and what is left is how.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from genelab import math as gm
from genelab.config import NonNegative, Positive
from genelab.errors import ConfigError
from genelab.managers import CommandTerm, CommandTermCfg, Meaning
from genelab.mdp.sensors import get_sensor
from genelab.scene import SAME, ContactSensor, Image, PointsSensor
from genelab.scene.mirror import of_names
from genelab.scene.names import resolve_values
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv


FORMULA = (
    "sine and cosine of 2 pi phase while it runs, else 0; it runs while the norm of the command's command_axes (all if "
    "null) is above threshold, for run_out s more, and if that is not 0 to the end of its period; the phase grows by "
    "frequency * step_dt each control step, mod 1, and is 0 while it does not run"
)
"""For who runs an exported policy."""


@dataclass(kw_only=True)
class GaitClockCfg(CommandTermCfg):
    """A clock that asks for steps while another command asks to move; at rest it stands at zero and shows nothing."""

    frequency: Positive
    """Steps of each foot per second, Hz."""
    offsets: dict[str, float]
    """How far each foot is ahead of the clock, as a share of a period, by regular expression of its body."""
    swing_share: float = 0.5
    """Share of a period that a foot is in the air; the rest of it stands."""
    feet: str = "feet"
    """Sensor of points that says which feet there are."""
    command: str = "twist"
    """The command that asks to move. It must come before the clock."""
    threshold: float = 0.05
    """Norm of that command below which the robot is to stand."""
    command_axes: tuple[int, ...] | None = None
    """The columns of that command that ask for steps; None: all. Who has wheels rolls straight ahead."""
    run_out: NonNegative = 0.0
    """How long it goes on after it is asked to stand, s, and then to the end of its period: who is running needs some
    steps to come to a halt, and no foot stays in the air. At 0 it stops at once."""

    def build(self, name: str, env: ManagerBasedRlEnv) -> GaitClock:
        return GaitClock(name, self, env)


class GaitClock(CommandTerm):
    """Sine and cosine of the clock, `(N, 2)`, as deploy stacks know it; zeros at rest."""

    cfg: GaitClockCfg

    def __init__(self, name: str, cfg: GaitClockCfg, env: ManagerBasedRlEnv) -> None:
        super().__init__(name, cfg, env)
        where = f"env.commands.{name}"
        if not 0 < cfg.swing_share < 1:
            raise ConfigError(f"{where}.swing_share: must be between 0 and 1, got {cfg.swing_share}")
        self.foot_names = get_sensor(env, cfg.feet, PointsSensor).body_names
        offsets = resolve_values(cfg.offsets, self.foot_names, f"{where}.offsets")
        self.offsets = torch.tensor(offsets, device=env.device, dtype=env.dtype)
        self.phase = torch.zeros(env.num_envs, device=env.device, dtype=env.dtype)
        """Share of the period that has passed, `(N,)`."""
        self.moving = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)
        """Whether feet are to step, `(N,)`."""
        self.resting = torch.full_like(self.phase, cfg.run_out)
        """How long the robot has been asked to stand, `(N,)`, s."""
        self.command = torch.zeros(env.num_envs, 2, device=env.device, dtype=env.dtype)

    @property
    def swing(self) -> Tensor:
        """How much of its swing each foot has made, `(N, feet)`; 1 for a foot that is to stand."""
        made = (self.phase[:, None] + self.offsets) % 1.0 / self.cfg.swing_share
        return torch.where(self.moving[:, None], made, 1.0).clamp(max=1.0)

    @property
    def lift(self) -> Tensor:
        """How high each foot is to be, from 0 on the ground to 1 at the top of its swing, `(N, feet)`."""
        return (torch.pi * self.swing).sin().square()

    def meaning(self) -> Meaning:
        return Meaning(unit="1", columns=("sine", "cosine"), formula=FORMULA, mirror=self._image)

    def metadata(self) -> dict[str, Any]:
        ahead = dict(zip(self.foot_names, gm.decimals(self.offsets), strict=True))
        return {**super().metadata(), "period": 1.0 / self.cfg.frequency, "offsets": ahead}

    def _image(self) -> Image:
        """What one side does, the other does in the mirror: at the same time, or half a period later."""
        robot = self.env.scene[get_sensor(self.env, self.cfg.feet, PointsSensor).cfg.entity]
        other = of_names(self.foot_names, robot.cfg.sides).columns
        ahead = {(self.offsets[i] - self.offsets[j]).item() % 1.0 for i, j in enumerate(other)}
        if ahead == {0.0}:
            return SAME.repeat(2)
        if ahead == {0.5}:
            return Image((0, 1), (-1.0, -1.0))
        raise ConfigError(f"the mirror image of the command {self.name!r} is not known: its sides keep another rhythm")

    @property
    def sweep(self) -> Tensor:
        """How far each foot is ahead of where it stands at rest, `(N, feet)`: from 1 where it lands, evenly to −1 where
        it lifts off, and smoothly back; 0 at rest."""
        return self.sweep_ahead(0.0)

    def sweep_ahead(self, lead: float) -> Tensor:
        """The same as it will be later, by a share of a period."""
        turned = (self.phase[:, None] + self.offsets + lead) % 1.0
        stance = (turned - self.cfg.swing_share) / (1.0 - self.cfg.swing_share)
        ahead = torch.where(stance < 0.0, -(torch.pi * turned / self.cfg.swing_share).cos(), 1.0 - 2.0 * stance)
        return ahead * self.moving[:, None]

    def resample(self, env_ids: Tensor) -> None:
        """A new episode begins anywhere in the period."""
        self.phase[env_ids] = gm.uniform(0.0, 1.0, (len(env_ids),), self.env.rng, self.env.dtype)

    def _draw(self, env_ids: Tensor) -> None:
        self.resample(env_ids)  # and no time until the next, which comes with the next episode

    def reset(self, env_ids: EnvIds) -> dict[str, Any]:
        gm.fill(self.resting, env_ids, self.cfg.run_out)  # nobody begins running
        gm.fill(self.moving, env_ids, False)
        return super().reset(env_ids)

    def advance(self, dt: float, fresh: Tensor | None = None) -> None:
        self.phase += self.cfg.frequency * dt
        self.resting += dt
        if fresh is not None:
            gm.shift(self.phase, fresh, -self.cfg.frequency * dt)
        self.update()

    def update(self) -> None:
        """Who is to stand waits at the beginning of the period."""
        command, axes = self.env.commands[self.cfg.command], self.cfg.command_axes
        counted = command if axes is None else gm.take(command, gm.columns(axes, command.device))
        asked = torch.linalg.vector_norm(counted, dim=1) > self.cfg.threshold
        self.resting.masked_fill_(asked, 0.0)
        end = 1.0 if self.cfg.run_out > 0.0 else 0.0
        self.moving = asked | (self.resting < self.cfg.run_out) | self.moving & (self.phase < end)
        self.phase = self.phase % 1.0 * self.moving
        angle = 2 * torch.pi * self.phase
        self.command = torch.stack((angle.sin(), angle.cos()), dim=1) * self.moving[:, None]


def get_clock(env: ManagerBasedRlEnv, name: str) -> GaitClock:
    """The clock of this name."""
    term = env.commands.term(name)
    if not isinstance(term, GaitClock):
        raise ConfigError(f"the command {name!r} is a {type(term).__name__}, not a gait clock")
    return term


def feet_height_phase(
    env: ManagerBasedRlEnv, clock: str, feet: str, height: float, std: float, ground: float = 0.0
) -> Tensor:
    """1 for feet as high as the clock wants them: `height` at the top of a swing, `ground` on the ground, m.

    With a wide `std` a foot that never lifts is paid nearly as well: less than half of `height` cures that.
    """
    wanted = ground + height * get_clock(env, clock).lift
    error = get_sensor(env, feet, PointsSensor).height - wanted
    return torch.exp(error.square().sum(dim=1) / -(std**2))


def feet_contact_phase(env: ManagerBasedRlEnv, clock: str, contact: str) -> Tensor:
    """Share of the feet that touch the ground when they are to stand and do not when they are to swing."""
    swings = get_clock(env, clock).swing < 1.0
    return (get_sensor(env, contact, ContactSensor).touching != swings).to(env.dtype).mean(dim=1)
