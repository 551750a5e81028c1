"""The reinforcement-learning environment: a Gymnasium vector environment of torch tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from genelab import math as gm
from genelab.config import Positive
from genelab.envs.manager_based_env import ManagerBasedEnv, ManagerBasedEnvCfg, one_thread
from genelab.envs.watch import StepResult, Watcher
from genelab.errors import ConfigError, UsageError
from genelab.managers import (
    CommandManager,
    CommandTermCfg,
    CurriculumManager,
    CurriculumTermCfg,
    MetricsManager,
    MetricTermCfg,
    RewardManager,
    RewardTermCfg,
    ScheduleCfg,
    ScheduleManager,
    TerminationManager,
    TerminationTermCfg,
)
from genelab.sim import EnvIds

_MOST_STEPS = 2**53
"""Of an episode; beyond it a float does not tell two numbers of steps apart."""


@dataclass(kw_only=True)
class ManagerBasedRlEnvCfg(ManagerBasedEnvCfg):
    """A task: a scene with rewards, ends, commands and curricula."""

    episode_length_s: Positive
    """Longest episode, s."""
    rewards: dict[str, RewardTermCfg] = field(default_factory=dict)
    """What is paid for."""
    terminations: dict[str, TerminationTermCfg] = field(default_factory=dict)
    """What ends an episode."""
    commands: dict[str, CommandTermCfg] = field(default_factory=dict)
    """What is asked for."""
    curriculum: dict[str, CurriculumTermCfg] = field(default_factory=dict)
    """What gets harder."""
    schedules: dict[str, ScheduleCfg] = field(default_factory=dict)
    """What comes in or fades while a policy learns, by name; what follows one names it."""
    metrics: dict[str, MetricTermCfg] = field(default_factory=dict)
    """What is reported besides."""
    auto_reset: bool = True
    """Start an ended environment anew in the same step; off for teleoperation."""
    scale_rewards_by_dt: bool = True
    """Rewards are rates: multiply them by the control step's duration."""

    def validate(self) -> None:
        super().validate()
        if self.episode_length_s / (self.simulation.dt * self.decimation) > _MOST_STEPS:
            raise ConfigError(f"env.episode_length_s: {self.episode_length_s} s are more steps than can be counted")


