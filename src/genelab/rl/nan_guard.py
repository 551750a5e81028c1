"""The NaN guard: stops a run at the first NaN or infinity, says where it came from, and keeps what shows it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genelab.config import TASKS, as_words, expect, from_dict, parse_json, to_dict
from genelab.envs import LOOK_STEPS, FiniteGuard, ManagerBasedRlEnv, ManagerBasedRlEnvCfg, NotFiniteError
from genelab.errors import GenelabError, UsageError, refusing
from genelab.rl.checkpoint import read_safely, save_atomically
from genelab.rl.config import configure
from genelab.rl.finite import Diverged
from genelab.rl.monitor import Iteration, IterationHook, TrainingInterrupted, TrainMonitor

_DUMP: dict[str, Any] = {
    "task": str,
    "env": str,
    "state": dict,
    "actions": Tensor,
    "environment": int,
    "message": str,
}


class NanGuard(FiniteGuard, IterationHook):
    """Leaves a dump of the steps that led to NaN or infinity: a snapshot, and the actions since."""

    def __init__(
        self,
        env: ManagerBasedRlEnv,
        task_id: str,
        path: Path,
        overrides: Mapping[str, Any] = {},
        *,
        late: bool | None = None,
    ) -> None:
        super().__init__(env, late=late)
        self._overrides = {path: value for path, value in overrides.items() if _is_of_the_world(path)}
        self._task_id = task_id
        self._path = path
        self._actions = torch.zeros(LOOK_STEPS, env.num_envs, env.action_dim, device=env.device, dtype=env.dtype)
        """Since the snapshot, on the device."""
        self._snapshot: dict[str, Any] | None = None
        self._snapshot_at = 0

    def before_step(self, action: Tensor) -> None:
        """Remember how to come here again."""
        if self._steps % LOOK_STEPS == 0:
            self.look()  # what led here is forgotten next
            self._snapshot, self._snapshot_at = self._env.state_dict(), self._steps
        if action.shape == self._actions.shape[1:]:  # else the environment says what is wrong
            self._actions[self._steps - self._snapshot_at] = action.detach()
        super().before_step(action)

    def after_iteration(self, iteration: Iteration) -> None:
        """Tell what the environment did before the learner is blamed; the device is waited for anyway."""
        self.look()

    def learner_diverged(self, what: str) -> NotFiniteError:
        """What to raise because of the learner, when the environment's numbers are all fine."""
        names, paid = list(self._env.reward_manager.terms), self._env.reward_manager.step_reward.abs()  # (terms, N)
        env_id, rewards = 0, ""
        if names:
            term, env_id = divmod(int(paid.argmax()), self._env.num_envs)
            rewards = f" (up to {paid.max():.3g}, for {names[term]!r})"
        message = f"the learner diverged, not the physics: {what}. Lower the learning rate or the rewards{rewards}"
        return self._error(message, env_id, self._steps)

    def _error(self, message: str, env_id: int, steps: int) -> NotFiniteError:
        actions = self._actions[: steps - self._snapshot_at]
        if not len(actions):
            return NotFiniteError(message)
        dump = self._path / "nan_dump.pt"
        save_atomically(
            {
                "task": self._task_id,
                "env": json.dumps(to_dict(self._env.cfg)),
                "state": self._snapshot,
                "actions": actions.to("cpu", copy=True),
                "environment": env_id,
                "message": message,
            },
            dump,
            parents=True,
        )
        return NotFiniteError(f"{message}. See it again: {self._command(dump)}")

    def _command(self, dump: Path) -> str:
        """What to type to see it again, with what the run was started with."""
        words = ["genelab", "play", self._task_id, *(f"--import={module}" for module in TASKS.imported)]
        words += [f"--{word}" for word in as_words(self._overrides)]
        return shlex.join([*words, "--replay", str(dump)])


