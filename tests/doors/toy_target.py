"""A target from outside, in one file: a policy and a list of its joints, for a program that reads no more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from genelab.errors import UsageError
from genelab.rl.targets import Parcel, Target, register_target


class ToyTarget(Target):
    """Reads no frames of the past."""

    name = "toy"

    def files(self, parcel: Parcel) -> dict[str, bytes]:
        policy = parcel.policy.write("onnx")
        for name, group in policy.metadata["obs_groups"].items():
            if group["history_length"] > 1:
                raise UsageError(f"toy reads one frame, but the group {name!r} has {group['history_length']}")
        lines = [joint for action in policy.metadata["actions"] for joint in action["joint_names"]]
        text = "\n".join(lines * parcel.settings["copies"])
        return {"policy.onnx": policy.data, "robot/joints.txt": text.encode()}

    def next_steps(self, out: Path, metadata: Mapping[str, Any]) -> list[str]:
        return [f"give {out} to the toy"]


register_target("toy", f"{__name__}:ToyTarget", about="joints by name", settings={"copies": 1})
