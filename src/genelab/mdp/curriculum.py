"""Curricula: functions `(env, env_ids, **params)`, called before a reset, that make the task harder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from genelab.errors import ConfigError
from genelab.managers import ROBOT, Range, Selection
from genelab.mdp.commands import VelocityCommand
from genelab.scene import GeneratedTerrain

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
    terrain = env.scene.terrain
    if not isinstance(terrain, GeneratedTerrain):
        raise ConfigError("terrain_levels_vel: the scene has no generated terrain")
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


def _velocity_command(env: ManagerBasedRlEnv, name: str) -> VelocityCommand:
    term = env.commands.term(name)
    if not isinstance(term, VelocityCommand):
        raise ConfigError(f"the command {name!r} is a {type(term).__name__}, not a velocity")
    return term
