"""Run a task and watch what happens."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from genelab.config import TASKS, Override, apply_overrides
from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv, ManagerBasedRlEnvCfg, make_env
from genelab.errors import UsageError
from genelab.rl.backends import InferenceSetup
from genelab.rl.episodes import Episodes
from genelab.rl.locate import find_checkpoint, pretrained_policy
from genelab.rl.nan_guard import NanGuard, load_replay
from genelab.rl.policies import load_policy, random_policy, zero_policy
from genelab.rl.profiling import ProfileCfg, profiler
from genelab.viewer import Film, FilmCfg, Onlooker

DUMPS = Path("logs/play")
"""Where what led to a NaN is kept."""

_REPLAY_SHOWN = 10
"""The last steps of a replay, which are shown in numbers."""

Agent = Literal["zero", "random", "trained"]


@dataclass(frozen=True, kw_only=True)
class PlayResult:
    """What a playback did."""

    engine: str
    num_envs: int
    seed: int
    steps: int
    """Control steps of the vectorised environment."""
    seconds: float
    """Wall clock of the steps, without the start."""
    episodes: int
    """Episodes that ended."""
    return_mean: float | None
    """Mean return of the episodes that ended; None if none did."""
    length_mean: float | None
    """Their mean length, in control steps."""
    frames: int = 0
    """Pictures of the film."""


def play_task(
    task_id: str,
    *,
    agent: Agent | None = None,
    checkpoint: str | Path | None = None,
    best: bool = False,
    num_envs: int | None = None,
    max_steps: int | None = None,
    profile: ProfileCfg | None = None,
    film: FilmCfg | None = None,
    overrides: Sequence[Override] = (),
    notify: Callable[[str], None] = lambda message: None,
    on_step: Callable[[int, int], None] = lambda step, total: None,
) -> PlayResult:
    """Play a task with its play config.

    `max_steps` always ends the run. Without it a headless run ends after `simulation.steps` control steps, which is the
    length of the film unless an override says otherwise. `agent`,
    `checkpoint`, `num_envs` and `profile` are for RL tasks; a scene without rewards plays its own actions. `checkpoint`
    and `best` are as for `find_checkpoint`.
    """
    cfg = TASKS.get(task_id)
    env_cfg = cfg.play_env if cfg.play_env is not None else cfg.env
    if isinstance(env_cfg, ManagerBasedRlEnvCfg):
        if num_envs is not None:
            env_cfg.scene.num_envs = num_envs
    else:
        given = {"--agent": agent, "--checkpoint": checkpoint, "--num-envs": num_envs, "--prof": profile}
        for option in (name for name, value in given.items() if value is not None):
            notify(f"{option} is for RL tasks; {task_id} is a scene and ignores it")
        agent, checkpoint, profile = None, None, None
    apply_overrides({"env": env_cfg} if cfg.agent is None else {"env": env_cfg, "agent": cfg.agent}, overrides)
    agent = agent or ("trained" if checkpoint is not None else "zero")
    policy = _find_policy(task_id, agent, checkpoint, best)
    asked = any(override.path == "env.simulation.vis" for override in overrides)
    _announce_viewer(env_cfg.simulation.vis and (asked or not isinstance(env_cfg, ManagerBasedRlEnvCfg)), notify)
    if film is not None:
        film.check()
        env_cfg.scene.num_envs = max(env_cfg.scene.num_envs, film.num_envs if num_envs is None else 1)
        if film.length is not None and not any(override.path == "env.simulation.steps" for override in overrides):
            env_cfg.simulation.steps = film.length
    total = env_cfg.simulation.steps if max_steps is None else max_steps
    env = make_env(env_cfg, notify=notify)
    if isinstance(env, ManagerBasedRlEnv):
        env.watcher = NanGuard(env, TASKS.entry(task_id).id, DUMPS)
    try:
        setup = _setup(env, agent, cfg.agent, policy)
        if film is None:
            return _play(env, setup, total, profile, [], on_step)
        camera = Film(env, film)
        try:
            result = _play(env, setup, total, profile, [camera], on_step)
        finally:
            camera.close()
        return replace(result, frames=camera.frames)
    finally:
        env.close()


@torch.inference_mode()
def replay_dump(path: Path, task_id: str, show: Callable[[str], None]) -> int:
    """Play what led to a number that was none, and show the environment it happened in; returns the steps played."""
    replay = load_replay(path, TASKS.entry(task_id).id)
    env, i = replay.env, replay.environment
    show(replay.message)
    steps = len(replay.actions)
    for step, action in enumerate(replay.actions.to(env.device), start=1):
        observations, reward, *_ = env.step(action)
        seen = ", ".join(f"{name} {_row(values[i])}" for name, values in observations.items())
        if step > steps - _REPLAY_SHOWN:
            show(f"step {step}/{steps}: action {_row(action[i])}, {seen}, reward {reward[i]:.4g}")
    env.close()
    return steps


def _row(values: Tensor) -> str:
    return "[" + " ".join(f"{value:.4g}" for value in values.tolist()) + "]"


def _find_policy(task_id: str, agent: Agent, checkpoint: str | Path | None, best: bool) -> Path | None:
    """The file of a trained policy: the one that was given, or the one that is shipped with the task."""
    if checkpoint is not None and agent != "trained":
        raise UsageError(f"--checkpoint is for --agent trained, not {agent}: pass one of them")
    if checkpoint is not None:
        return find_checkpoint(task_id, checkpoint, best=best)
    if best:
        raise UsageError("--best chooses among the checkpoints of a run: pass --checkpoint RUN_DIR or latest")
    if agent != "trained":
        return None
    shipped = pretrained_policy(task_id)
    if shipped is None:
        raise UsageError("--agent trained needs a policy: pass --checkpoint FILE, a run directory or latest")
    return shipped


def _setup(env: ManagerBasedEnv, agent: Agent, agent_cfg: Any, policy: Path | None) -> InferenceSetup:
    """Who acts."""
    if policy is not None and isinstance(env, ManagerBasedRlEnv):
        return load_policy(env, agent_cfg, policy)
    return InferenceSetup(policy=random_policy(env) if agent == "random" else zero_policy(env))


def _announce_viewer(wanted: bool, notify: Callable[[str], None]) -> None:
    """Say what happens instead of a viewer, which this version does not have."""
    if not wanted:
        return
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        notify("No display detected: playing headless")
    else:
        notify("this version has no viewer yet: playing headless")


def _play(
    env: ManagerBasedEnv,
    setup: InferenceSetup,
    total: int,
    profile: ProfileCfg | None,
    onlookers: Sequence[Onlooker],
    on_step: Callable[[int, int], None],
) -> PlayResult:
    episodes = Episodes(num_envs=env.num_envs, device=env.device)
    with torch.inference_mode(), profiler(profile) as trace:
        observations, _ = env.reset(seed=env.seed)
        setup.reset(None)
        start = time.perf_counter()
        for step in range(total):
            playback = env.cfg.playback
            action = setup.policy(observations) if playback is None else playback(env, step)
            observations, *outcome = env.step(action)
            if isinstance(env, ManagerBasedRlEnv):
                reward, terminated, truncated, _ = outcome
                episodes.add(reward, terminated | truncated, {})
                setup.reset(terminated | truncated)
            for onlooker in onlookers:
                onlooker.after_step()
            trace.step()
            on_step(step + 1, total)
        seconds = time.perf_counter() - start
    return PlayResult(
        engine=env.scene.engine.name,
        num_envs=env.num_envs,
        seed=env.seed,
        steps=total,
        seconds=seconds,
        episodes=len(episodes.returns),
        return_mean=episodes.return_mean,
        length_mean=episodes.length_mean,
    )
