"""A hand of 20 joints that plays a trajectory from a file.

Source of what is called published: docs/sources.md.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genelab import mdp
from genelab.config import TaskCfg
from genelab.envs import ManagerBasedEnvCfg
from genelab.errors import ConfigError, UsageError
from genelab.scene import PlaneCfg, SceneCfg
from genelab.sim import SimulationCfg
from genelab_showcase.playback import playback_task
from genelab_showcase.robots.wuji_hand import JOINTS, Side, wuji_hand_cfg
from genelab_showcase.trajectory import load_trajectory

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv

_trajectories: weakref.WeakKeyDictionary[ManagerBasedEnv, Tensor] = weakref.WeakKeyDictionary()
"""What each environment plays, read once."""


@dataclass(kw_only=True)
class WujiHandEnvCfg(ManagerBasedEnvCfg):
    """A hand, and what it plays."""

    side: Side = "right"
    """Which hand; the left one is the right one in a mirror, and plays the same angles."""
    trajectory: str = "wave"
    """A file .csv or .npz of 20 columns, rad, a row per control step; `wave` comes with the task."""
    reset_interval: int = 500
    """Control steps after which the hand is put into the first pose and the trajectory begins anew; 0: never."""

    def validate(self) -> None:
        super().validate()
        if self.reset_interval < 0:
            raise ConfigError(f"env.reset_interval: must not be negative, got {self.reset_interval}")
        self.read()
        self.scene.entities["robot"].spec_args["side"] = self.side  # the last word: overrides come after the factory

    def read(self) -> Tensor:
        """The trajectory, `(T, 20)`."""
        try:
            return torch.as_tensor(load_trajectory(self.trajectory, JOINTS))
        except UsageError as error:
            raise ConfigError(f"env.trajectory: {error}") from error


def play_trajectory(env: ManagerBasedEnv, step: int) -> Tensor:
    """The targets of this control step, the same in all environments; after the last row the first follows."""
    cfg = env.cfg
    assert isinstance(cfg, WujiHandEnvCfg)
    if env not in _trajectories:
        _trajectories[env] = cfg.read().to(env.device, env.dtype)
    rows = _trajectories[env]
    since = step % cfg.reset_interval if cfg.reset_interval else step
    targets = rows[since % len(rows)].expand(env.num_envs, -1)
    if since == 0:
        env.robot.write_joint_state(targets, torch.zeros_like(targets), None)
    return targets


def env_cfg() -> WujiHandEnvCfg:
    """A hand at 100 Hz, with the published servos."""
    return WujiHandEnvCfg(
        simulation=SimulationCfg(dt=0.01),
        scene=SceneCfg(env_spacing=0.5, entities={"robot": wuji_hand_cfg()}, terrain=PlaneCfg()),
        actions={"joints": mdp.JointPositionActionCfg(joint_names=JOINTS, use_default_offset=False)},
        playback=play_trajectory,
    )


def task() -> TaskCfg:
    """GeneLab-Wuji-Hand-Playback-v0."""
    return playback_task(env_cfg())
