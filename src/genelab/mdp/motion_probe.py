"""How well a motion is followed, second by second.

Every robot does its motion once, from the first frame to the last, from a start that is a little off. With several
motions the environments share them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from genelab import math as gm
from genelab.managers import Probe
from genelab.mdp.probe_starts import look_anew
from genelab.statistics import share_interval

if TYPE_CHECKING:
    from genelab.mdp.motion_command import MotionCommand

STARTS_OFF = {"x": 0.02, "y": 0.02, "yaw": 0.05, "joints": 0.02}
"""How far off a robot starts at most, and each of its joints, m and rad."""


class MotionProbe(Probe):
    """Lets all robots do the whole motion."""

    name = "motion"

    def __init__(self, term: MotionCommand) -> None:
        env = term.env
        self.env = env
        self.term = term
        self.names = list(term.motions)
        self.seconds = max(len(motion) - 1 for motion in term.motions.values()) * env.step_dt
        self._clip = torch.arange(env.num_envs, device=env.device) % len(term.clips)
        self._first = term.clips[self._clip]
        self._last = term.last[self._first]
        steps = round(self.seconds / env.step_dt)
        self._sums = torch.zeros(len(term.errors), steps, env.num_envs, device=env.device, dtype=env.dtype)
        self._here = torch.zeros(steps, env.num_envs, dtype=torch.bool, device=env.device)
        """Whether a robot is still on its motion after each step."""
        self._alive = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
        self._before = term.cfg.sampling

    def begin(self, turn: int) -> None:
        self.term.cfg.sampling = "start"

    def end(self) -> None:
        self.term.cfg.sampling = self._before

    def start(self, observations: dict[str, Tensor]) -> dict[str, Tensor]:
        env, term = self.env, self.term
        span = env.num_envs, 6
        bounds = torch.tensor([STARTS_OFF.get(axis, 0.0) for axis in ("x", "y", "z", "roll", "pitch", "yaw")])
        pose = bounds.to(env.device, env.dtype) * gm.uniform(-1.0, 1.0, span, env.rng, env.dtype)
        joints = STARTS_OFF["joints"] * gm.uniform(-1.0, 1.0, (env.num_envs, term.num_joints), env.rng, env.dtype)
        term.put(None, self._first, pose, None, joints)
        self._alive[:] = True
        # Who is judged to the end of a long motion must not be cut off before.
        env.episode_length_buf[:] = min(0, env.max_episode_length - len(self._here) - 1)
        return look_anew(env)

    def step(self, step: int, terminated: Tensor, truncated: Tensor) -> None:
        asked = self._first + step + 1
        self._alive &= ~(terminated | truncated)
        self._here[step] = self._alive & (asked <= self._last)
        with self.term.at(torch.minimum(asked, self._last)):
            self._sums[:, step] = torch.stack(list(self.term.errors.values()))

    def report(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "clips": {name: self._judge(i) for i, name in enumerate(self.names)}}

    def _judge(self, clip: int) -> dict[str, Any]:
        robots = (self._clip == clip).nonzero().flatten()
        if not len(robots):
            return {"robots": 0}
        length = int(self._last[robots[0]] - self._first[robots[0]])
        reached = int(self._here[length - 1, robots].sum())
        # After the last frame a robot may have been put on the first one already.
        here, sums = self._here[: length - 1, robots], self._sums[:, : length - 1, robots]
        kinds = list(self.term.errors)
        per_second = round(1.0 / self.env.step_dt)
        seconds = [slice(i * per_second, (i + 1) * per_second) for i in range(math.ceil((length - 1) / per_second))]
        return {
            "robots": len(robots),
            "reached_end": reached,
            "success": reached / len(robots),
            "success_ci95": share_interval(reached, len(robots)),
            **{kind: _mean(sums[i], here) for i, kind in enumerate(kinds)},
            "by_second": {
                "alive": [here[part].double().mean().item() for part in seconds],
                **{kind: [_mean(sums[i, part], here[part]) for part in seconds] for i, kind in enumerate(kinds)},
            },
        }


def _mean(values: Tensor, counts: Tensor) -> float | None:
    """Over what counts; None if nothing does."""
    return values[counts].double().mean().item() if counts.any() else None
