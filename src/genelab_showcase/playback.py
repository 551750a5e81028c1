"""What tasks without a policy have in common."""

from __future__ import annotations

import copy

from genelab.config import TaskCfg
from genelab.envs import ManagerBasedEnvCfg


def playback_task(env: ManagerBasedEnvCfg) -> TaskCfg:
    """A task that only plays: no agent, and a viewer by default when it is played."""
    play = copy.deepcopy(env)
    play.simulation.vis = True
    return TaskCfg(env=env, play_env=play)
