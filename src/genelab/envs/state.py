"""The whole state of an environment, to stop a run and go on as if it had not stopped.

Besides the engine's state, an environment's future depends on what its managers, terms, sensors and robots remember:
timers, commands, last actions, histories. All of it is tensors held by objects of the environment, and they are found
by walking from it; a new term with memory needs no code of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from genelab.errors import GenelabError

if TYPE_CHECKING:
    from genelab.envs.manager_based_env import ManagerBasedEnv

_OPAQUE = (torch.Generator, type, FunctionType, MethodType)

_NOT_STATE = (
    "cfg",
    "cfgs",
    "env",
    "_env",
    "engine",
    "scene",
    "articulation",
    "robot",
    "spec",
    "_cache",
    "_params",
    "terrain",
    "_terrain",
    "env_origins",
)
"""Attributes that lead back up, to what never changes, or to what has its own way into the state."""


def get_state(env: ManagerBasedEnv) -> dict[str, Any]:
    """Everything the environment's future depends on, config and model parameters aside; tensors on the CPU."""
    return {
        "engine": env.scene.engine.get_state(),
        "terrain": {} if env.scene.terrain is None else env.scene.terrain.get_state(),
        "rng": env.rng.get_state(),
        "steps": env.common_step_counter,
        "memory": {path: value.detach().to("cpu", copy=True) for path, value in _tensors(env)},
    }


def set_state(env: ManagerBasedEnv, state: dict[str, Any]) -> None:
    """Go back to what `get_state` gave, in an environment of the same config."""
    for path, saved in state["memory"].items():
        *parents, key = path.split(".")
        try:
            owner: Any = _roots(env)[parents[0]] if parents else env
            for part in parents[1:]:
                owner = _member(owner, part)
            value = _member(owner, key)
        except (LookupError, AttributeError):
            raise GenelabError(f"the saved state is of another environment: there is no {path} here") from None
        if isinstance(value, Tensor) and saved.shape != value.shape:
            raise GenelabError(f"the saved state is of another environment: {path} has another shape here")
        restored = saved.to(env.device)
        if isinstance(owner, dict):
            owner[key] = restored
        else:
            setattr(owner, key, restored)
    env.scene.engine.set_state(state["engine"])
    if env.scene.terrain is not None:
        env.scene.terrain.set_state(state["terrain"])
    env.rng.set_state(state["rng"])
    env.common_step_counter = state["steps"]


def _roots(env: ManagerBasedEnv) -> dict[str, Any]:
    managers = {name: value for name, value in vars(env).items() if name.endswith("_manager")}
    return {**managers, "sensors": env.scene.sensors, "entities": env.scene.entities}


def _tensors(env: ManagerBasedEnv) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that an object of the environment remembers, by its path."""
    yield from ((name, value) for name, value in vars(env).items() if isinstance(value, Tensor))
    seen: set[int] = set()
    for name, root in _roots(env).items():
        yield from _walk(root, name, seen)


def _walk(owner: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    if id(owner) in seen:
        return
    seen.add(id(owner))
    for key, value in _members(owner):
        if isinstance(value, Tensor):
            yield f"{path}.{key}", value
        elif isinstance(value, dict | tuple) or (hasattr(value, "__dict__") and not isinstance(value, _OPAQUE)):
            yield from _walk(value, f"{path}.{key}", seen)


def _members(owner: Any) -> list[tuple[str, Any]]:
    if isinstance(owner, dict):
        return [(key, value) for key, value in owner.items() if isinstance(key, str)]
    if isinstance(owner, tuple):
        return [(str(i), value) for i, value in enumerate(owner) if not isinstance(value, Tensor)]
    return [(key, value) for key, value in vars(owner).items() if key not in _NOT_STATE]


def _member(owner: Any, key: str) -> Any:
    if isinstance(owner, dict):
        return owner[key]
    return owner[int(key)] if isinstance(owner, tuple) else getattr(owner, key)
