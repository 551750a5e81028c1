"""Where a policy breaks when the world is not the one it was trained in.

Every sweep changes one thing and leaves the rest as the task has it, with the observation noise of training. All
values of all sweeps are judged side by side: one world, in which each block of environments has a value of its own, and
a first block has none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv, Physics
from genelab.errors import UsageError
from genelab.managers import BlockScore
from genelab.rl.backends.base import InferenceSetup
from genelab.rl.episodes import Episode, Episodes
from genelab.rl.evaluation import dealt_cells
from genelab.rl.exported import acts_alone
from genelab.rl.finite import guarded
from genelab.rl.gaps import SWEEPS, Sweep, make_ready
from genelab.rl.probe import probes_of, run_probe
from genelab.rl.rollout import rollout
from genelab.rl.show import Show, show_nothing
from genelab.rl.world import DEALT_CELLS, policy_on_task
from genelab.statistics import mean_interval, share_interval

SHARE_KEPT = 0.8
"""A policy holds while it does at least this of what it does in the task's own world …"""
MORE_FALLS = 0.05
"""… and at most this share of the robots more fall."""
MOST_ENVS = 4096
"""Environments at a time."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to try on a task, found out in an environment of it."""

    sweeps: Sequence[Sweep]
    left_out: Mapping[str, str]
    """Sweeps that say nothing about the task, and why."""
    section: str | None
    """The probe to judge by; None: by episodes."""
    size: int
    """Environments of a block."""

    @classmethod
    def of(cls, env: ManagerBasedRlEnv, about: int, *, probe: bool = True, sweeps: Sequence[Sweep] = SWEEPS) -> Plan:
        """With about so many environments for each value."""
        reasons = {sweep.name: sweep.cannot(env) for sweep in sweeps}
        sizes = {section: one.block_size(about) for section, one in (probes_of(env) if probe else {}).items()}
        section, size = next(((section, size) for section, size in sizes.items() if size is not None), (None, about))
        return cls(
            sweeps=[sweep for sweep in sweeps if reasons[sweep.name] is None],
            left_out={name: reason for name, reason in reasons.items() if reason is not None},
            section=section,
            size=size,
        )

    @property
    def settings(self) -> list[tuple[Sweep | None, float]]:
        """All that is tried; the first is the world as the task has it."""
        return [(None, 0.0), *((sweep, value) for sweep in self.sweeps for value in sweep.values)]


def refuse_alone(checkpoint: Path) -> None:
    """Refuse a policy that cannot act in many environments at once."""
    if acts_alone(checkpoint):
        raise UsageError("`robustness`: a recurrent TorchScript policy acts for one robot; export it as ONNX")


@torch.inference_mode()
def judge(
    plan: Plan,
    task_id: str,
    checkpoint: Path,
    *,
    episodes: int,
    seed: int,
    deterministic: bool = True,
    physics: Physics = "fine",
    overrides: Mapping[str, Any] = {},
    notify: Callable[[str], None] = lambda message: None,
    show: Show = show_nothing,
) -> dict[str, Any]:
    """The section `robustness` of a report: what became of every setting of the plan, and where the policy breaks.

    `episodes` are for each setting, where there is no probe.
    """
    start = time.perf_counter()
    settings = plan.settings
    rounds = math.ceil(len(settings) * plan.size / MOST_ENVS)
    blocks = math.ceil(len(settings) / rounds)
    results: list[dict[str, Any]] = []
    with policy_on_task(
        task_id,
        checkpoint,
        num_envs=blocks * plan.size,
        deterministic=deterministic,
        physics=physics,
        overrides=overrides,
        notify=notify,
        change=make_ready,
    ) as (env, setup):
        for turn in range(rounds):
            here = settings[turn * blocks : (turn + 1) * blocks]
            here += settings[:1] * (blocks - len(here))  # the last round may have room left
            results += _round(env, setup, plan, here, episodes, seed + (turn << 32), show)
        diverged, step_dt = env.diverged, env.step_dt
    return {
        **_report(plan, results[: len(settings)], step_dt),
        "envs_per_setting": plan.size,
        "diverged": diverged,
        "wall_clock_seconds": round(time.perf_counter() - start, 3),
    }


