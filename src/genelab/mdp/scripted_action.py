"""A scripted motion under the policy's action: the policy corrects a step instead of finding one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from genelab import math as gm
from genelab.config import NonNegative
from genelab.errors import ConfigError
from genelab.managers import ActionTerm
from genelab.managers.delay import Past
from genelab.mdp.actions import JointPositionAction, JointPositionActionCfg
from genelab.mdp.clock import get_clock
from genelab.scene.names import match_names
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv


FORMULA = (
    "target = offset + scale * action + share * (|command| @ spread + sum over the feet of (lift * steps + sweep * "
    "(command @ strides))), with x = (phase + the foot's offset) mod 1, s = swing_share; lift = sin(pi * x / s)^2 for "
    "x < s, else 0; sweep = -cos(pi * y / s) for y < s, else 1 - 2 * (y - s) / (1 - s), y = (x + lead) mod 1; both 0 "
    "while the clock rests; command is the mean of the last `frames` commands, before an episode its first one"
)
"""For who runs an exported policy."""


@dataclass(kw_only=True)
class ScriptedJointPositionActionCfg(JointPositionActionCfg):
    """Target = offset + scale · action + share · (|command| · spread + Σ over the feet of (lift · step + sweep ·
    command · stride))."""

    steps: dict[str, dict[str, float]]
    """By regular expression of a foot's body: how its joints move to lift it, rad at the top of the swing."""
    strides: dict[str, dict[str, tuple[float, ...]]] = field(default_factory=dict)
    """By the same: how its joints move to set it down ahead, rad per unit of each column of the command that the clock
    follows. A foot that stands moves back by as much, which takes the robot ahead."""
    lead: float = 0.0
    """How far strides are ahead of steps, as a share of a period: heavy legs on soft servos follow late."""
    spread: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """By regular expression of a joint: how it moves while a command is followed, either way, rad per unit of each
    column of the command. Legs that are to step far sideways need room between the feet."""
    average_s: NonNegative = 0.0
    """How long the past is, in seconds, over which strides and spread take the mean of the command. Where a command
    turns round within a step, legs that turn round with it trip a robot that does not."""
    clock: str = "gait"
    """The gait clock that lifts the feet."""
    share: float = 1.0
    """How much of the step is made."""
    schedule: str | None = None
    """Name of the schedule that scales the share while training."""

    def build(self, name: str, env: ManagerBasedEnv) -> ActionTerm:
        return ScriptedJointPositionAction(name, self, env)

    def end_schedules(self, ends: Mapping[str, float]) -> None:
        if self.schedule is not None:
            self.share *= ends.get(self.schedule, 1.0)
            self.schedule = None


class ScriptedJointPositionAction(JointPositionAction):
    """Position targets on top of a step that the clock makes."""

    cfg: ScriptedJointPositionActionCfg
    env: ManagerBasedRlEnv

    def __init__(self, name: str, cfg: ScriptedJointPositionActionCfg, env: ManagerBasedEnv) -> None:
        super().__init__(name, cfg, env)
        self.clock = get_clock(self.env, cfg.clock)
        feet, follows = self.clock.foot_names, self.env.commands[self.clock.cfg.command]
        self.steps = torch.zeros(len(feet), 1, self.dim, device=env.device, dtype=env.dtype)
        """Joint angles at the top of each foot's swing, `(feet, 1, dim)`, rad."""
        self.strides = torch.zeros(len(feet), follows.shape[1], self.dim, device=env.device, dtype=env.dtype)
        """Joint angles where each foot lands, `(feet, command, dim)`, rad per unit of the command."""
        self._fill(
            self.steps,
            {foot: {joint: (angle,) for joint, angle in joints.items()} for foot, joints in cfg.steps.items()},
            "steps",
        )
        self._fill(self.strides, cfg.strides, "strides")
        self.spread = torch.zeros(1, follows.shape[1], self.dim, device=env.device, dtype=env.dtype)
        """Joint angles while a command is followed, `(1, command, dim)`, rad per unit of its magnitude."""
        self._fill_joints(self.spread, [0], cfg.spread, f"env.actions.{name}.spread")
        self.frames = max(round(cfg.average_s / self.env.step_dt), 1)
        """How many commands strides and spread follow the mean of."""
        self._past = Past(self.frames)

    def _fill(self, table: Tensor, angles: Mapping[str, Mapping[str, tuple[float, ...]]], field_name: str) -> None:
        where = f"env.actions.{self.name}.{field_name}"
        for foot, joints in angles.items():
            rows = match_names(foot, self.clock.foot_names, where)
            self._fill_joints(table, rows, joints, f"{where}.{foot}")

    def _fill_joints(
        self, table: Tensor, rows: Sequence[int], joints: Mapping[str, tuple[float, ...]], where: str
    ) -> None:
        for joint, values in joints.items():
            columns = match_names(joint, self.joint_names, where)
            if len(values) != table.shape[1]:
                raise ConfigError(f"{where}.{joint}: needs {table.shape[1]} numbers, got {len(values)}")
            cells = torch.tensor(values, device=table.device, dtype=table.dtype)[:, None]
            for row in rows:
                table[row, :, columns] = cells

    def transforms(self) -> dict[str, Any]:
        # A script may fade: what is left of it in the end is what a policy is judged above.
        return {**super().transforms(), "share": self.cfg.share * self.env.schedules.end(self.cfg.schedule)}

    def remedy(self, key: str, trained: Any) -> str | None:
        here = f"env.actions.{self.name}"
        if key == "frames":
            return f"pass `{here}.average_s={0.0 if trained == 1 else trained * self.env.step_dt:g}`"
        if key in ("steps", "strides", "spread"):
            return f"give {here}.{key} what it had in training"
        return super().remedy(key, trained)

    def settings(self) -> dict[str, Any]:
        feet = self.clock.foot_names
        return {
            "clock": self.cfg.clock,
            "share": self.cfg.share,
            "lead": self.cfg.lead,
            "frames": self.frames,
            "steps": {foot: gm.decimals(step) for foot, step in zip(feet, self.steps[:, 0], strict=True)},
            "strides": {
                foot: [gm.decimals(row) for row in rows] for foot, rows in zip(feet, self.strides, strict=True)
            },
            "spread": [gm.decimals(row) for row in self.spread[0]],
        }

    def metadata(self) -> dict[str, Any]:
        return {**super().metadata(), "formula": FORMULA}

    def _wanted(self, action: Tensor) -> Tensor:
        wanted = super()._wanted(action)
        command = self._followed()
        share = self.cfg.share * self.env.schedules.share(self.cfg.schedule)
        if share != 0.0:
            script = self._script(command)
            wanted += script if share == 1.0 else share * script
        return wanted

    def _script(self, command: Tensor) -> Tensor:
        """What the clock and a command ask of the joints, `(N, dim)`, rad."""
        script = self.clock.lift @ self.steps[:, 0]
        if self.cfg.strides:
            ahead = self.clock.sweep_ahead(self.cfg.lead)[:, :, None] * command[:, None]  # (N, feet, command)
            script += ahead.flatten(1) @ self.strides.flatten(0, 1)
        if self.cfg.spread:
            script += command.abs() @ self.spread[0]
        return script

    def _followed(self) -> Tensor:
        """The mean of the last commands, `(N, command)`."""
        command = self.env.commands[self.clock.cfg.command]
        return command if self.frames == 1 else self._past.push(command).mean(dim=0)

    def reset(self, env_ids: EnvIds) -> None:
        super().reset(env_ids)
        if self.frames > 1:
            self._past.reset(env_ids)
