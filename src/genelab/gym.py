"""Tasks as Gymnasium environments: what `gymnasium.make` and `gymnasium.make_vec` give.

`make_vec` gives the environment itself, with torch tensors in a dict of observation groups. With `numpy`, `group`,
`render_mode` or another `autoreset_mode` it gives a `VectorTask`, which is what Gymnasium's wrappers and other
libraries expect: arrays, one observation, pictures.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from genelab.config import apply_overrides
from genelab.envs import FiniteGuard, ManagerBasedRlEnv, rl_cfg
from genelab.errors import UsageError, did_you_mean
from genelab.viewer.pictures import Pictures

_MODES = {mode.name.lower(): mode for mode in AutoresetMode}


def make_vec(
    task: str,
    num_envs: int = 1,
    *,
    play: bool = False,
    seed: int | None = None,
    overrides: Mapping[str, Any] = {},
    render_mode: str | None = None,
    render_size: tuple[int, int] = (480, 360),
    numpy: bool = False,
    group: str | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
) -> VectorEnv:
    """The environment behind `gymnasium.make_vec(task, num_envs=...)`.

    `play` takes the config for watching and judging; `overrides` are dotted: `{"env.simulation.dt": 0.002}`. `numpy`
    gives arrays instead of tensors, `group` one group of observations instead of a dict, `render_mode="rgb_array"`
    pictures of `render_size`.
    """
    mode = _MODES.get(str(getattr(autoreset_mode, "name", autoreset_mode)).lower().replace("-", "_"))
    if mode is None:
        raise UsageError(f"autoreset_mode: {autoreset_mode!r} is none of {', '.join(_MODES)}")
    env = _make(task, num_envs, play, seed, overrides, mode, late=False if numpy else None)
    if not numpy and group is None and render_mode is None and mode is AutoresetMode.SAME_STEP:
        return env
    return VectorTask(env, numpy=numpy, group=group, autoreset_mode=mode, render_mode=render_mode, size=render_size)


def _make(
    task: str,
    num_envs: int,
    play: bool,
    seed: int | None,
    overrides: Mapping[str, Any],
    mode: AutoresetMode,
    *,
    late: bool | None,
) -> ManagerBasedRlEnv:
    cfg = rl_cfg(task, play=play)
    apply_overrides({"env": cfg}, overrides)
    cfg.scene.num_envs = num_envs
    cfg.seed = seed if seed is not None else cfg.seed
    cfg.auto_reset = mode is AutoresetMode.SAME_STEP
    env = ManagerBasedRlEnv(cfg)
    env.watchers.append(FiniteGuard(env, late=late))
    return env


class VectorTask(VectorEnv):
    """A task as Gymnasium's wrappers expect it; `env` is the environment itself."""

    def __init__(
        self,
        env: ManagerBasedRlEnv,
        *,
        numpy: bool = True,
        group: str | None = "policy",
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
        render_mode: str | None = None,
        size: tuple[int, int] = (480, 360),
    ) -> None:
        self.env = env
        self.num_envs = env.num_envs
        self.render_mode = _checked(render_mode, size)
        self.autoreset_mode = env.autoreset_mode = autoreset_mode
        fps = round(1.0 / env.step_dt, 6)
        self.metadata = {"render_modes": ["rgb_array"], "autoreset_mode": autoreset_mode, "render_fps": fps}
        self._numpy, self._group, self._size = numpy, group, size
        spaces = env.single_observation_space
        assert isinstance(spaces, gymnasium.spaces.Dict)
        if group is not None and group not in spaces.spaces:
            raise UsageError(f"group: no observation group is called {group!r}.{did_you_mean(group, spaces.spaces)}")
        self.single_observation_space = spaces if group is None else spaces[group]
        self.single_action_space = env.single_action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = env.action_space

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start all environments anew, or those of `options["reset_mask"]`."""
        if isinstance(seed, int | np.integer):
            self._np_random, self._np_random_seed = seeding.np_random(int(seed))
        observations, info = self.env.reset(seed=seed, options=options)
        return self._shown(observations), self._told(info)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One control step. In mode NEXT_STEP an environment whose episode has ended is reset by it instead."""
        observations, reward, terminated, truncated, info = self.env.step(actions)
        told = self._told(info)
        if "final_obs" in info:
            last = self._shown(info["final_obs"])
            told["final_obs"] = _one_by_one(last, told["_final_obs"]) if self._numpy else last
            told["final_info"] = self._told(info["final_info"])
        return (*map(self._shown, (observations, reward, terminated, truncated)), told)

    def _told(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """What is one value per environment; averages over episodes are of no environment."""
        return {key: self._array(value) for key, value in info.items() if isinstance(value, Tensor)}

    def _shown(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return (
                {name: self._array(part) for name, part in value.items()}
                if self._group is None
                else self._array(value[self._group])
            )
        return self._array(value)

    def _array(self, value: Tensor) -> Any:
        return value.numpy(force=True).copy() if self._numpy else value  # the environment keeps what it has shown

    @functools.cached_property
    def _pictures(self) -> Pictures:
        return Pictures(self.env, self._size)

    def render(self) -> tuple[np.ndarray, ...] | None:
        """A picture of each environment, `(height, width, 3)`."""
        if self.render_mode is None:
            return None
        return tuple(self._pictures.draw(i) for i in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Free the engine and what draws."""
        if "_pictures" in self.__dict__:
            self._pictures.close()
        self.env.close()


class Task(gymnasium.Env[Any, np.ndarray]):
    """One environment of a task, behind `gymnasium.make(task)`: arrays, and the observations of the policy."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012

    def __init__(
        self,
        task: str,
        *,
        play: bool = False,
        overrides: Mapping[str, Any] = {},
        group: str | None = "policy",
        render_mode: str | None = None,
        render_size: tuple[int, int] = (480, 360),
    ) -> None:
        mode = AutoresetMode.DISABLED
        env = _make(task, 1, play, None, overrides, mode, late=False)
        self._vector = VectorTask(env, group=group, autoreset_mode=mode, render_mode=render_mode, size=render_size)
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": self._vector.metadata["render_fps"]}
        self.observation_space = self._vector.single_observation_space
        self.action_space = self._vector.single_action_space

    @property
    def env(self) -> ManagerBasedRlEnv:
        """The environment itself, of one copy."""
        return self._vector.env

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a new episode."""
        super().reset(seed=seed)
        observations, info = self._vector.reset(seed=seed, options=options)
        return _first(observations), _first(info)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One control step."""
        observations, reward, terminated, truncated, info = self._vector.step(np.asarray(action)[None])
        return _first(observations), float(reward[0]), bool(terminated[0]), bool(truncated[0]), _first(info)

    def render(self) -> Any:
        """A picture, `(height, width, 3)`."""
        pictures = self._vector.render()
        return None if pictures is None else pictures[0]

    def close(self) -> None:
        """Free the engine."""
        self._vector.close()


def _one_by_one(values: Any, where: np.ndarray) -> np.ndarray:
    """What each environment has, or None where there is nothing, as Gymnasium's vector environments give it."""
    found = np.full(len(where), None, dtype=object)
    for i in where.nonzero()[0]:
        found[i] = {name: part[i] for name, part in values.items()} if isinstance(values, dict) else values[i]
    return found


def _first(value: Any) -> Any:
    return {key: item[0] for key, item in value.items()} if isinstance(value, dict) else value[0]


def _checked(render_mode: str | None, size: tuple[int, int]) -> str | None:
    if len(size) != 2 or min(size) < 1:
        raise UsageError(f"render_size: must be width and height in pixels, got {size}")
    if render_mode not in (None, "rgb_array"):
        raise UsageError(f"render_mode: {render_mode!r} is not known; pass 'rgb_array' for pictures, or None")
    return render_mode