@contextmanager
def blaming_the_learner(guard: NanGuard | None, monitor: TrainMonitor) -> Iterator[None]:
    """A library that fails because its own numbers are none says so in words of its own, or not at all."""
    try:
        yield
    except (GenelabError, TrainingInterrupted):
        raise
    except Exception as error:
        if guard is not None:
            guard.look()  # what it was given may have been none
        what = str(error) if isinstance(error, Diverged) else monitor.fault()
        if what is None:
            raise
        if guard is None:
            hint = "without the NaN guard nobody knows whether the environment did so first: train with it"
            raise NotFiniteError(f"the learner diverged: {what}; {hint}") from error
        raise guard.learner_diverged(what) from error


def _is_of_the_world(path: str) -> bool:
    """Whether an override changes what happens, and not how long or by whom it is looked at."""
    return path.startswith("env.") and path not in ("env.simulation.vis", "env.simulation.steps")


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A dump ready to be played."""

    env: ManagerBasedRlEnv
    state: dict[str, Any]
    """What the environment was like before the first action."""
    actions: Tensor
    """What was done since the snapshot, `(steps, num_envs, action_dim)`."""
    environment: int
    """The environment to look at."""
    message: str

    def rewind(self) -> None:
        """Bring the environment into the state from which the actions lead to the bad number."""
        self.env.reset()
        self.env.load_state_dict(self.state)


def load_replay(path: Path, task_id: str, overrides: Mapping[str, Any] = {}) -> Replay:
    """The environment of a dump, with the config of its run but for the overrides.

    The dump is data: its config may name only functions that the task's own packages have.
    """
    content = read_safely(path)
    if not isinstance(content, dict) or "actions" not in content or "environment" not in content:
        raise UsageError(f"{path}: not a dump of the NaN guard")
    expect(content, _DUMP, path)
    if content["task"].lower() != task_id.lower():
        raise UsageError(f"{path}: a dump of {content['task']}, not of {task_id}")
    agent = TASKS.get(task_id).agent  # also, what the task's config names may be named by the dump's
    with refusing(path, "a dump that cannot be played"):
        cfg, plain_cfg = (_config(content["env"]) for _ in range(2))
    num_envs = cfg.scene.num_envs
    configure(cfg, agent, overrides)
    if cfg.scene.num_envs != num_envs:
        raise UsageError(f"{path}: a dump of {num_envs} environments, which cannot be {cfg.scene.num_envs}")
    state = content["state"]
    with refusing(path, "a dump that cannot be played"):
        env = ManagerBasedRlEnv(cfg)
        if any(map(_is_of_the_world, overrides)):
            with closing(ManagerBasedRlEnv(plain_cfg)) as plain:
                state = _with_changes(state, plain.state_dict(), env.state_dict())
        actions, environment = content["actions"], content["environment"]
        if actions.shape[1:] != (num_envs, env.action_dim) or environment not in range(num_envs):
            raise UsageError(f"its actions are not those of {num_envs} environments")
        replay = Replay(env=env, state=state, actions=actions, environment=environment, message=content["message"])
        replay.rewind()
        if env.action_dim != actions.shape[-1]:
            raise UsageError("its state is not that of this environment: action_manager.dim")
        if len(actions):
            env.step(actions[0])  # a state that was tampered with fails here, and not while it is watched
            replay.rewind()
    return replay


def _config(text: str) -> ManagerBasedRlEnvCfg:
    return from_dict(parse_json(text, "env"), ManagerBasedRlEnvCfg)


def _with_changes(saved: Mapping[str, Any], plain: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """A saved state, but for what overrides change in a new environment: weights, ranges and time steps are state, too.

    Where everything is and how it moves is as it was saved.
    """
    state = {}
    for key, value in changed.items():
        if key == "engine" or (key in saved and key in plain and _same(plain[key], value)):
            state[key] = saved[key]
        elif isinstance(value, Mapping):
            state[key] = _with_changes(saved.get(key) or {}, plain.get(key) or {}, value)
        else:
            state[key] = value
    return state


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_same(first[key], second[key]) for key in first)
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return first.shape == second.shape and bool(torch.equal(first, second))
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(_same, first, second))
    return type(first) is type(second) and bool(first == second)
