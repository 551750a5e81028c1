"""For Unitree's C++ controllers (unitree_rl_lab, unitree_rl_mjlab): `exported/policy.onnx` and `params/deploy.yaml`.

The controller multiplies all dimensions of the input, so the graph is for one robot, `[1, N]`. Each observation term is
made by its name, clipped, scaled and kept as often as `history_length` says; `joint_ids_map` has the motor of each
joint, gains are in the order of the motors, all else in that of the joints. Clip and scale are inside our graph: here
they are none and 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from genelab.errors import UsageError
from genelab.rl.graphs import OPSET, with_metadata
from genelab.rl.targets.base import Parcel, Target
from genelab.rl.targets.folded import StackTerm, action_of, fold, terms_of, with_past

TERMS = {
    "ang_vel": "base_ang_vel",
    "gravity": "projected_gravity",
    "joint_pos": "joint_pos_rel",
    "joint_vel": "joint_vel_rel",
    "last_action": "last_action",
    "VelocityCommand": "velocity_commands",
    "GaitClock": "gait_phase",
}
"""What the controller calls an observation, by its kind."""


class Unitree(Target):
    """Unitree's controllers."""

    name = "unitree"

    def files(self, parcel: Parcel) -> dict[str, bytes]:
        about = parcel.policy.metadata
        action = action_of(about, self.name)
        if action["type"] == "MotionJointPositionAction":
            raise UsageError("unitree reads motions of its own: a policy on top of a motion is for mjlab")
        terms = with_past(terms_of(about, self.name), about, action)
        known_terms(terms, TERMS, about, self.name)
        data = fold(parcel.policy, terms, action["offset"], OPSET)
        folded = {**about, "format": "onnx", "opset": OPSET, "batch": "static"}
        folded.pop("golden")  # they are of the policy before it was folded
        motors = parcel.settings["motor_order"]
        deploy = deploy_cfg(about, action, terms, motors.split(",") if motors else None)
        return {
            "exported/policy.onnx": with_metadata(data, folded),
            "params/deploy.yaml": as_yaml(deploy).encode(),
        }

    def next_steps(self, out: Path, metadata: Mapping[str, Any]) -> Sequence[str]:
        return [f"give {out} to the controller as its policy directory; the motors are in the order of the model"]


def known_terms(terms: Sequence[StackTerm], known: Mapping[str, str], about: Mapping[str, Any], stack: str) -> None:
    """Refuse an observation that a stack does not know, or knows as something else."""
    (group,) = about["obs_groups"].values()
    entity = about["entities"][about["actions"][0]["entity"]]
    for term, told in zip(terms, group["terms"], strict=True):
        if term.kind not in known:
            names = ", ".join(dict.fromkeys(known.values()))
            raise UsageError(f"{stack} does not know the observation {term.name!r}: it knows {names}")
        if term.kind in ("joint_pos", "joint_vel"):
            if list(told["columns"]) != list(entity["joint_names"]):
                raise UsageError(f"{stack} observes all joints in the robot's order, but {term.name!r} has others")
            if term.kind == "joint_pos" and list(told["source"]["minus"]) != list(entity["default_joint_pos"]):
                raise UsageError(f"{stack} observes joints from their default pose, but {term.name!r} does not")
        if term.kind in ("ang_vel", "gravity") and (told["frame"] != "root"):
            raise UsageError(f"{stack} observes in the root's frame, but {term.name!r} is in that of {told['frame']}")


def deploy_cfg(
    about: Mapping[str, Any], action: Mapping[str, Any], terms: Sequence[StackTerm], motors: Sequence[str] | None
) -> dict[str, Any]:
    """What `params/deploy.yaml` says."""
    robot = about["entities"][action["entity"]]
    joints = robot["joint_names"]
    motors = joints if motors is None else motors
    if sorted(motors) != sorted(joints):
        odd = sorted(set(motors) ^ set(joints))
        raise UsageError(f"motor_order of unitree: must name each joint of the robot once; {odd[0]} is not in both")
    to_motor = [motors.index(joint) for joint in joints]
    from_motor = [joints.index(motor) for motor in motors]
    commands = [one for one in about["commands"].values() if one["type"] == "VelocityCommand"]
    clip = None if action["clip"] is None else [action["clip"]] * action["dim"]
    folds = action["type"] != "JointPositionAction"
    return {
        "joint_ids_map": to_motor,
        "step_dt": about["step_dt"],
        "stiffness": [robot["stiffness"][i] for i in from_motor],
        "damping": [robot["damping"][i] for i in from_motor],
        "default_joint_pos": robot["default_joint_pos"],
        "commands": {"base_velocity": {"ranges": dict(commands[0]["ranges"])}} if commands else {},
        "actions": {
            "JointPositionAction": {
                "clip": None if folds else clip,
                "joint_names": [".*"],
                "scale": action["scale"],
                "offset": action["offset"],
                "joint_ids": None,
            }
        },
        "observations": {
            TERMS[term.kind]: {
                "params": _params(term, about),
                "clip": None,
                "scale": [1.0] * term.dim,
                "history_length": term.history,
            }
            for term in terms
        },
    }


def _params(term: StackTerm, about: Mapping[str, Any]) -> dict[str, Any]:
    if term.kind == "VelocityCommand":
        return {"command_name": "base_velocity"}
    if term.kind == "GaitClock":
        clocks = [one for one in about["commands"].values() if one["type"] == "GaitClock"]
        return {"period": clocks[0]["period"]}
    return {}


def as_yaml(value: Mapping[str, Any], indent: int = 0) -> str:
    """Block mappings with lists in one line: what PyYAML and yaml-cpp read alike."""
    lines = []
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            lines.append(f"{' ' * indent}{key}:\n{as_yaml(item, indent + 2)}")
        else:
            lines.append(f"{' ' * indent}{key}: {_flow(item)}\n")
    return "".join(lines)


def _flow(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_flow(item) for item in value)}]"
    if isinstance(value, float) and "e" in repr(value) and "." not in repr(value):
        return repr(value).replace("e", ".0e")  # 1e-05 would be a word
    return json.dumps(value)
