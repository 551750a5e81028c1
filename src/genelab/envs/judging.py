"""From the config a task is trained with to the one it is watched and judged with."""

from __future__ import annotations

import copy
from typing import TypeVar

from genelab.envs.manager_based_rl_env import ManagerBasedRlEnvCfg
from genelab.managers import EventTermCfg

Cfg = TypeVar("Cfg", bound=ManagerBasedRlEnvCfg)


def play_cfg(cfg: Cfg, *, num_envs: int = 1) -> Cfg:
    """The same task without what is for training only.

    No noise on observations and actions, nothing late, no pushes, no randomised models, no curriculum,
    schedules at their end; a viewer by default. Terms, and so the widths of observations and actions, are those of the
    training config.
    """
    cfg = copy.deepcopy(cfg)
    cfg.scene.num_envs = num_envs
    cfg.simulation.vis = True
    for group in cfg.observations.values():
        group.enable_noise = False
        for term in group.terms.values():
            term.delay = (0, 0)
    for action in cfg.actions.values():
        action.noise_std, action.delay = 0.0, (0, 0)
    cfg.events = {name: event for name, event in cfg.events.items() if _is_of_the_task(event)}
    cfg.curriculum = {}
    _end_schedules(cfg)
    return cfg


def _is_of_the_task(event: EventTermCfg) -> bool:
    """Whether an event says where an episode begins, and makes no other robot of the robot."""
    return event.mode == "reset" and not getattr(event.func, "changes_model", False)


def _end_schedules(cfg: ManagerBasedRlEnvCfg) -> None:
    """What schedules leave in the end, without them; what they fade out is gone."""
    ends = {name: schedule.left for name, schedule in cfg.schedules.items()}
    for name, reward in list(cfg.rewards.items()):
        if reward.schedule is not None:
            reward.weight *= ends.get(reward.schedule, 1.0)
            if ends.get(reward.schedule) == 0.0:
                del cfg.rewards[name]
            reward.schedule = None
    for action in cfg.actions.values():
        action.end_schedules(ends)
    cfg.schedules = {}
