"""Wheels that roll as commanded, under the policy's action: the policy corrects their speed instead of finding it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from genelab import math as gm
from genelab.config import Positive
from genelab.errors import ConfigError
from genelab.managers import ActionTerm
from genelab.mdp.actions import JointVelocityAction, JointVelocityActionCfg
from genelab.scene.names import match_names
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv

FORMULA = (
    "target = offset + scale * action + share * speed; every control step, speed moves towards command @ rolls, by at "
    "most acceleration * step_dt; it is 0 at the start of an episode"
)
"""For who runs an exported policy."""


@dataclass(kw_only=True)
class RollingActionCfg(JointVelocityActionCfg):
    """Target = offset + scale · action + share · speed, where the speed goes towards command · rolls."""

    rolls: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """By regular expression of a joint: how fast it turns, rad/s per unit of each column of the command."""
    acceleration: Positive
    """How fast that speed is reached, rad/s²."""
    command: str = "twist"
    """The command that is followed."""
    share: float = 1.0
    """How much of the rolling is done."""
    schedule: str | None = None
    """Name of the schedule that scales the share while training."""

    def build(self, name: str, env: ManagerBasedEnv) -> ActionTerm:
        return RollingAction(name, self, env)

    def end_schedules(self, ends: Mapping[str, float]) -> None:
        if self.schedule is not None:
            self.share *= ends.get(self.schedule, 1.0)
            self.schedule = None


class RollingAction(JointVelocityAction):
    """Velocity targets on top of what the command asks of the wheels."""

    cfg: RollingActionCfg
    env: ManagerBasedRlEnv

    def __init__(self, name: str, cfg: RollingActionCfg, env: ManagerBasedEnv) -> None:
        super().__init__(name, cfg, env)
        width = self.env.commands[cfg.command].shape[1]
        self.rolls = torch.zeros(width, self.dim, device=env.device, dtype=env.dtype)
        """Speeds of the joints, `(command, dim)`, rad/s per unit of the command."""
        self.speed = torch.zeros(env.num_envs, self.dim, device=env.device, dtype=env.dtype)
        """How fast the wheels roll, `(N, dim)`, rad/s."""
        for joint, speeds in cfg.rolls.items():
            where = f"env.actions.{name}.rolls"
            columns = match_names(joint, self.joint_names, where)
            if len(speeds) != width:
                raise ConfigError(f"{where}.{joint}: needs {width} numbers, got {len(speeds)}")
            self.rolls[:, columns] = torch.tensor(speeds, device=env.device, dtype=env.dtype)[:, None]

    def transforms(self) -> dict[str, Any]:
        # As of a scripted step: what is left of the rolling in the end.
        return {**super().transforms(), "share": self.cfg.share * self.env.schedules.end(self.cfg.schedule)}

    def remedy(self, key: str, trained: Any) -> str | None:
        if key == "rolls":
            return f"give env.actions.{self.name}.rolls what it had in training"
        return super().remedy(key, trained)

    def settings(self) -> dict[str, Any]:
        return {
            "command": self.cfg.command,
            "acceleration": self.cfg.acceleration,
            "share": self.cfg.share,
            "rolls": [gm.decimals(row) for row in self.rolls],
        }

    def metadata(self) -> dict[str, Any]:
        return {**super().metadata(), "formula": FORMULA}

    def _wanted(self, action: Tensor) -> Tensor:
        wanted = super()._wanted(action)
        if not self.cfg.rolls:
            return wanted
        most = self.cfg.acceleration * self.env.step_dt
        self.speed += (self.env.commands[self.cfg.command] @ self.rolls - self.speed).clamp(-most, most)
        share = self.cfg.share * self.env.schedules.share(self.cfg.schedule)
        if share != 0.0:
            wanted += share * self.speed
        return wanted

    def reset(self, env_ids: EnvIds) -> None:
        super().reset(env_ids)
        gm.fill(self.speed, env_ids)
