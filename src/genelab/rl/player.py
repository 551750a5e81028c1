"""Run a task and watch what happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from genelab.config import TASKS, as_words
from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv, ManagerBasedRlEnvCfg, StepResult, make_env
from genelab.errors import UsageError
from genelab.rl.backends import InferenceSetup
from genelab.rl.config import configure
from genelab.rl.episodes import Episodes
from genelab.rl.locate import find_checkpoint, pretrained_policy
from genelab.rl.nan_guard import NanGuard, Replay, load_replay
from genelab.rl.policies import load_policy, random_policy, zero_policy
from genelab.rl.profiling import ProfileCfg, Tracer, profiler
from genelab.rl.rollout import Rollout
from genelab.sim.engine import remark_on_idle_gpu
from genelab.viewer import Film, FilmCfg, Onlooker, ViewerCfg, has_display, open_viewer

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
    traces: Path | None = None
    """Where the profiler's traces are; None if nothing was traced."""


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
    viewer: ViewerCfg | None = None,
    overrides: Mapping[str, Any] = {},
    notify: Callable[[str], None] = lambda message: None,
    on_step: Callable[[int, int], None] = lambda step, total: None,
) -> PlayResult:
    """Play a task with its play config.

    `max_steps` always ends the run. Without it a run with a viewer goes on until that is closed or Ctrl-C, and a
    headless run ends after `simulation.steps` control steps, which is the length of the film unless an override says
    otherwise. There is a viewer if an override of `simulation.vis` asks for it; where there is a display, also by
    default for a trained policy or a scene.

    `agent`, `checkpoint`, `best`, `num_envs` and `profile` are for RL tasks; a scene without rewards plays its own
    actions. `checkpoint` and `best` are as for `find_checkpoint`.
    """
    cfg = TASKS.get(task_id)
    env_cfg = cfg.playing
    if isinstance(env_cfg, ManagerBasedRlEnvCfg):
        if num_envs is not None:
            env_cfg.scene.num_envs = num_envs
    else:
        given = {"agent": agent, "checkpoint": checkpoint, "best": best or None, "num_envs": num_envs}
        for option in (name for name, value in {**given, "profile": profile}.items() if value is not None):
            notify(f"`{option}` is for RL tasks; {task_id} is a scene and ignores it")
        agent, checkpoint, best, num_envs, profile = None, None, False, None, None
    configure(env_cfg, cfg.agent, overrides)
    remark_on_idle_gpu(env_cfg.simulation, overrides, notify)
    agent = agent or ("trained" if checkpoint is not None else "zero")
    policy = _find_policy(task_id, agent, checkpoint, best)
    asked = "env.simulation.vis" in overrides
    by_default = film is None and (agent == "trained" or not isinstance(env_cfg, ManagerBasedRlEnvCfg))
    viewer = choose_viewer(viewer, env_cfg.simulation.vis and (asked or by_default), asked, notify)
    if film is not None:
        film.check()
        env_cfg.scene.num_envs = max(env_cfg.scene.num_envs, film.num_envs if num_envs is None else 1)
        if film.length is not None and "env.simulation.steps" not in overrides:
            env_cfg.simulation.steps = film.length
    steps: int | None = env_cfg.simulation.steps
    if steps == 0 and not isinstance(env_cfg, ManagerBasedRlEnvCfg):
        steps = None  # a scene plays until Ctrl-C
    total = max_steps if max_steps is not None or viewer is not None else steps
    env = make_env(env_cfg, notify=notify)
    if isinstance(env, ManagerBasedRlEnv):
        env.watchers.append(NanGuard(env, TASKS.entry(task_id).id, DUMPS, overrides))
    with closing(env):
        return watch(Player(env, agent, cfg.agent, policy), total, profile, film, viewer, notify, on_step)


