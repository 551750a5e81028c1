"""Checkpoint files: written whole or not at all, and refused by name when they do not fit."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genelab.config import atomic_write_bytes, expect
from genelab.config.archive import check_zip
from genelab.config.files import read_head
from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv
from genelab.errors import GenelabError, UsageError, refusing
from genelab.managers import Range
from genelab.rl.transforms import check_transforms, transforms_of

META: dict[str, Any] = {
    "backend": str,
    "task": str,
    "schema": {
        "observations": dict,
        "actions": dict[str, int],
        "transforms": dict[str, Any] | None,
    },
}
"""What a checkpoint says about itself, of whatever library it is."""


def save_atomically(content: Any, path: Path, *, parents: bool = False) -> None:
    """`torch.save` to a temporary name, then rename; the directory must be there unless it may be made."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomically(buffer.getvalue(), path, parents=parents)


def write_atomically(data: bytes, path: Path, *, parents: bool = False) -> None:
    """Write a checkpoint file to a temporary name, then rename; a run directory that was deleted is not made again."""
    try:
        atomic_write_bytes(path, data, parents=parents)
    except OSError as error:
        raise GenelabError(f"cannot write {path}: {error.strerror}") from error


def schema_of(env: ManagerBasedEnv) -> dict[str, Any]:
    """What goes in and out of a policy: names, widths, and by the path of its override what it is multiplied with."""
    groups = env.observation_manager.groups.values()
    return {
        "observations": {
            group.name: {
                "history": group.cfg.history_length,
                "terms": {term.name: term.dim for term in group.layout},
            }
            for group in groups
        },
        "actions": {name: term.dim for name, term in env.action_manager.terms.items()},
        "transforms": transforms_of(env),
        "stage": env.command_manager.stage() if isinstance(env, ManagerBasedRlEnv) else {},
    }


