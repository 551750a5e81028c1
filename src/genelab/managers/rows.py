"""Rows of a task's tables: a function, a number, and the function's own parameters by name.

    cfg.rewards = {
        "foot_slip": reward(mdp.foot_slip, -0.1, contact="feet_contact", feet="feet", command="twist", threshold=0.05),
    }

A row makes the config of a term, here a `RewardTermCfg`. It is typed by the function's own signature: a type checker
refuses a parameter that the function does not have, one that is missing, and a value of another type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Literal, ParamSpec, TypeAlias, cast

from torch import Tensor

from genelab.errors import ConfigError
from genelab.managers.base import SceneEntityCfg, Selection
from genelab.managers.curriculum import CurriculumTermCfg
from genelab.managers.events import EventTermCfg
from genelab.managers.metrics import MetricTermCfg
from genelab.managers.observations import ObservationTermCfg
from genelab.managers.rewards import RewardTermCfg
from genelab.managers.schedules import GateCfg
from genelab.managers.terminations import TerminationTermCfg

P = ParamSpec("P")

_Measures: TypeAlias = Callable[Concatenate[Any, P], Tensor]  # (env, **params)
_Acts: TypeAlias = Callable[
    Concatenate[Any, Any, P], Tensor | float | dict[str, Any] | None
]  # (env, env_ids, **params)
Measure: TypeAlias = _Measures[P] | Callable[[Any, Any], _Measures[P]]
"""A function `(env, **params)`, or a class made of `(cfg, env)` whose instances are called like one."""
Act: TypeAlias = _Acts[P] | Callable[[Any, Any], _Acts[P]]
"""The same with `(env, env_ids, **params)`."""


def reward(func: Measure[P], weight: float, /, *args: P.args, **params: P.kwargs) -> RewardTermCfg:
    """What is paid for, and at which price."""
    return RewardTermCfg(func=func, weight=weight, params=_by_name(args, params))


def obs(func: Measure[P], /, *args: P.args, **params: P.kwargs) -> ObservationTermCfg:
    """What is seen; `.then(noise=…, clip=…, scale=…, delay=…)` says what is done to it."""
    return ObservationTermCfg(func=func, params=_by_name(args, params))


def termination(func: Measure[P], /, *args: P.args, **params: P.kwargs) -> TerminationTermCfg:
    """What ends an episode for good: there is nothing to earn after it."""
    return TerminationTermCfg(func=func, params=_by_name(args, params))


def truncation(func: Measure[P], /, *args: P.args, **params: P.kwargs) -> TerminationTermCfg:
    """What cuts an episode off, as a time-out does: the state it ended in keeps its value."""
    return TerminationTermCfg(func=func, time_out=True, params=_by_name(args, params))


def metric(
    func: Measure[P], reduce: Literal["mean", "last", "max"], /, *args: P.args, **params: P.kwargs
) -> MetricTermCfg:
    """What is reported, and what is kept of an episode."""
    return MetricTermCfg(func=func, reduce=reduce, params=_by_name(args, params))


def event(
    func: Act[P],
    when: Literal["startup", "reset", "step"] | tuple[float, float],
    /,
    *args: P.args,
    **params: P.kwargs,
) -> EventTermCfg:
    """What happens from outside, and when; a pair is the shortest and the longest time between two events, s."""
    if isinstance(when, tuple):
        return EventTermCfg(func=func, mode="interval", interval_range_s=when, params=_by_name(args, params))
    return EventTermCfg(func=func, mode=when, params=_by_name(args, params))


def adapt(func: Act[P], /, *args: P.args, **params: P.kwargs) -> CurriculumTermCfg:
    """What changes the task as the policy gets better."""
    return CurriculumTermCfg(func=func, params=_by_name(args, params))


def gate(func: Measure[P], above: float, below: float, /, *args: P.args, **params: P.kwargs) -> GateCfg:
    """What robots must achieve: a schedule goes on while the average is above one bound, and back below the other."""
    return GateCfg(func=func, above=above, below=below, params=_by_name(args, params))


def part(
    name: str = "robot", *, joints: tuple[str, ...] | None = None, bodies: tuple[str, ...] | None = None
) -> Selection:
    """A part of the scene, by regular expressions of joints and bodies; None: all of them.

    To the type checker it is the `Selection` that the term will be called with, as `dataclasses.field()` is a value. In
    the config it is a `SceneEntityCfg`.
    """
    return cast(Selection, SceneEntityCfg(name=name, joint_names=joints, body_names=bodies))


def _by_name(args: tuple[Any, ...], params: dict[str, Any]) -> dict[str, Any]:
    if args:
        raise ConfigError(f"parameters of a term are given by name; {args[0]!r} has none")
    return params