def watch(
    player: Player,
    total: int | None,
    profile: ProfileCfg | None,
    film: FilmCfg | None,
    viewer: ViewerCfg | None,
    notify: Callable[[str], None],
    on_step: Callable[[int, int], None],
) -> PlayResult:
    """Play while it is filmed and shown."""
    with ExitStack() as stack:
        onlookers: list[Onlooker] = []
        camera = None if film is None else Film(player.env, film, player.environment)
        if camera is not None:
            stack.callback(camera.close)
            onlookers.append(camera)
        if viewer is not None:
            shown = open_viewer(player, viewer, notify)
            stack.callback(shown.close)
            onlookers.append(shown)
            stack.enter_context(suppress(KeyboardInterrupt))  # with a viewer, Ctrl-C is how a run ends
        tracer = stack.enter_context(profiler(profile, notify))
        player.play(total, tracer, onlookers, on_step)
    traces = None if profile is None or not tracer.files else profile.out
    return player.result(0 if camera is None else camera.frames, traces)


@torch.inference_mode()
def replay_dump(
    path: str | Path,
    task_id: str,
    show: Callable[[str], None],
    *,
    max_steps: int | None = None,
    film: FilmCfg | None = None,
    viewer: ViewerCfg | None = None,
    overrides: Mapping[str, Any] = {},
    notify: Callable[[str], None] = lambda message: None,
) -> PlayResult:
    """Play what led to NaN or infinity, and show the environment it happened in.

    The config is that of the run, but for the overrides. A viewer shows it over and over, until it is closed, Ctrl-C
    or `max_steps`.
    """
    replay = load_replay(Path(path), TASKS.entry(task_id).id, overrides)
    with closing(replay.env):
        asked = "env.simulation.vis" in overrides
        viewer = choose_viewer(viewer, replay.env.cfg.simulation.vis and asked, asked, notify)
        if film is not None:
            film.check()
        show(replay.message)
        changes = as_words({path: overrides[path] for path in overrides if path != "env.simulation.vis"})
        show("config of the run; " + (f"overrides: {', '.join(changes)}" if changes else "no overrides"))
        steps = len(replay.actions)
        total = max_steps if viewer is not None else min(steps, steps if max_steps is None else max_steps)
        return watch(ReplayPlayer(replay, show), total, None, film, viewer, notify, lambda step, total: None)


def _row(values: Tensor) -> str:
    return "[" + " ".join(f"{value:.4g}" for value in values.tolist()) + "]"


def _find_policy(task_id: str, agent: Agent, checkpoint: str | Path | None, best: bool) -> Path | None:
    """The file of a trained policy: the one that was given, or the one that is shipped with the task."""
    if checkpoint is not None and agent != "trained":
        raise UsageError(f"`checkpoint` is for `agent='trained'`, not {agent}: pass one of them")
    if checkpoint is not None:
        return find_checkpoint(task_id, checkpoint, best=best)
    if best:
        raise UsageError("`best` chooses among the checkpoints of a run: pass `checkpoint=RUN_DIR` or latest")
    if agent != "trained":
        return None
    shipped = pretrained_policy(task_id)
    if shipped is None:
        raise UsageError("`agent='trained'` needs a policy: pass `checkpoint=FILE`, a run directory or latest")
    return shipped


def choose_viewer(
    viewer: ViewerCfg | None, wanted: bool, asked: bool, notify: Callable[[str], None]
) -> ViewerCfg | None:
    """How to look at the run, or None for headless; without a display it says what happens instead of a window."""
    viewer = viewer or ViewerCfg()
    if not wanted:
        return None
    if viewer.kind is None and not has_display() and not asked:
        notify("No display detected: playing headless; `env.simulation.vis` serves a web page")
        return None
    return viewer


