"""A folder that runs anywhere: the policy as ONNX, its metadata, and the world as MJCF."""

from __future__ import annotations

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
        }
