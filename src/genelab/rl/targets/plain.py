"""A folder that runs anywhere: the policy as ONNX, its metadata, the world as MJCF, and a program that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from genelab.envs import ManagerBasedRlEnv
from genelab.motion import npz_bytes
from genelab.rl.export_metadata import as_text
from genelab.rl.targets.base import Parcel, Target

TABLES = "tables.npz"
"""Numbers that are too many for the metadata: a motion's frames, for one."""


def tables_of(env: ManagerBasedRlEnv) -> dict[str, np.ndarray]:
    """The tables of all commands and actions, by `commands.NAME.TABLE` and `actions.NAME.TABLE`."""
    env.reset(seed=0)
    terms = {f"commands.{name}": term.tables() for name, term in env.commands.terms.items()}
    terms |= {f"actions.{name}": term.tables() for name, term in env.action_manager.terms.items()}
    return {f"{name}.{table}": values for name, tables in terms.items() for table, values in tables.items()}


class Plain(Target):
    """Plain MuJoCo and onnxruntime."""

    name = "mujoco"

    def files(self, parcel: Parcel) -> dict[str, bytes]:
        tables = tables_of(parcel.policy.env)
        told = {"tables": {name: list(table.shape) for name, table in tables.items()}} if tables else {}
        policy = replace(parcel.policy, metadata={**parcel.policy.metadata, **told}).write("onnx")
        return {
            "policy.onnx": policy.data,
            "policy.onnx.metadata.json": as_text(policy.metadata).encode(),
            **({TABLES: npz_bytes(**tables)} if tables else {}),
            **parcel.world(),
            "run.py": Path(__file__).with_name("run.py").read_bytes(),
        }

    def next_steps(self, out: Path, metadata: Mapping[str, Any]) -> list[str]:
        return [f"to run it: genelab deploy {out}, or without genelab: python {out / 'run.py'}"]
