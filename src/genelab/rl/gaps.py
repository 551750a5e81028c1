"""How the world outside may differ from the one a policy was trained in, one thing at a time.

A sweep gives environments a value of one thing: how slippery the ground is, how heavy the robot, how late its actions.
It works on whatever the task has, and says why where it has nothing to work on.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from genelab import math as gm
from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.errors import ConfigError
from genelab.managers import EventTermCfg
from genelab.scene import Articulation, Entity
from genelab.sim import EnvIds, may_collide

PUSH = "sweep_push"
"""Name of the event that pushes."""
PUSH_EVERY_S = 2.0
"""Time between two pushes, s."""


@dataclass(frozen=True)
class Sweep(ABC):
    """Values of one thing."""

    name: ClassVar[str]
    unit: ClassVar[str]
    """What the values are: `×` for a factor of what the task has."""
    nominal: ClassVar[float]
    """The value at which the world is the task's own."""

    values: tuple[float, ...]
    """What to try besides, ascending."""

    def cannot(self, env: ManagerBasedRlEnv) -> str | None:
        """Why it says nothing about this task; None if it does."""
        return None

    @abstractmethod
    def apply(self, env: ManagerBasedRlEnv, values: Tensor) -> None:
        """Give every environment its value, `(N,)`."""

    def text(self, value: float, step_dt: float) -> str:
        """A value as one says it."""
        return f"× {value:g}" if self.unit == "×" else f"{value:g} {self.unit}"


def robots_of(env: ManagerBasedEnv) -> list[Articulation]:
    """What has driven joints."""
    return [entity for entity in env.scene.entities.values() if isinstance(entity, Articulation) and entity.actuators]


def _as_written(env: ManagerBasedEnv, field: str, ids: Tensor) -> Tensor:
    """A field of the model before anything changed it, a row for each environment."""
    values = torch.as_tensor(getattr(env.scene.engine.model, field), device=env.device)[ids]
    return values.expand(env.num_envs, *values.shape).clone()


class Friction(Sweep):
    """Factor of the sliding friction of every contact: of all geoms, so that whichever decides, it is this factor."""

    name, unit, nominal = "friction", "×", 1.0

    def cannot(self, env: ManagerBasedRlEnv) -> str | None:
        model = env.scene.engine.model
        touches = model.npair or may_collide(model, self._geoms(env).cpu().numpy()).any()
        return None if touches else "nothing in this world can touch"

    def apply(self, env: ManagerBasedRlEnv, values: Tensor) -> None:
        geoms = self._geoms(env)
        friction = _as_written(env, "geom_friction", geoms)
        friction[..., 0] *= values[:, None]
        env.scene.engine.set_model_field("geom_friction", friction, geoms, None)
        if pairs := env.scene.engine.model.npair:
            ids = torch.arange(pairs, device=env.device)
            friction = _as_written(env, "pair_friction", ids)
            friction[..., :2] *= values[:, None, None]
            env.scene.engine.set_model_field("pair_friction", friction, ids, None)

    def _geoms(self, env: ManagerBasedRlEnv) -> Tensor:
        model = env.scene.engine.model
        collide = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
        return torch.tensor(collide.nonzero()[0], device=env.device)


class Mass(Sweep):
    """Factor of mass and inertia of all bodies of the robots."""

    name, unit, nominal = "mass", "×", 1.0

    def cannot(self, env: ManagerBasedRlEnv) -> str | None:
        return None if robots_of(env) else "nothing has driven joints"

    def apply(self, env: ManagerBasedRlEnv, values: Tensor) -> None:
        bodies = torch.cat([robot.body_ids for robot in robots_of(env)])
        for field in ("body_mass", "body_inertia"):
            numbers = _as_written(env, field, bodies)
            factor = values.view(-1, *[1] * (numbers.dim() - 1))
            env.scene.engine.set_model_field(field, numbers * factor, bodies, None)


class Gains(Sweep):
    """Factor of stiffness and damping of all servos."""

    name, unit, nominal = "gains", "×", 1.0

    def cannot(self, env: ManagerBasedRlEnv) -> str | None:
        actuators = [actuator for robot in robots_of(env) for actuator in robot.actuators.values()]
        if not any(gain.any() for actuator in actuators for gain in actuator.default_gains()):
            return "its actuators have no gains"
        try:
            self.apply(env, torch.ones(env.num_envs, device=env.device, dtype=env.dtype))
        except ConfigError as error:
            return str(error)
        return None

    def apply(self, env: ManagerBasedRlEnv, values: Tensor) -> None:
        for robot in robots_of(env):
            for actuator in robot.actuators.values():
                stiffness, damping = (values.to(gain)[:, None] * gain for gain in actuator.default_gains())
                if stiffness.any() or damping.any():
                    actuator.set_gains(stiffness, damping, None)