class ManagerBasedRlEnv(ManagerBasedEnv, VectorEnv):
    """A task in `num_envs` copies.

    `step` returns the five of Gymnasium. An environment that ends is reset in the same step: its observation is already
    the first of the new episode, the last of the old one is in `info["final_obs"]` where `info["_final_obs"]` is true,
    and what was told of its last step in `info["final_info"]`.
    Set `shows_final_obs` to False where nobody reads that: then it is not computed.

    With `autoreset_mode` NEXT_STEP an environment that ends shows its last observation, and the next step resets it:
    its action is ignored, its reward is 0 and nothing of that step counts for its episode. Physics runs for all
    environments at once, so its robot does move before it is put back; no term is asked about that.

    All environments draw from one stream of random numbers. A reset of some draws from it, so what is random later
    differs for all: other numbers, of the same distribution.
    """

    cfg: ManagerBasedRlEnvCfg
    parts = (
        *ManagerBasedEnv.parts,
        "command_manager",
        "reward_manager",
        "termination_manager",
        "curriculum_manager",
        "metrics_manager",
        "schedule_manager",
    )
    not_state = (
        "watchers",
        "shows_final_obs",
        "_extras",
        "diverged",
        "_solver_seen",
        "single_observation_space",
        "single_action_space",
        "observation_space",
        "action_space",
        "closed",
        "autoreset_mode",
        "_np_random",
        "_np_random_seed",
    )
    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012
    _over: Tensor | None = None
    """Where the last step ended an episode, in mode NEXT_STEP, `(N,)`."""

    def __init__(self, cfg: ManagerBasedRlEnvCfg, *, notify: Callable[[str], None] | None = None) -> None:
        self.watchers: list[Watcher] = []
        """Who looks on: guards, clocks, counters. Without any, a step does not notice."""
        self.shows_final_obs = True
        """Whether `info` has the last observations of episodes that end. Where nobody reads them, a step is cheaper."""
        self._extras: dict[str, Any] = {}
        self.diverged = 0
        """Environments that were put back because their physics diverged, so far."""
        self._solver_seen = (0, 0)
        super().__init__(cfg, notify=notify)
        self._set_spaces()

    def _load_managers(self) -> None:
        steps = self.cfg.episode_length_s / self.step_dt
        self.max_episode_length = max(1, math.ceil(round(steps, 6)))
        self.max_episode_length_s = self.cfg.episode_length_s
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        self.schedule_manager = ScheduleManager(self.cfg.schedules, self)
        # Observations may look at commands and at the last action, so those come first.
        self.scene.reset(None)
        self.command_manager = CommandManager(self.cfg.commands, self)
        self.command_manager.reset(None)
        self.command_manager.update()
        super()._load_managers()
        self.reward_manager = RewardManager(self.cfg.rewards, self)
        self.termination_manager = TerminationManager(self.cfg.terminations, self)
        self.curriculum_manager = CurriculumManager(self.cfg.curriculum, self)
        self.metrics_manager = MetricsManager(self.cfg.metrics, self)

    def _set_spaces(self) -> None:
        groups = self.observation_manager.groups
        dtype = np.float64 if self.dtype == torch.float64 else np.float32
        self.single_observation_space = gymnasium.spaces.Dict(
            {name: gymnasium.spaces.Box(-np.inf, np.inf, (group.dim,), dtype) for name, group in groups.items()}
        )
        self.single_action_space = gymnasium.spaces.Box(-1.0, 1.0, (self.action_dim,), dtype)
        self.autoreset_mode = self.metadata["autoreset_mode"] if self.cfg.auto_reset else AutoresetMode.DISABLED
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    @property
    def extras(self) -> dict[str, Any]:
        """What the last step reports besides; a term may add to it, `is_success` for one."""
        return self._extras

    @property
    def schedules(self) -> ScheduleManager:
        """The schedules, by name."""
        return self.schedule_manager

    @property
    def commands(self) -> CommandManager:
        """The commands, by name."""
        return self.command_manager

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Start all environments anew; with a seed, everything that follows depends only on it.

        Environments draw from one stream of random numbers, so a seed for each of them is one for all. With
        `options={"reset_mask": mask}` only the environments where the mask is true start anew.
        """
        self._need_open()
        mask = (options or {}).get("reset_mask")
        if mask is not None:
            return self._reset_some(mask, seed)
        seed = _one_seed(seed, self.num_envs)
        if seed is not None:
            self._np_random, self._np_random_seed = seeding.np_random(seed)
            self.common_step_counter = 0
            self.schedule_manager.restart()
            self.episode_length_buf.zero_()  # a curriculum must not judge what was before the seed
            self.command_manager.restart()
            self.reward_manager.restart()
        self._extras = {}
        if self._over is not None:
            self._over = torch.zeros_like(self._over)
        return super().reset(seed=seed, options=options)

    def _reset_some(self, mask: Any, seed: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Start some environments anew; the others stay as they are."""
        if seed is not None:
            raise UsageError("reset: a seed starts all environments anew; leave it out with a reset_mask")
        chosen = torch.as_tensor(mask, device=self.device)
        if chosen.dtype != torch.bool or chosen.shape != (self.num_envs,):
            raise UsageError(
                f"reset: reset_mask must be {self.num_envs} booleans, got {tuple(chosen.shape)} of {chosen.dtype}"
            )
        self._extras = {}
        env_ids = chosen.nonzero()[:, 0]
        if len(env_ids):
            self._reset_envs(env_ids)
            self.command_manager.update()
            self.scene.engine.refresh()
        if self._over is not None:
            self._over = self._over & ~chosen
        return self.observation_manager.begin(env_ids), {}

    def _need_open(self) -> None:
        if self._closed:
            raise UsageError("this environment is closed: make a new one")

    @contextmanager
    def watched_by(self, *watchers: Watcher) -> Iterator[None]:
        """Let others look on meanwhile, around those who do already."""
        before = self.watchers
        self.watchers = [*watchers, *before]
        try:
            yield
        finally:
            self.watchers = before

    def step(self, action: Tensor | np.ndarray) -> StepResult:
        """One control step: observations, rewards, terminated, truncated, info."""
        self._need_open()
        with one_thread(self.device):
            return self._step(action)

    def _step(self, action: Tensor | np.ndarray) -> StepResult:
        self._extras = {}
        action = torch.as_tensor(action, device=self.device)
        for watcher in self.watchers:
            watcher.before_step(action)
        if not self.watchers and action.device.type == "cpu" and not _is_finite(action):
            raise UsageError("step: an action is not a finite number")  # a guard that looks on tells more
        self._advance(action, self.watchers)
        resting = self._over  # they ended with the last step, and this one only resets them
        diverged = self._rescue() if self.cfg.simulation.on_divergence == "reset" else None
        self.episode_length_buf += 1
        done = self.termination_manager.compute(resting)
        reward = self.reward_manager.compute(resting)
        diverged = self._forgive(diverged)
        if diverged is not None:
            diverged = diverged if resting is None else diverged & ~resting
            done, reward = self.termination_manager.cut_off(diverged), reward.masked_fill(diverged, 0.0)
        self.metrics_manager.compute(resting)
        self.command_manager.measure()
        self.schedule_manager.advance()
        terminated, truncated = self.termination_manager.terminated, self.termination_manager.truncated
        ended = None
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            ended = done.nonzero()[:, 0]
            if len(ended):
                if self.shows_final_obs:
                    self._extras["final_obs"] = self.observation_manager.compute(keep=False)
                    self._extras["_final_obs"] = done
                self._extras["log"] = self._reset_envs(ended)
        elif self.autoreset_mode is AutoresetMode.NEXT_STEP:
            self._over = done
            ended = None if resting is None else resting.nonzero()[:, 0]
            if ended is not None and len(ended):
                self._extras["log"] = self._reset_envs(ended)
        self.command_manager.advance(self.step_dt, ended)
        self.event_manager.advance(self.step_dt, ended)
        self.scene.engine.refresh()
        self._extras["time_outs"] = truncated & ~terminated  # who failed in the last step has failed
        if "final_obs" in self._extras:
            told = {key: value for key, value in self._extras.items() if isinstance(value, Tensor) and key[0] != "_"}
            self._extras["final_info"] = told | {f"_{key}": done for key in told}
            self._extras["_final_info"] = done
        observations = self.observation_manager.compute()
        result = StepResult(observations, reward, terminated, truncated, self._extras)
        for watcher in reversed(self.watchers):
            watcher.after_step(result)
        return result

    def _rescue(self) -> Tensor | None:
        """Put environments whose physics diverged back to their start, so that all terms see numbers; which, if any."""
        engine = self.scene.engine
        fine = (engine.qvel.abs() <= self.cfg.simulation.divergence_speed).all(dim=1)  # no NaN is less than anything
        fine &= engine.qpos.isfinite().all(dim=1)
        if bool(fine.all()):
            return None
        env_ids = (~fine).nonzero()[:, 0]
        self.scene.reset(env_ids)
        self.scene.refresh(env_ids)
        self.scene.reset_sensors(env_ids)
        self.diverged += len(env_ids)
        return ~fine

    def _forgive(self, diverged: Tensor | None) -> Tensor | None:
        """Count environments whose reward is not a finite number as diverged, too; which those are, if any.

        A huge action can leave the physics alone, for actuators have limits, and overflow a penalty on it.
        """
        overflowed = self.reward_manager.overflowed
        if overflowed is None or not bool(overflowed.any()):
            return diverged
        env_ids = overflowed.nonzero()[:, 0]
        self.action_manager.reset(env_ids)  # so that the last observation of the episode does not show it either
        both = overflowed if diverged is None else diverged | overflowed
        self.diverged += int(both.sum()) - (0 if diverged is None else int(diverged.sum()))
        return both

    def _solver_log(self) -> dict[str, Any]:
        """How the physics went since the last episodes ended, as soon as there is something to tell."""
        engine = self.scene.engine
        solved, unconverged = self._solver_seen
        self._solver_seen = engine.solved, engine.unconverged
        share = (engine.unconverged - unconverged) / max(engine.solved - solved, 1)
        log = {"Solver/unconverged": share} if engine.unconverged else {}
        log |= {"Solver/diverged": self.diverged} if self.diverged else {}
        return {key: torch.tensor(float(value)) for key, value in log.items()}

    def _reset_envs(self, env_ids: EnvIds) -> dict[str, Any]:
        every = torch.arange(self.num_envs, device=self.device) if env_ids is None else env_ids
        log = self.curriculum_manager.compute(every)
        managers = (
            self.reward_manager,
            self.termination_manager,
            self.metrics_manager,
            self.curriculum_manager,
            self.schedule_manager,
        )
        for manager in managers:
            log.update(manager.reset(env_ids))
        log.update(super()._reset_envs(env_ids))
        gm.fill(self.episode_length_buf, env_ids, 0)
        log.update(self.command_manager.reset(env_ids))
        if env_ids is None:  # otherwise time passes for the others, and everything is updated then
            self.command_manager.update()
        log.update(self._solver_log())
        return log

    def close(self, **kwargs: Any) -> None:
        """Free the engine."""
        super().close()
        self.closed = True


def _is_finite(values: Tensor) -> bool:
    """Whether all are numbers; of a finite sum all are, which is four times as fast to see."""
    return math.isfinite(values.sum()) or bool(values.isfinite().all())


def _one_seed(seed: int | Sequence[int | None] | None, num_envs: int) -> int | None:
    """A seed as Gymnasium gives it, as one number."""
    if seed is None or isinstance(seed, int | np.integer):
        return None if seed is None else int(seed)
    if not isinstance(seed, Sequence | np.ndarray) or isinstance(seed, str):
        raise UsageError(f"reset: a seed is an integer, or one for each environment, got {seed!r}")
    seeds = [None if one is None else int(one) for one in seed]
    if len(seeds) != num_envs:
        raise UsageError(f"reset: {len(seeds)} seeds for {num_envs} environments")
    known = [one for one in seeds if one is not None]
    return int(np.random.SeedSequence(known).generate_state(1)[0]) if known else None
