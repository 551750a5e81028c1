"""A scripted motion under the policy's action: the policy corrects a step instead of finding one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from genelab.managers import ActionTerm
from genelab.mdp.actions import JointPositionAction, JointPositionActionCfg
from genelab.mdp.clock import get_clock
from genelab.scene.names import match_names

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv


@dataclass(kw_only=True)
class ScriptedJointPositionActionCfg(JointPositionActionCfg):
    """Target = offset + scale · action + share · Σ lift of a foot · its step."""

    steps: dict[str, dict[str, float]]
    """By regular expression of a foot's body: how its joints move to lift it, rad at the top of the swing."""
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
        self.steps = torch.zeros(len(self.clock.foot_names), self.dim, device=env.device, dtype=env.dtype)
        """Joint angles at the top of each foot's swing, `(feet, dim)`, rad."""
        for foot, joints in cfg.steps.items():
            rows = match_names(foot, self.clock.foot_names, f"env.actions.{name}.steps")
            for joint, angle in joints.items():
                columns = match_names(joint, self.joint_names, f"env.actions.{name}.steps.{foot}")
                self.steps[torch.tensor(rows)[:, None], torch.tensor(columns)] = angle

    def transforms(self) -> dict[str, Any]:
        return self.linear()  # a script may fade, and what was learned above it goes on without

    def settings(self) -> dict[str, Any]:
        steps = dict(zip(self.clock.foot_names, self.steps.tolist(), strict=True))
        return {"clock": self.cfg.clock, "share": self.cfg.share, "steps": steps}

    def apply(self, action: Tensor) -> None:
        super().apply(action)
        share = self.cfg.share * self.env.schedules.share(self.cfg.schedule)
        if share != 0.0:
            self._target()[:, self.joint_columns] += share * self.clock.lift @ self.steps
