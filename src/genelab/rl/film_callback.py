"""Films while training, of the live learner, in an environment that is built once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch

from genelab.envs import ManagerBasedRlEnv
from genelab.errors import GenelabError
from genelab.rl.backends.base import InferenceSetup, Learner
from genelab.rl.monitor import Iteration, IterationHook
from genelab.rl.rollout import rollout
from genelab.viewer import Film, FilmCfg


@dataclass(frozen=True, kw_only=True)
class FilmOptions:
    """Films while training."""

    every: int
    """Iterations between films."""
    length: int = 250
    """Control steps of a film."""
    size: tuple[int, int] = (1280, 720)
    """Width and height, pixels."""
    camera: str | None = None
    """As for `FilmCfg`."""
    num_envs: int = 1
    """Environments that are shown side by side."""


@torch.inference_mode()
def film_policy(env: ManagerBasedRlEnv, setup: InferenceSetup, cfg: FilmCfg, *, steps: int, seed: int) -> None:
    """Film what a policy does in so many control steps after a reset."""
    with closing(Film(env, cfg)) as film:
        for _ in rollout(env, setup, seed=seed, steps=steps):
            film.after_step()


class FilmCallback(IterationHook):
    """Every so many iterations, films the policy into `videos/` of the run directory."""

    def __init__(
        self, env: ManagerBasedRlEnv, path: Path, options: FilmOptions, notify: Callable[[str], None], seed: int = 0
    ) -> None:
        self.env = env
        self._home = path / "videos"
        self._options = options
        self._notify = notify
        self._seed = seed
        self._home.mkdir(exist_ok=True)
        Film(env, self._film_cfg(0)).close()  # what cannot be drawn is known before anything is learned

    def after_iteration(self, iteration: Iteration) -> None:
        """Film if it is time to; a film that fails is no reason to stop learning."""
        if iteration.number % self._options.every:
            return
        self.env.command_manager.begin_at(iteration.env.command_manager.stage())
        devices = [self.env.device] if self.env.device.type == "cuda" else []
        try:
            with torch.random.fork_rng(devices), torch.inference_mode():  # the learner's random numbers are not spent
                self._film(iteration.learner, iteration.done)
        except GenelabError as error:
            self._notify(f"no film of iteration {iteration.done}: {error}")

    def _film(self, learner: Learner, done: int) -> None:
        film_policy(self.env, learner.inference(), self._film_cfg(done), steps=self._options.length, seed=self._seed)

    def _film_cfg(self, done: int) -> FilmCfg:
        options = self._options
        return FilmCfg(
            path=self._home / f"iteration_{done}.mp4",
            size=options.size,
            camera=options.camera,
            num_envs=options.num_envs,
        )
