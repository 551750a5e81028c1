"""Curricula: functions `(env, env_ids, **params)`, called before a reset, that make the task harder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genelab.errors import ConfigError
from genelab.managers import ROBOT, CurriculumTermCfg, Range, Selection
from genelab.mdp.commands import VelocityCommand
from genelab.scene import GeneratedTerrain
from genelab.scene.terrains import cell_order

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv


@dataclass(frozen=True, kw_only=True)
class VelocityStage:
    """Ranges of a velocity command from a control step on; None leaves one as it is."""

    step: int
    lin_vel_x: Range | None = None
    lin_vel_y: Range | None = None
    ang_vel_z: Range | None = None


def command_ranges(
    env: ManagerBasedRlEnv, env_ids: Tensor, command: str, stages: Sequence[VelocityStage]
) -> dict[str, float]:
    """Widen a velocity command in stages, by the control steps made so far."""
    ranges = _velocity_command(env, command).ranges
    for stage in stages:
        if env.common_step_counter >= stage.step:
            ranges.update({name: span for name in ranges if (span := getattr(stage, name)) is not None})
    return {name: high for name, (_, high) in ranges.items()}


def terrain_levels_vel(
    env: ManagerBasedRlEnv,
    env_ids: Tensor,
    command: str,
    promote_distance: float,
    demote_failures: bool = False,
    asset: Selection = ROBOT,
) -> Tensor:
    """Robots that came far from their spawn point go to harder ground; those that made less than half the way they were
    asked to go, to easier, and with `demote_failures` those whose episode was terminated, however far they came."""
    terrain = _generated_terrain(env, "terrain_levels_vel")
    term = _velocity_command(env, command)
    distance = (asset.entity.root_pos_w[env_ids, :2] - env.scene.env_origins[env_ids, :2]).norm(dim=1)
    up = distance > promote_distance
    down = (term.followed[env_ids] < 0.5 * term.asked[env_ids]) & ~up
    if demote_failures:
        failed = env.termination_manager.terminated[env_ids]
        up, down = up & ~failed, down | failed
    judged = env.episode_length_buf[env_ids] > 0  # the first reset follows no episode
    terrain.move(env_ids, up & judged, down & judged, env.rng)
    return terrain.levels.to(env.dtype).mean()


class DealtCells:
    """Start every episode on the cell of generated ground that is dealt to it, as evaluations do.

    The cells come in the order of `cell_order`: episode `n` of environment `i` has the place `n * num_envs + i` in it.
    So the first episodes of all environments, and the second ones after them, are spread evenly over kinds and levels,
    however many environments there are.
    """

    def __init__(self, cfg: CurriculumTermCfg, env: ManagerBasedRlEnv) -> None:
        self.cells = cell_order(_generated_terrain(env, "DealtCells").cfg)
        self.group = env.num_envs
        """Environments that share one deal; each group of that size has the same one."""
        self.begun = torch.zeros(env.num_envs, dtype=torch.int64)
        """Episodes that each environment has begun."""

    def __call__(self, env: ManagerBasedRlEnv, env_ids: Tensor) -> None:
        """Place the environments that are about to start."""
        rows = env_ids.cpu()
        if env.common_step_counter == 0:  # made or seeded just now: no episode has been run
            self.begun[rows] = 0
        levels, columns = self.of(self.begun[rows], rows).unbind(dim=1)
        _generated_terrain(env, "DealtCells").place(levels, columns, env_ids)
        self.begun[rows] += 1

    def of(self, episodes: Tensor | Sequence[int], env_ids: Tensor | Sequence[int]) -> Tensor:
        """Return level and column, `(N, 2)`, of these episodes, counted from 0, of these environments."""
        places = torch.as_tensor(episodes) * self.group + torch.as_tensor(env_ids) % self.group
        return self.cells[places % len(self.cells)]


def _generated_terrain(env: ManagerBasedRlEnv, name: str) -> GeneratedTerrain:
    terrain = env.scene.terrain
    if not isinstance(terrain, GeneratedTerrain):
        raise ConfigError(f"{name}: the scene has no generated terrain")
    return terrain


def _velocity_command(env: ManagerBasedRlEnv, name: str) -> VelocityCommand:
    term = env.commands.term(name)
    if not isinstance(term, VelocityCommand):
        raise ConfigError(f"the command {name!r} is a {type(term).__name__}, not a velocity")
    return term