class Delay(Sweep):
    """How much later actions arrive than the task has it, in control steps."""

    name, unit, nominal = "delay", "steps", 0.0

    def cannot(self, env: ManagerBasedRlEnv) -> str | None:
        return None if env.action_manager.terms else "it has no actions"

    def apply(self, env: ManagerBasedRlEnv, values: Tensor) -> None:
        for term in env.action_manager.terms.values():
            term.delay_more(values.to(torch.int64) if values.any() else None)

    def text(self, value: float, step_dt: float) -> str:
        return f"{1000 * value * step_dt:g} ms"


class Noise(Sweep):
    """Factor of the noise that the observations have while training. Without it all robots would do the same."""

    name, unit, nominal = "noise", "×", 1.0

    def cannot(self, env: ManagerBasedRlEnv) -> str | None:
        terms = [term for group in env.observation_manager.groups.values() for term in group.cfgs.values()]
        return None if any(term.noise is not None for term in terms) else "its observations have no noise in training"

    def apply(self, env: ManagerBasedRlEnv, values: Tensor) -> None:
        for group in env.observation_manager.groups.values():
            group.share_noise(values.to(env.dtype) if values.any() else None)


class EncoderBias(Sweep):
    """Constant errors of the joints' encoders, each anywhere between ± the value, rad (or m)."""

    name, unit, nominal = "encoder bias", "rad", 0.0

    def cannot(self, env: ManagerBasedRlEnv) -> str | None:
        held = any(term.target == "position" for term in env.action_manager.terms.values())
        return None if held else "no action sets joint positions"

    def apply(self, env: ManagerBasedRlEnv, values: Tensor) -> None:
        for robot in robots_of(env):
            signs = gm.uniform(-1.0, 1.0, (env.num_envs, len(robot.joint_names)), env.rng, env.dtype)
            robot.write_encoder_bias(values.to(env.dtype)[:, None] * signs, None)


class Push(Sweep):
    """A velocity that is added to the root's every two seconds, in any direction over the ground, m/s."""

    name, unit, nominal = "push", "m/s", 0.0

    def cannot(self, env: ManagerBasedRlEnv) -> str | None:
        return None if _free_robots(env) else "its robot is fixed to the world"

    def apply(self, env: ManagerBasedRlEnv, values: Tensor) -> None:
        env.event_manager.terms[PUSH].instance.speed = values.to(env.dtype)


def _free_robots(env: ManagerBasedEnv) -> list[Entity]:
    return [robot for robot in robots_of(env) if not robot.is_fixed_base]


class PushAnyway:
    """The event that pushes environments at speeds of their own."""

    def __init__(self, cfg: EventTermCfg, env: ManagerBasedRlEnv) -> None:
        self.speed = torch.zeros(env.num_envs, device=env.device, dtype=env.dtype)
        """Of each environment, m/s."""

    def __call__(self, env: ManagerBasedRlEnv, env_ids: EnvIds) -> None:
        """Push in a direction of its own."""
        speed = self.speed if env_ids is None else self.speed[env_ids]
        for robot in _free_robots(env) if speed.any() else ():
            way = gm.uniform(0.0, 2.0 * math.pi, (len(speed),), env.rng, env.dtype)
            push = torch.zeros(len(speed), 6, device=env.device, dtype=env.dtype)
            push[:, 0], push[:, 1] = speed * way.cos(), speed * way.sin()
            robot.add_root_velocity(push, env_ids)


def make_ready(cfg: ManagerBasedRlEnvCfg) -> None:
    """Make a config one in which all sweeps can be applied, and in which physics that diverges stops nobody else."""
    cfg.events[PUSH] = EventTermCfg(func=PushAnyway, mode="interval", interval_range_s=(PUSH_EVERY_S, PUSH_EVERY_S))
    cfg.simulation.on_divergence = "reset"


SWEEPS: tuple[Sweep, ...] = (
    Friction((0.1, 0.2, 0.4, 0.6, 1.5, 2.0)),
    Mass((0.5, 0.7, 0.85, 1.2, 1.5, 2.0)),
    Gains((0.4, 0.6, 0.8, 1.25, 1.6, 2.5)),
    Delay((1, 2, 3, 4, 6)),
    Noise((0.0, 0.5, 2.0, 4.0, 8.0)),
    EncoderBias((0.02, 0.05, 0.1, 0.2, 0.3)),
    Push((0.5, 1.0, 1.5, 2.0, 3.0)),
)
"""What is swept, in this order."""
