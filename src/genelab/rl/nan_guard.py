"""Stops a run at the first number that is none, says where it came from, and keeps what is needed to see it again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genelab.config import from_dict, to_dict
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.errors import GenelabError, UsageError
from genelab.rl.checkpoint import read_safely, save_atomically

SNAPSHOT_STEPS = 64
"""Control steps between two snapshots: a dump holds at most so many actions."""


class NotFiniteError(GenelabError):
    """The environment gave a NaN or an infinity."""


class NanGuard:
    """Looks at every step of an environment: `env.watcher = NanGuard(...)`."""

    def __init__(self, env: ManagerBasedRlEnv, task_id: str, path: Path) -> None:
        self._env = env
        self._task_id = task_id
        self._path = path
        self._actions: list[Tensor] = []
        self._snapshot: dict[str, Any] | None = None

    def before_step(self, action: Tensor) -> None:
        """Remember how to come here again."""
        if self._snapshot is None or len(self._actions) == SNAPSHOT_STEPS:
            self._snapshot = self._env.state_dict()
            self._actions.clear()
        self._actions.append(action.detach().to("cpu", copy=True))

    def after_step(self, observations: dict[str, Tensor], reward: Tensor) -> None:
        """Stop if anything is not a number."""
        total = reward.sum() + sum(values.sum() for values in observations.values())
        if not torch.isfinite(total):
            self._check(observations, reward)

    def _check(self, observations: dict[str, Tensor], reward: Tensor) -> None:
        bad = ~reward.isfinite()
        for values in observations.values():
            bad |= ~values.isfinite().all(dim=1)
        found = bad.nonzero().flatten().tolist()
        if not found:
            return  # the sum overflowed, the numbers did not
        env_id = found[0]
        where = ", ".join(self._sources(env_id, observations))
        others = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        dump = self._path / "nan_dump.pt"
        message = f"not a finite number in environment {env_id}{others}: {where}"
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
        raise NotFiniteError(f"{message}. See it again: genelab play {self._task_id} --replay {dump}")

    def _sources(self, env_id: int, observations: dict[str, Tensor]) -> list[str]:
        """Where the environment's bad numbers are: physics first, for the rest follows from it."""
        engine = self._env.scene.engine
        sources = []
        if not (engine.qpos[env_id].isfinite().all() and engine.qvel[env_id].isfinite().all()):
            sources.append("the physics")
        rewards = self._env.reward_manager.step_reward[:, env_id].isfinite().tolist()
        names = list(self._env.reward_manager.terms)
        sources += [f"reward {name!r}" for name, fine in zip(names, rewards, strict=True) if not fine]
        for name, group in self._env.observation_manager.groups.items():
            frame = observations[name][env_id, -group.frame_dim :]
            for term in group.layout:
                if not frame[term.start : term.start + term.dim].isfinite().all():
                    sources.append(f"observation '{name}/{term.name}'")
        return sources


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
