"""Detect NaN and infinity while an environment is stepped, and report the term that produced it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from genelab.envs.manager_based_rl_env import ManagerBasedRlEnv
from genelab.envs.watch import StepResult, Watcher
from genelab.errors import GenelabError

LOOK_STEPS = 64
"""Control steps between two looks where a look has to wait for the device."""


class NotFiniteError(GenelabError):
    """The environment, the policy or the learner gave a NaN or an infinity."""


class FiniteGuard(Watcher):
    """Looks at every step, and stops at the first NaN or infinity: `env.watchers.append(FiniteGuard(env))`.

    Physics, rewards and observations are the environment's; an action that is none although the observations are fine
    is the policy's.

    On the CPU it stops in the step itself. A GPU would have to be waited for, so there what is found stays until
    `look` is called, which the guard does every `LOOK_STEPS` steps; `late` asks for the same on the CPU.
    """

    def __init__(self, env: ManagerBasedRlEnv, *, late: bool | None = None) -> None:
        self._env = env
        self._late = env.device.type != "cpu" if late is None else late
        self._steps = 0
        """Made so far."""
        self._found: tuple[Tensor, Tensor] | None = None
        """The first finding, `(rows, N)`, and the number of steps made by then."""
        self._nothing = torch.zeros(1, env.num_envs, dtype=torch.bool, device=env.device)

    def before_step(self, action: Tensor) -> None:
        """Stop if the policy does not know what to do."""
        if self._late:
            if self._steps % LOOK_STEPS == 0:
                self.look()
            self._note(self._bad(action=action))
        elif not torch.isfinite(action.sum()):
            self._judge(self._bad(self._env.observation_manager.compute(keep=False), action=action), self._steps)
        self._steps += 1

    def after_step(self, step: StepResult) -> None:
        """Stop if anything is not a number."""
        if self._late:
            self._note(self._bad(step.observations, reward=step.reward))
            return
        total = step.reward.sum() + sum(values.sum() for values in step.observations.values())
        if not torch.isfinite(total):
            self._judge(self._bad(step.observations, reward=step.reward), self._steps)

    def look(self) -> None:
        """Stop if anything was not a number since the last look. This waits for the device."""
        if self._found is not None:
            bad, steps = self._found
            self._found = None
            self._judge(bad, int(steps))

    def _note(self, bad: Tensor) -> None:
        """Keep what was found first, without asking the device whether anything was."""
        now = bad, torch.full((), self._steps, device=bad.device)
        if self._found is not None:
            before = self._found
            first = before[0].any()
            now = torch.where(first, before[0], now[0]), torch.where(first, before[1], now[1])
        self._found = now

    def _judge(self, bad: Tensor, steps: int) -> None:
        found = bad.any(dim=0).nonzero().flatten().tolist()
        if not found:
            return  # a sum overflowed, the numbers did not
        rows = bad[:, found[0]].nonzero().flatten().tolist()
        names = self._names()
        sources = list(dict.fromkeys(names[row] for row in rows if names[row] is not None))
        others = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        blamed = ", ".join(map(str, sources)) or _UNNAMED[rows[0]]
        raise self._error(f"not a finite number in environment {found[0]}{others}: {blamed}", found[0], steps)

    def _error(self, message: str, env_id: int, steps: int) -> NotFiniteError:
        """Return the error to raise about an environment, for a number that came up after this many steps."""
        return NotFiniteError(message)

    def _bad(
        self,
        observations: Mapping[str, Tensor] | None = None,
        *,
        action: Tensor | None = None,
        reward: Tensor | None = None,
    ) -> Tensor:
        """Return where numbers are NaN or infinite, `(rows, N)`, in the order of `_names`."""
        env, engine, nothing = self._env, self._env.scene.engine, self._nothing
        rows = [
            nothing if action is None else ~action.isfinite().all(dim=1)[None],
            nothing if reward is None else ~reward.isfinite()[None],
            ~(engine.qpos.isfinite().all(dim=1) & engine.qvel.isfinite().all(dim=1))[None],
            ~env.reward_manager.step_reward.isfinite(),
        ]
        for name, group in env.observation_manager.groups.items():
            if observations is None:
                rows.append(nothing.expand(group.frame_dim, -1))
            else:
                frames = observations[name].isfinite().unflatten(1, (-1, group.frame_dim))
                rows.append(~frames.all(dim=1).T)
        return torch.cat(rows)

    def _names(self) -> list[str | None]:
        """Return the source of each row of numbers: physics first, for the rest follows from it."""
        names = [None, None, "the physics", *(f"reward {name!r}" for name in self._env.reward_manager.terms)]
        for name, group in self._env.observation_manager.groups.items():
            for term in group.layout:
                names += [f"observation '{name}/{term.name}'"] * term.dim
        return names


_UNNAMED = ("the action. What the policy saw is finite: it diverged, not the physics", "the sum of the rewards")
"""The first rows, which are to blame if no other is."""
