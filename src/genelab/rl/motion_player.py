"""Look at a motion: a robot that is put into its poses, one after the other, without physics."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import closing
from typing import Any

import torch

from genelab.envs import ManagerBasedEnv, ManagerBasedEnvCfg
from genelab.motion import Clip, Kinematics
from genelab.rl.player import Player, PlayResult, choose_viewer, watch
from genelab.scene import EntityCfg, PlaneCfg, SceneCfg
from genelab.sim import SimulationCfg
from genelab.viewer import FilmCfg, ViewerCfg


def play_motion(
    robot: EntityCfg,
    read: Callable[[Kinematics], Clip],
    name: str,
    *,
    film: FilmCfg | None = None,
    viewer: ViewerCfg | None = None,
    vis: bool | None = None,
    max_steps: int | None = None,
    notify: Callable[[str], None] = lambda message: None,
) -> PlayResult:
    """Play what `read` reads for the robot; a viewer shows it over and over until it is closed, Ctrl-C or `max_steps`.

    `vis` is whether to show a viewer; None: where there is a display and no film is made.
    """
    cfg = ManagerBasedEnvCfg(
        scene=SceneCfg(entities={"robot": copy.deepcopy(robot)}, terrain=PlaneCfg()),
        simulation=SimulationCfg(engine="mujoco"),
    )
    env = ManagerBasedEnv(cfg)
    with closing(env):
        clip = read(Kinematics(env.scene.engine.model, "robot/"))
        wanted = film is None if vis is None else vis
        shown = choose_viewer(viewer, wanted, vis is True, notify)
        length = len(clip) if film is None or film.length is None else film.length
        total = max_steps if max_steps is not None or shown is not None else length
        return watch(MotionPlayer(env, clip, name), total, None, film, shown, notify, lambda step, total: None)


class MotionPlayer(Player):
    """Puts the robot into the next frame at every step; after the last comes the first."""

    def __init__(self, env: ManagerBasedEnv, clip: Clip, name: str) -> None:
        super().__init__(env, "zero", None, None)
        env.step_dt = 1.0 / clip.fps
        self.policy = name
        self._qpos = torch.as_tensor(Kinematics(env.scene.engine.model, "robot/").qpos(clip))
        self._frame = 0

    def restart(self, *, seed: int | None = None) -> None:
        """Begin with the first frame."""
        self._frame = 0

    def step(self) -> Any:
        self.env.scene.engine.write_qpos(self._qpos[self._frame][None], slice(None), None)
        self._frame = (self._frame + 1) % len(self._qpos)
        self.steps += 1