class Player(Rollout):
    """A task being played: who acts, what was seen last, how it went."""

    env: ManagerBasedEnv
    steerable = True

    def __init__(self, env: ManagerBasedEnv, agent: Agent, agent_cfg: Any, policy: Path | None) -> None:
        super().__init__(env, InferenceSetup(policy=random_policy(env) if agent == "random" else zero_policy(env)))
        self.environment = 0
        self.reward: Tensor | None = None
        self.policy = agent if policy is None else policy.name
        self.checkpoints = {} if policy is None else _neighbours(policy)
        self._agent_cfg = agent_cfg
        restarts = not isinstance(env, ManagerBasedRlEnv) or env.cfg.auto_reset
        self._episodes = Episodes(num_envs=env.num_envs, device=env.device, restarts=restarts)
        self._seconds = 0.0
        self._restarted_at = 0
        if policy is not None and isinstance(env, ManagerBasedRlEnv):
            self.setup = load_policy(env, agent_cfg, policy)

    def restart(self, *, seed: int | None = None) -> None:
        """Start all environments anew."""
        super().restart(seed=seed)
        self._episodes.restart()
        self._restarted_at = self.steps

    def load(self, name: str) -> None:
        """Let a checkpoint beside the policy act."""
        assert isinstance(self.env, ManagerBasedRlEnv)
        self.setup = load_policy(self.env, self._agent_cfg, self.checkpoints[name])
        self.setup.reset(None)
        self.policy = name

    def play(
        self,
        total: int | None,
        tracer: Tracer | None,
        onlookers: Sequence[Onlooker],
        on_step: Callable[[int, int], None],
    ) -> None:
        """Play so many control steps, or until an onlooker has seen enough."""
        with torch.inference_mode():
            self.restart(seed=self.env.seed)
            start = time.perf_counter()
            try:
                while total is None or self.steps < total:
                    if not all(onlooker.before_step() for onlooker in onlookers):
                        break
                    self.step()
                    for onlooker in onlookers:
                        onlooker.after_step()
                    if tracer is not None:
                        tracer.step()
                    if total is not None:
                        on_step(self.steps, total)
            finally:
                self._seconds = time.perf_counter() - start

    def act(self) -> Tensor:
        playback = self.env.cfg.playback
        return super().act() if playback is None else playback(self.env, self.steps - self._restarted_at)

    def step(self) -> Any:
        answer = super().step()
        if isinstance(answer, StepResult):
            self.reward = answer.reward
            self._episodes.add(answer)
        return answer

    def result(self, frames: int, traces: Path | None) -> PlayResult:
        """What was done."""
        return PlayResult(
            engine=self.env.scene.engine.name,
            num_envs=self.env.num_envs,
            seed=self.env.seed,
            steps=self.steps,
            seconds=self._seconds,
            episodes=len(self._episodes.ended),
            return_mean=self._episodes.return_mean,
            length_mean=self._episodes.length_mean,
            frames=frames,
            traces=traces,
        )


class ReplayPlayer(Player):
    """Does again what a dump says was done, from its first action after its last one."""

    def __init__(self, replay: Replay, show: Callable[[str], None]) -> None:
        super().__init__(replay.env, "zero", None, None)
        self.policy = "the dump's actions"
        self.environment = replay.environment
        self._replay = replay
        self._actions = replay.actions.to(replay.env.device)
        self._show = show
        self.restart()

    def restart(self, *, seed: int | None = None) -> None:
        """Go back to where the dump begins; its random numbers are in it."""
        self._replay.rewind()
        self._episodes.restart()
        self._done = 0

    def act(self) -> Tensor:
        if self._done == len(self._actions):
            self.restart()
        return self._actions[self._done]

    def step(self) -> Any:
        answer = super().step()
        self._done += 1
        if len(self._actions) - _REPLAY_SHOWN < self._done == self.steps:  # in numbers once
            self._show(self._line())
        return answer

    def _line(self) -> str:
        i, reward = self.environment, self.reward
        assert reward is not None
        seen = ", ".join(f"{name} {_row(values[i])}" for name, values in self.observations.items())
        action = _row(self._actions[self._done - 1, i])
        return f"step {self._done}/{len(self._actions)}: action {action}, {seen}, reward {reward[i]:.4g}"


def _neighbours(policy: Path) -> dict[str, Path]:
    """The checkpoints of the run that a policy is from, in the order they were made."""
    if not (policy.parent / "run.json").is_file():
        return {}
    found = [*policy.parent.glob(f"model_*{policy.suffix}"), *policy.parent.glob(f"best_model{policy.suffix}")]
    return {path.name: path for path in sorted({*found, policy}, key=lambda path: (path.stat().st_mtime, path.name))}