def _round(
    env: ManagerBasedRlEnv,
    setup: InferenceSetup,
    plan: Plan,
    settings: Sequence[tuple[Sweep | None, float]],
    episodes: int,
    seed: int,
    show: Show,
) -> list[dict[str, Any]]:
    """What became of each setting, each in a block of environments."""

    def start(observations: dict[str, Tensor]) -> dict[str, Tensor]:
        """Give the environments their values after a reset, which may draw values of its own."""
        for sweep in plan.sweeps:
            own = [value if one is sweep else sweep.nominal for one, value in settings]
            values = torch.tensor(own, device=env.device, dtype=torch.float64)
            sweep.apply(env, values.repeat_interleave(plan.size))
        env.scene.engine.refresh()
        env.observation_manager.reset(None)
        env.action_manager.reset(None)
        return env.observation_manager.compute()

    if plan.section is not None:
        probe = probes_of(env)[plan.section].in_blocks(plan.size)
        run_probe(env, setup, probe, seed=seed, show=show, prepare=start)
        return [_followed(score) for score in probe.scores()]
    if DEALT_CELLS in env.curriculum_manager.terms:  # the same ground for each setting
        env.curriculum_manager.terms[DEALT_CELLS].instance.group = plan.size
    quota = math.ceil(episodes / plan.size)
    book = Episodes(num_envs=env.num_envs, device=env.device, quota=quota, details=lambda: _failed(env))
    torch.manual_seed(seed)
    with guarded(env):
        for step in rollout(env, setup, seed=seed, start=start):
            book.add(step)
            show("episodes of the sweeps", len(book.ended), quota * env.num_envs)
            if book.full:
                break
    kept = [[one for one in book.first() if one.environment // plan.size == i] for i in range(len(settings))]
    return [_earned(env, block[:episodes], book.tells_success) for block in kept]


def _failed(env: ManagerBasedRlEnv) -> Tensor:
    """Whether an episode ended in failure, `(1, N)`."""
    return env.termination_manager.terminated[None]


def _followed(score: BlockScore) -> dict[str, Any]:
    trials = score.robots if score.trials is None else score.trials
    return {
        "share": score.share,
        "falls": score.falls,
        "robots": score.robots,
        "trials": trials,
        "falls_ci95": share_interval(score.falls * trials / score.robots, trials),
        **score.details,
    }


def _earned(env: ManagerBasedRlEnv, episodes: Sequence[Episode], tells_success: bool) -> dict[str, Any]:
    cells = dealt_cells(env, episodes)
    returns, succeeded = [one.total for one in episodes], sum(one.success for one in episodes)
    return {
        "return_mean": sum(returns) / len(returns),
        "return_ci95": mean_interval(returns, cells and [cell.kind for cell in cells]),
        "length_mean": sum(one.length for one in episodes) / len(episodes),
        "falls": int(sum(one.details[0] for one in episodes)),
        "robots": len(episodes),
        "success_rate": succeeded / len(episodes) if tells_success else None,
        "success_ci95": share_interval(succeeded, len(episodes)) if tells_success else None,
    }


def _report(plan: Plan, results: Sequence[dict[str, Any]], step_dt: float) -> dict[str, Any]:
    nominal, *others = results
    measure = "share" if plan.section is not None else "return_mean" if _rate(nominal) is None else "success_rate"
    found: dict[str, Any] = {}
    for (sweep, value), result in zip(plan.settings[1:], others, strict=True):
        assert sweep is not None
        about = {"unit": sweep.unit, "nominal": sweep.nominal, "settings": []}
        entry = {"value": value, "text": sweep.text(value, step_dt), "holds": holds(measure, nominal, result)}
        found.setdefault(sweep.name, about)["settings"].append({**entry, **result})
    for about in found.values():
        broken = [one["value"] for one in about["settings"] if not one["holds"]]
        about["breaks_below"] = max((value for value in broken if value < about["nominal"]), default=None)
        about["breaks_above"] = min((value for value in broken if value > about["nominal"]), default=None)
    return {
        "judged_by": plan.section or "episodes",
        "measure": measure,
        "holds_while": {"kept": SHARE_KEPT, "more_falls": MORE_FALLS},
        "nominal": nominal,
        "sweeps": found,
        "left_out": dict(plan.left_out),
    }


def _rate(result: Mapping[str, Any]) -> float | None:
    rate: float | None = result.get("success_rate")
    return rate


def holds(measure: str, nominal: Mapping[str, Any], result: Mapping[str, Any]) -> bool:
    """Whether a policy still does what it does in the task's own world; a return may be less than nothing."""
    least = nominal[measure] - (1.0 - SHARE_KEPT) * abs(nominal[measure])
    fell, falls = (one["falls"] / one["robots"] for one in (nominal, result))
    return bool(result[measure] >= least and falls <= fell + MORE_FALLS)
