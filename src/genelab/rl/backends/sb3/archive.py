"""Checkpoints of Stable-Baselines3.

A checkpoint is SB3's own ZIP archive with one more entry, `genelab.json`, that says what made it and holds the
statistics of the observation normaliser. The archive also has an entry `data` with pickled objects, which can run
code when it is read. The lab reads the weights only and never `data`; SB3's own `load` does read it, so use that only
on archives from people you trust.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import torch
from stable_baselines3.common.save_util import load_from_zip_file

from genelab.config import expect, parse_json
from genelab.config.archive import check_zip
from genelab.config.memory import machine_memory
from genelab.envs import ManagerBasedRlEnv
from genelab.errors import MAX_REASON, UsageError, summary
from genelab.rl.checkpoint import check_archive, check_meta, write_atomically

_META = "genelab.json"
_MOST_META = 2**22
"""Bytes of metadata that are read at most; they are some kB."""


def write_archive(model: Any, meta: dict[str, Any], path: Path) -> None:
    """Write a model of SB3 with what it says about itself."""
    buffer = io.BytesIO()
    model.save(buffer)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr(_META, json.dumps(meta, indent=2))
    write_atomically(buffer.getvalue(), path)


def read_archive(
    path: Path, backend: str, env: ManagerBasedRlEnv, *, to_learn: bool = False
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Metadata and policy weights of a checkpoint that fits the environment; runs no code of the archive's."""
    check_archive(path)
    try:
        check_zip(path, str(path), most_bytes=machine_memory())
        with zipfile.ZipFile(path) as archive:
            if _META not in archive.namelist():  # what remains of half an archive may look like another archive
                raise UsageError(f"{path}: not a checkpoint made with sb3, or a damaged one")
            with archive.open(_META) as file:
                meta = parse_json(file.read(_MOST_META), f"{path}: {_META}")
        check_meta(meta, path, backend, env, to_learn=to_learn)
        expect(meta, {"agent": {"algorithm": str}, "goals": bool, "normalizer": dict | None}, path)
        _check_tensors(path)
        _, parameters, _ = load_from_zip_file(path, load_data=False, device="cpu")
        return meta, parameters["policy"]
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{path}: a damaged checkpoint: {summary(error)[:MAX_REASON]}") from error


def _check_tensors(path: Path) -> None:
    """Refuse weights that would fill the memory: each `.pth` of the archive is an archive of torch."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".pth"):
                check_zip(io.BytesIO(archive.read(name)), f"{path}: {name}")


def load_weights(policy: Any, weights: dict[str, torch.Tensor], path: Path) -> None:
    """Put the weights of a checkpoint into a policy, which must have its layers."""
    try:
        policy.load_state_dict(weights)
    except RuntimeError as error:
        raise UsageError(f"{path}: its networks have other layers than this agent's hidden_dims") from error
