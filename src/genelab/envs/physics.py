"""Train coarse, judge fine: the physics of a training config beside that of the config its policies are judged in."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, TypeVar

from genelab.config import FieldInfo
from genelab.envs.manager_based_env import ManagerBasedEnvCfg

Cfg = TypeVar("Cfg", bound=ManagerBasedEnvCfg)
Physics = Literal["fine", "coarse"]
"""`fine` is that of the play config, by which a policy is judged; `coarse` is the one it was trained in."""

_OF_THE_RUN = ("vis", "gpu", "steps", "engine", "threads")
"""Settings of a simulation that do not belong to its physics: where it runs and who looks on."""


def with_physics(cfg: Cfg, other: ManagerBasedEnvCfg) -> Cfg:
    """`cfg` in the physics of `other`: its steps, its solver, and its models of the entities that both have.

    Where entities start, the ground, and all terms stay those of `cfg`.
    """
    cfg, other = copy.deepcopy(cfg), copy.deepcopy(other)
    cfg.simulation = replace(other.simulation, **{name: getattr(cfg.simulation, name) for name in _OF_THE_RUN})
    cfg.decimation = other.decimation
    for name, entity in cfg.scene.entities.items():
        if name in other.scene.entities:
            cfg.scene.entities[name] = replace(other.scene.entities[name], init_state=entity.init_state)
    return cfg


def physics_changes(fine: ManagerBasedEnvCfg, coarse: ManagerBasedEnvCfg) -> dict[str, dict[Physics, str | None]]:
    """What the two physics differ in: by path the setting of each, None where it has none."""
    judged, trained = (dict(_settings(one, "env")) for one in (fine, with_physics(fine, coarse)))
    return {
        path: {"fine": judged.get(path), "coarse": trained.get(path)}
        for path in judged | trained
        if judged.get(path) != trained.get(path)
    }


def describe_physics(changes: Mapping[str, Mapping[Physics, str | None]], physics: Physics) -> str:
    """One of two physics in words: what the other one has otherwise."""
    texts = {path: both[physics] for path, both in changes.items()}
    return ", ".join(f"{path} unset" if text is None else f"{path}={text}" for path, text in texts.items())


def _settings(node: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every setting below a node as text, and the class of every config."""
    if is_dataclass(node) and not isinstance(node, type):
        yield path, type(node).__name__
        children = {field.name: getattr(node, field.name) for field in fields(node)}
    elif isinstance(node, dict):
        children = node
    else:
        yield path, FieldInfo(path, "", node).text
        return
    for name, child in children.items():
        yield from _settings(child, f"{path}.{name}")
