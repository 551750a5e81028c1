"""Stops a run at the first number that is none, says where it came from, and keeps what is needed to see it again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genelab.config import from_dict, to_dict
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.errors import GenelabError, UsageError
from genelab.rl.checkpoint import read_safely, save_atomically
from genelab.rl.finite import Diverged, FiniteGuard, NotFiniteError
from genelab.rl.monitor import TrainingInterrupted, TrainMonitor

SNAPSHOT_STEPS = 64
"""Control steps between two snapshots: a dump holds at most so many actions."""


class NanGuard(FiniteGuard):
    """Leaves a dump of the steps that led to a number that is none."""

    def __init__(self, env: ManagerBasedRlEnv, task_id: str, path: Path) -> None:
        super().__init__(env)
        self._task_id = task_id
        self._path = path
        self._actions: list[Tensor] = []
        self._snapshot: dict[str, Any] | None = None

    def before_step(self, action: Tensor) -> None:
        """Remember how to come here again."""
        super().before_step(action)
        if self._snapshot is None or len(self._actions) == SNAPSHOT_STEPS:
            self._snapshot = self._env.state_dict()
            self._actions.clear()
        self._actions.append(action.detach().to("cpu", copy=True))

    def learner_diverged(self, what: str) -> NotFiniteError:
        """What to raise because of the learner, when the environment's numbers are all fine."""
        names, paid = list(self._env.reward_manager.terms), self._env.reward_manager.step_reward.abs()  # (terms, N)
        env_id, rewards = 0, ""
        if names:
            term, env_id = divmod(int(paid.argmax()), self._env.num_envs)
            rewards = f" (up to {paid.max():.3g}, for {names[term]!r})"
        message = f"the learner diverged, not the physics: {what}. Lower the learning rate or the rewards{rewards}"
        return self._error(message, env_id)

    def _error(self, message: str, env_id: int) -> NotFiniteError:
        if not self._actions:
            return NotFiniteError(message)
        dump = self._path / "nan_dump.pt"
        save_atomically(
            {
                "task": self._task_id,
                "env": json.dumps(to_dict(self._env.cfg)),
                "state": self._snapshot,
                "actions": torch.stack(self._actions),
                "environment": env_id,
                "message": message,
            },
            dump,
        )
        return NotFiniteError(f"{message}. See it again: genelab play {self._task_id} --replay {dump}")


@contextmanager
def blaming_the_learner(guard: NanGuard, monitor: TrainMonitor) -> Iterator[None]:
    """A library that fails because its own numbers are none says so in words of its own, or not at all."""
    try:
        yield
    except (GenelabError, TrainingInterrupted):
        raise
    except Exception as error:
        what = str(error) if isinstance(error, Diverged) else monitor.fault()
        if what is None:
            raise
        raise guard.learner_diverged(what) from error


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A dump ready to be played."""

    env: ManagerBasedRlEnv
    actions: Tensor
    """What was done since the snapshot, `(steps, num_envs, action_dim)`."""
    environment: int
    """The environment to look at."""
    message: str


def load_replay(path: Path, task_id: str) -> Replay:
    """The environment of a dump, in the state from which its actions lead to the bad number."""
    content = read_safely(path)
    if not isinstance(content, dict) or "actions" not in content or "environment" not in content:
        raise UsageError(f"{path}: not a dump of the NaN guard")
    if content["task"].lower() != task_id.lower():
        raise UsageError(f"{path}: a dump of {content['task']}, not of {task_id}")
    cfg = from_dict(json.loads(content["env"]))
    assert isinstance(cfg, ManagerBasedRlEnvCfg)
    env = ManagerBasedRlEnv(cfg)
    env.reset()
    env.load_state_dict(content["state"])
    return Replay(env=env, actions=content["actions"], environment=content["environment"], message=content["message"])
