"""Commands: what a robot is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from genelab import math as gm
from genelab.managers import CommandTerm, CommandTermCfg, Meaning, Range
from genelab.managers.marks import ASKED, DONE, Arrow, Mark
from genelab.mdp.probe_starts import kinds_of
from genelab.mdp.velocity_probe import VelocityProbe
from genelab.scene import Image
from genelab.scene.terrains import GeneratedTerrain
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv

_GAP = 0.1
"""How far above the robot arrows start, m."""
_LENGTH = 0.5
"""Length of an arrow of 1 m/s, m."""


@dataclass(kw_only=True)
class VelocityCommandCfg(CommandTermCfg):
    """A velocity in the robot's own frame: forward and sideways (m/s), and turning (rad/s)."""

    entity: str = "robot"
    """Name of the robot."""
    lin_vel_x: Range
    """Forward speed, m/s."""
    lin_vel_y: Range
    """Speed to the left, m/s."""
    ang_vel_z: Range
    """Turning rate, rad/s; also the bounds of the rate that holds a heading."""
    heading: Range = (-torch.pi, torch.pi)
    """Headings to hold, rad."""
    standing_share: float = 0.0
    """Share of the commands that ask to stand still."""
    forward_share: float = 0.0
    """Share of the commands that ask only to go straight ahead. Drawn independently of standing, which wins."""
    min_forward: float = 0.0
    """Lowest speed of commands that ask only to go straight ahead, m/s."""
    axis_share: float = 0.0
    """Share of the commands that ask for one of forward, sideways and turning alone, either way, each as often."""
    heading_share: float = 0.0
    """Share of the commands that name a heading; the turning rate then follows from it."""
    heading_stiffness: float = 0.5
    """Turning rate per error of the heading, 1/s."""

    def build(self, name: str, env: ManagerBasedRlEnv) -> VelocityCommand:
        return VelocityCommand(name, self, env)


class VelocityCommand(CommandTerm):
    """Holds a velocity for each environment, `(N, 3)`."""

    cfg: VelocityCommandCfg
    fixed: Tensor
    drawn_from = ("lin_vel_x", "lin_vel_y", "ang_vel_z")

    def __init__(self, name: str, cfg: VelocityCommandCfg, env: ManagerBasedRlEnv) -> None:
        super().__init__(name, cfg, env)
        self.robot = env.scene.articulation(cfg.entity)
        self.command = torch.zeros(env.num_envs, 3, device=env.device, dtype=env.dtype)
        self.heading_target = torch.zeros(env.num_envs, device=env.device, dtype=env.dtype)
        self.holds_heading = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)
        self.fixed = torch.zeros_like(self.holds_heading)
        self.asked = torch.zeros_like(self.heading_target)
        """How far the commands of this episode would have led so far, m."""
        self.followed = torch.zeros_like(self.asked)
        """How far the robot went in their direction, m."""

    def resample(self, env_ids: Tensor) -> None:
        """Draw which kind of command it is, then the command."""
        cfg = self.cfg
        low, high = (
            gm.constant(ends, self.env.device, self.env.dtype) for ends in zip(*self.ranges.values(), strict=True)
        )
        # One draw for all: three numbers of the command, standing, its kind, its heading, whether that is held.
        chance = gm.uniform(0.0, 1.0, (len(env_ids), 7), self.env.rng, self.env.dtype)
        command = torch.addcmul(low, chance[:, :3], high - low)
        standing, kind, heading, turns = chance[:, 3:].unbind(dim=1)
        stands, special = standing < cfg.standing_share, kind < cfg.forward_share
        ahead = command[:, 0].abs().clamp(min=cfg.min_forward)
        command[:, 0] = torch.where(special, ahead, command[:, 0])
        off = stands[:, None] | (special[:, None] & gm.constant((False, True, True), kind.device, torch.bool))
        if cfg.axis_share > 0.0:
            axis = ((kind - cfg.forward_share) / cfg.axis_share * 3).floor()
            alone = (axis >= 0.0) & (axis < 3.0)
            off |= alone[:, None] & (axis[:, None] != gm.constant((0.0, 1.0, 2.0), axis.device, axis.dtype))
            special = special | alone
        self.command[env_ids] = command.masked_fill_(off, 0.0)
        if cfg.heading_share > 0.0:
            self.holds_heading[env_ids] = (turns < cfg.heading_share) & ~(special | stands)
            self.heading_target[env_ids] = cfg.heading[0] + (cfg.heading[1] - cfg.heading[0]) * heading

    def fix(self, command: Tensor, env_ids: EnvIds = None) -> None:
        super().fix(command, env_ids)
        gm.fill(self.holds_heading, env_ids, False)

    def meaning(self) -> Meaning:
        return Meaning(
            unit=("m/s", "m/s", "rad/s"),
            frame="root",
            columns=("forward", "left", "turn"),
            mirror=Image((0, 1, 2), (1.0, -1.0, -1.0)),
        )

    def metadata(self) -> dict[str, Any]:
        """On generated ground also what that is made of."""
        terrain = self.env.scene.terrain
        if not isinstance(terrain, GeneratedTerrain):
            return super().metadata()
        cfg = terrain.cfg
        ground = {"kinds": kinds_of(cfg), "levels": cfg.init_levels, "cell_size": cfg.cell_size}
        return {**super().metadata(), "ground": ground}

    def tables(self) -> dict[str, np.ndarray]:
        """Where the robots of its probe start on generated ground."""
        probe = self.probe()
        return {} if probe.terrain is None else probe.in_full().starts()

    def marks(self, i: int, top: float) -> list[Mark]:
        """A green arrow for what is asked, and below it a blue one for what is done; they start above the robot."""
        robot = self.robot
        place, velocity = (values[i].cpu().double().numpy() for values in (robot.root_pos_w, robot.root_lin_vel_b))
        heading = float(robot.heading_w[i])
        forward = np.array([np.cos(heading), np.sin(heading), 0.0])
        left = np.array([-forward[1], forward[0], 0.0])
        marks: list[Mark] = []
        for values, rgba, drop in ((self.command[i].tolist(), ASKED, 0.0), (velocity, DONE, 0.05)):
            vector = _LENGTH * (values[0] * forward + values[1] * left)
            marks.append(Arrow(place + np.array([0.0, 0.0, top + _GAP - drop]), vector, rgba))
        return marks

    def probe(self) -> VelocityProbe:
        return VelocityProbe(self)

    def update(self) -> None:
        """Turn towards the headings that are to be held."""
        if self.cfg.heading_share > 0:
            error = gm.wrap_to_pi(self.heading_target - self.robot.heading_w)
            rate = (self.cfg.heading_stiffness * error).clamp(*self.ranges["ang_vel_z"])
            self.command[:, 2] = torch.where(self.holds_heading, rate, self.command[:, 2])

    def measure(self) -> None:
        """Measure the way."""
        asked = self.command[:, :2]
        speed = torch.linalg.vector_norm(asked, dim=1)
        along = (asked * self.robot.root_lin_vel_b[:, :2]).sum(dim=1) / speed.clamp(min=1e-6)
        self.asked.add_(speed, alpha=self.env.step_dt)
        self.followed.add_(along, alpha=self.env.step_dt)

    def reset(self, env_ids: EnvIds) -> dict[str, Any]:
        gm.fill(self.asked, env_ids)
        gm.fill(self.followed, env_ids)
        return super().reset(env_ids)
