"""A folder that runs anywhere: the policy as ONNX, its metadata, the world as MJCF, and a program that runs it."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from genelab.envs import ManagerBasedRlEnv
from genelab.motion import npz_bytes
from genelab.rl.export_metadata import as_text
from genelab.rl.targets.base import Parcel, Target
from genelab.rl.targets.run import MANIFEST, METADATA, POLICY, SCHEMA, TABLES, Refused, Runner, Stopped, rollout


def tables_of(env: ManagerBasedRlEnv) -> dict[str, np.ndarray]:
    """The tables of all commands and actions, by `commands.NAME.TABLE` and `actions.NAME.TABLE`."""
    env.reset(seed=0)
    terms = {f"commands.{name}": term.tables() for name, term in env.commands.terms.items()}
    terms |= {f"actions.{name}": term.tables() for name, term in env.action_manager.terms.items()}
    return {f"{name}.{table}": values for name, tables in terms.items() for table, values in tables.items()}


def with_manifest(files: Mapping[str, bytes], about: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of an export and `manifest.json`, which has the SHA-256 of each."""
    manifest = {
        "task": about["task"],
        "backend": about["backend"],
        "algorithm": about["algorithm"],
        "checkpoint_sha256": about["checkpoint_sha256"],
        "versions": about["versions"],
        "files": {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in files.items()
        },
    }
    return {**files, MANIFEST: (json.dumps(manifest, indent=2) + "\n").encode()}


def with_rollout(
    files: Mapping[str, bytes], about: Mapping[str, Any], notify: Callable[[str], None]
) -> dict[str, bytes]:
    """The files of an export, with a rollout of the whole loop by `run.py` in their metadata.

    A task with terms that `run.py` does not know has none: its user has to add them there.
    """
    with tempfile.TemporaryDirectory() as home:
        for name, data in files.items():
            (Path(home) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(home) / name).write_bytes(data)
        try:
            runner = Runner(Path(home), seed=0)
            made = rollout(runner.robot, runner.policy, runner.about)
        except (Refused, Stopped) as error:
            notify(f"run.py cannot run this policy, so that the export has no recorded rollout: {error}")
            return dict(files)
    told = {**about, "schema_version": SCHEMA, "rollout": made}
    return {**files, METADATA: as_text(told).encode()}


class Plain(Target):
    """Plain MuJoCo and onnxruntime."""

    name = "mujoco"

    def files(self, parcel: Parcel) -> dict[str, bytes]:
        return with_manifest(self.folder(parcel), parcel.policy.metadata)

    def folder(self, parcel: Parcel) -> dict[str, bytes]:
        """All files but the manifest."""
        tables = tables_of(parcel.policy.env)
        told = {"tables": {name: list(table.shape) for name, table in tables.items()}} if tables else {}
        policy = replace(parcel.policy, metadata={**parcel.policy.metadata, **told}).write("onnx")
        files = {
            POLICY: policy.data,
            METADATA: as_text(policy.metadata).encode(),
            **({TABLES: npz_bytes(**tables)} if tables else {}),
            **parcel.world(),
            "run.py": Path(__file__).with_name("run.py").read_bytes(),
        }
        return with_rollout(files, policy.metadata, parcel.notify)

    def next_steps(self, out: Path, metadata: Mapping[str, Any]) -> list[str]:
        return [f"to run it: genelab deploy {out}, or without genelab: python {out / 'run.py'}"]
