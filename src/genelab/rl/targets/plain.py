"""A folder that runs anywhere: the policy as ONNX, its metadata, the world as MJCF, and a program that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from genelab.rl.export_metadata import as_text
from genelab.rl.targets.base import Parcel, Target
from genelab.scene.pack import pack


class Plain(Target):
    """Plain MuJoCo and onnxruntime."""

    name = "mujoco"

    def files(self, parcel: Parcel) -> dict[str, bytes]:
        policy = parcel.policy.write("onnx")
        return {
            "policy.onnx": policy.data,
            "policy.onnx.metadata.json": as_text(policy.metadata).encode(),
            **pack(parcel.policy.env.scene.spec),
            "run.py": Path(__file__).with_name("run.py").read_bytes(),
        }

    def next_steps(self, out: Path, metadata: Mapping[str, Any]) -> list[str]:
        return [f"to run it: genelab deploy {out}, or without genelab: python {out / 'run.py'}"]
