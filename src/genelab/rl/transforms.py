"""What a policy's numbers mean: scale, offset and clip of observations and actions, and whether they are the same."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from genelab.envs import ManagerBasedEnv
from genelab.errors import UsageError
from genelab.managers import ActionTerm

TOLERANCE = 1e-4
"""Relative difference of two numbers that mean the same: one of them may have been through 32 bits."""


def transforms_of(env: ManagerBasedEnv) -> dict[str, Any]:
    """Scale, offset and clip of all terms, by the path of the override that sets them."""
    return {**_observation_transforms(env), **_action_transforms(env)}


def _observation_transforms(env: ManagerBasedEnv) -> dict[str, Any]:
    return {
        f"env.observations.{group.name}.terms.{term.name}.{key}": value
        for group in env.observation_manager.groups.values()
        for term in group.layout
        for key, value in (("scale", _one_or_all(rounded(term.scale))), ("clip", rounded(term.clip)))
    }


def _action_transforms(env: ManagerBasedEnv) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for term in env.action_manager.terms.values():
        found |= action_transforms(term, term.transforms())
    return found


def action_transforms(term: ActionTerm, values: Mapping[str, Any]) -> dict[str, Any]:
    """Transforms of an action term by the path of its override; one number for all joints if they are the same."""
    return {
        f"env.actions.{term.name}.{key}": _one_for_all(rounded(value)) if term.is_per_joint(value) else rounded(value)
        for key, value in values.items()
    }


def _one_for_all(numbers: dict[str, Any]) -> Any:
    values = list(numbers.values())
    return values[0] if len(set(values)) == 1 else numbers


def _one_or_all(value: Any) -> Any:
    """One number for all if they are the same."""
    return value[0] if isinstance(value, list) and len(set(value)) == 1 else value


def rounded(value: Any) -> Any:
    """Plain numbers to six digits, and None where there is no bound; words and switches as they are."""
    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return getattr(value, "__name__", str(value))


def check_transforms(saved: dict[str, Any], env: ManagerBasedEnv, path: Path) -> None:
    """Refuse a policy whose numbers mean something else in the environment, and say what would make them fit.

    What an old checkpoint does not tell is taken to fit.
    """
    for name, here in transforms_of(env).items():
        there = saved.get(name, here)
        if not _close(there, here):
            values, remedy = _both(there, here), _remedy(name, there, env)
            raise UsageError(f"{path}: trained with {name} {values}: {remedy}")


def _both(there: Any, here: Any) -> str:
    """Two values; of values per joint the first that differ."""
    where = ""
    if isinstance(there, dict) or isinstance(here, dict):
        there, here = _per_joint(there, here)
        others = [joint for joint in {**there, **here} if not _close(there.get(joint), here.get(joint))]
        where = f" for {others[0]}" + (f" and others for {len(others) - 1} more" if others[1:] else "")
        there, here = there.get(others[0]), here.get(others[0])
    return f"{_text(there)}, here {_text(here)}{where}"


def _per_joint(*values: Any) -> list[dict[str, Any]]:
    """Values as dicts, where one number may stand for all joints."""
    joints = next(value for value in values if isinstance(value, dict))
    return [value if isinstance(value, dict) else dict.fromkeys(joints, value) for value in values]


def _remedy(name: str, value: Any, env: ManagerBasedEnv) -> str:
    """What to type, or what else to do where the term knows better."""
    _, kind, term, *_, key = name.split(".")
    better = env.action_manager.terms[term].remedy(key, value) if kind == "actions" else None
    return better or f"pass `{name}={_text(value)}`"


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, dict) or isinstance(b, dict):
        a, b = _per_joint(a, b)
        return a.keys() == b.keys() and all(_close(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_close, a, b))
    if isinstance(a, float | int) and isinstance(b, float | int):
        return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=1e-6)
    return a == b


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)


def _text(value: Any) -> str:
    """As one types it."""
    if isinstance(value, list) and all(one is None or _is_number(one) for one in value):
        low_or_high = ("-inf", "inf")  # only bounds can be missing
        return f"[{', '.join(low_or_high[i] if one is None else f'{one:g}' for i, one in enumerate(value))}]"
    if isinstance(value, dict | list | bool):
        return json.dumps(value)
    return "none" if value is None else value if isinstance(value, str) else f"{value:g}"