def begin_at_stage(env: ManagerBasedEnv, stage: Any, path: Path) -> None:
    """Let the commands begin where a policy's training had come to."""
    if not isinstance(env, ManagerBasedRlEnv):
        return
    try:
        env.command_manager.begin_at(
            {
                command: {name: (_range(start), _range(end)) for name, (start, end) in ranges.items()}
                for command, ranges in stage.items()
            }
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: damaged: the ranges of its commands are no ranges") from error


def _range(pair: Any) -> Range:
    low, high = pair
    return float(low), float(high)


def load_checkpoint(
    path: Path, backend: str, env: ManagerBasedEnv | None = None, *, to_learn: bool = False, may_grow: bool = False
) -> dict[str, Any]:
    """The content of a `.pt` checkpoint of a backend, without running any code in it.

    With an environment, its schema must be the one the checkpoint was made with; the rest is as for `check_meta`.
    """
    content = read_safely(path)
    meta = content.get("genelab") if isinstance(content, dict) else None
    check_meta(meta, path, backend, env, to_learn=to_learn, may_grow=may_grow)
    return content


def check_meta(
    meta: Any,
    path: Path,
    backend: str,
    env: ManagerBasedEnv | None = None,
    *,
    to_learn: bool = False,
    may_grow: bool = False,
) -> None:
    """Refuse a checkpoint by what it says about itself: another library's, or of another schema than the env's.

    The environment's commands are then drawn from the ranges that the policy's training had come to. A policy that goes
    on learning begins anew with them, and may find its actions and observations scaled otherwise: a second stage does
    so. Where it `may_grow`, there may be observations that it did not have before.
    """
    if not isinstance(meta, dict):
        raise UsageError(f"{path}: not a checkpoint of GeneLab")
    expect(meta, META, path)
    for name, group in meta["schema"]["observations"].items():
        expect(group, {"history": int, "terms": dict[str, int]}, path, f"schema.observations.{name}")
    if meta["backend"] != backend:
        raise UsageError(f"{path}: made with {meta['backend']}, but this task's agent is of {backend}")
    if env is not None:
        saved, here = meta["schema"], schema_of(env)
        check_schema(saved, _without_new_terms(here, saved) if may_grow else here, path, meta["task"])
        if not to_learn:
            check_transforms(meta["schema"].get("transforms") or {}, env, path)
            begin_at_stage(env, meta["schema"].get("stage", {}), path)


def check_archive(path: Path) -> None:
    """Refuse what cannot be a checkpoint file at all: all of them are ZIP archives, and small where they are text."""
    if path.is_dir():
        raise UsageError(f"{path}: a directory, not a checkpoint file")
    if not path.is_file():
        raise UsageError(f"{path}: no such checkpoint")
    try:
        head = read_head(path, 200)
        if zipfile.is_zipfile(path):
            return
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    page = head.lstrip().lower().startswith((b"<!doctype", b"<html"))
    what = "an HTML page" if page else "empty" if not head else "damaged, or of another kind"
    raise UsageError(f"{path}: not a checkpoint, but {what}")


def read_safely(path: Path) -> Any:
    """The content of a file of tensors and plain values; no code in it is run."""
    check_archive(path)
    with refusing(path, "not a checkpoint that can be read safely"):
        check_zip(path, str(path))
        return torch.load(path, map_location="cpu", weights_only=True)


def check_schema(saved: dict[str, Any], here: dict[str, Any], path: Path, task: str) -> None:
    """Refuse a checkpoint whose observations or actions are not the environment's, and say which."""
    for kind in ("actions", "observations"):
        there, ours = saved[kind], here[kind]
        if kind == "observations" and there.keys() == ours.keys():
            there = {name: there[name] for name in ours}  # groups are taken by name, their terms by place
        if not _same(there, ours):
            raise UsageError(f"{path}: trained on {task} with other {kind}: {_difference(there, ours)}")


def _without_new_terms(here: dict[str, Any], saved: dict[str, Any]) -> dict[str, Any]:
    """The schema without the observation terms that the saved one does not have."""
    known = saved["observations"]
    observations = {
        name: {**group, "terms": {term: dim for term, dim in group["terms"].items() if term in known[name]["terms"]}}
        if name in known
        else group
        for name, group in here["observations"].items()
    }
    return {**here, "observations": observations}


def columns_in(here: dict[str, Any], saved: dict[str, Any]) -> list[int]:
    """Where the columns of a saved group of observations are in a group that has all of its terms, and perhaps more."""
    frame = 0
    found: list[int] = []
    for term, dim in here["terms"].items():
        found += range(frame, frame + dim) if term in saved["terms"] else ()
        frame += dim
    return [step * frame + column for step in range(here["history"]) for column in found]


def widen(saved: dict[str, Tensor], fresh: dict[str, Tensor], columns: list[int]) -> dict[str, Tensor]:
    """A network's state for more inputs: the old ones keep their columns, and new ones have no effect at first."""

    def grown(name: str, old: Tensor) -> Tensor:
        new = fresh[name]
        if not old.dim() == new.dim() == 2 or old.shape == new.shape or old.shape[-1] != len(columns):
            return old
        wide = torch.zeros_like(new, device="cpu") if "weight" in name else new.cpu().clone()
        wide[:, columns] = old
        return wide

    return {name: grown(name, value) for name, value in saved.items()}


def check_network(saved: dict[str, Any], here: dict[str, Any], path: Path) -> None:
    """Refuse weights of another network, and say what is different."""
    for key, value in here.items():
        if saved[key] != value:
            raise UsageError(f"{path}: made with agent.{key} {saved[key]}; here it is {value}")


def _same(saved: Any, here: Any) -> bool:
    """Equal, and in the same order: terms of equal width may not change places."""
    if isinstance(saved, dict) and isinstance(here, dict):
        return list(saved) == list(here) and all(_same(saved[key], here[key]) for key in saved)
    return saved == here


def _difference(saved: Any, here: Any, where: str = "") -> str:
    if isinstance(saved, dict) and isinstance(here, dict):
        for key in [*saved, *(key for key in here if key not in saved)]:
            if not _same(saved.get(key), here.get(key)):
                return _difference(saved.get(key), here.get(key), f"{where}.{key}" if where else key)
        return f"{f'{where} ' if where else ''}in another order: {', '.join(saved)} there, {', '.join(here)} here"
    return f"{where} is {_amount(saved)} there, {_amount(here)} here"


def _amount(value: Any) -> str:
    return "missing" if value is None else str(value)
