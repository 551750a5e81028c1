"""Deploy stacks as their documented rules have them, to read what is exported for them; none of our code is in it.

A controller of Unitree's reads `params/deploy.yaml` and `exported/policy.onnx`; who follows mjlab reads the
`metadata_props` of one ONNX file. Both make observations by name, keep the last `history_length` of each, oldest first,
and command `offset + scale * action`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import yaml


class Unreadable(Exception):
    """The stack cannot take it."""


def check_lengths(lists: Mapping[str, Sequence[Any]], count: int) -> None:
    for name, values in lists.items():
        if len(values) != count:
            raise Unreadable(f"{name} has {len(values)} entries for {count} joints")


class Stack:
    """What all have in common: a graph of one robot, terms with a past, positions of joints."""

    KNOWN: tuple[str, ...]
    default: np.ndarray
    offset: np.ndarray
    scale: np.ndarray

    def __init__(self, model: Path, joints: Sequence[str]) -> None:
        self.session = onnxruntime.InferenceSession(str(model))
        self.joints = list(joints)
        (self.obs, *self.more) = self.session.get_inputs()
        if self.obs.name != "obs" or not all(isinstance(size, int) and size > 0 for size in self.obs.shape):
            raise Unreadable(f"the input {self.obs.name} {self.obs.shape} is not static: its size is a product")
        self.size = math.prod(self.obs.shape)
        self.past: dict[str, list[np.ndarray]] = {}
        self.phase = 0.0

    def settle(self, terms: dict[str, tuple[int, int]]) -> None:
        """Terms with width and length of their past."""
        self.terms = terms
        for name in terms:
            if name not in self.KNOWN:
                raise Unreadable(f"the observation {name} is not known")
        told = sum(width * length for width, length in terms.values())
        if told != self.size:
            raise Unreadable(f"the terms are {told} numbers, the input has {self.size}")

    def act(self, readings: dict[str, np.ndarray]) -> np.ndarray:
        """The action; terms are pushed into their past, which the first one fills."""
        for name, (width, length) in self.terms.items():
            value = np.asarray(readings[name], dtype=np.float32)
            assert value.shape == (width,), (name, value.shape)
            self.past[name] = [*self.past.get(name, [value] * length)[1:], value] if length > 1 else [value]
        flat = np.concatenate([value for name in self.terms for value in self.past[name]])
        return self.session.run(["actions"], {"obs": flat[None]})[0][0]

    def gait_phase(self, period: float, step_dt: float) -> np.ndarray:
        """A clock that never rests."""
        self.phase = (self.phase + step_dt / period) % 1.0
        return np.array([math.sin(2 * math.pi * self.phase), math.cos(2 * math.pi * self.phase)])


class UnitreeController(Stack):
    """Reads a directory for Unitree's C++ controllers; `motors` are the joints in the order of its motors."""

    KNOWN = (
        "base_ang_vel",
        "projected_gravity",
        "joint_pos",
        "joint_pos_rel",
        "joint_vel_rel",
        "last_action",
        "velocity_commands",
        "gait_phase",
        "motion_command",
        "motion_anchor_ori_b",
    )

    def __init__(self, home: Path, joints: Sequence[str], motors: Sequence[str]) -> None:
        super().__init__(home / "exported" / "policy.onnx", joints)
        cfg = yaml.safe_load((home / "params" / "deploy.yaml").read_text())
        self.cfg, count = cfg, len(joints)
        self.step_dt = cfg["step_dt"]
        if [motors[i] for i in cfg["joint_ids_map"]] != list(joints):
            raise Unreadable("joint_ids_map gives joints to the motors of others")
        (kind,) = cfg["actions"]
        if kind != "JointPositionAction":
            raise Unreadable(f"the action {kind} is not known")
        action = cfg["actions"][kind]
        if action["joint_ids"] is not None or action["clip"] is not None:
            raise Unreadable("all joints, without bounds")
        names = ("stiffness", "damping", "default_joint_pos")
        check_lengths(
            {**{name: cfg[name] for name in names}, "scale": action["scale"], "offset": action["offset"]}, count
        )
        self.scale, self.offset = np.array(action["scale"]), np.array(action["offset"])
        self.default = np.array(cfg["default_joint_pos"])
        by_motor = dict(zip(motors, zip(cfg["stiffness"], cfg["damping"], strict=True), strict=True))
        self.gains = [by_motor[joint] for joint in joints]
        self.ranges = cfg["commands"]["base_velocity"]["ranges"]
        for name, term in cfg["observations"].items():
            if term["clip"] is not None or set(term["scale"]) != {1.0}:
                raise Unreadable(f"{name} is scaled twice: the graph takes raw observations")
        self.settle({name: (len(term["scale"]), term["history_length"]) for name, term in cfg["observations"].items()})

    @property
    def period(self) -> float:
        return self.cfg["observations"]["gait_phase"]["params"]["period"]


class MjlabReader(Stack):
    """Reads a file like mjlab's; `widths` are those of the terms that the reader makes."""

    KNOWN = (
        "base_lin_vel",
        "base_ang_vel",
        "projected_gravity",
        "joint_pos",
        "joint_vel",
        "actions",
        "command",
        "gait_phase",
        "motion_anchor_pos_b",
        "motion_anchor_ori_b",
    )
    KEYS = (
        "run_path",
        "joint_names",
        "joint_stiffness",
        "joint_damping",
        "default_joint_pos",
        "action_scale",
        "command_names",
        "observation_names",
        "observation_terms_scale",
        "observation_terms_clip",
        "observation_terms_history_length",
        "observation_terms_flatten_history_dim",
    )

    def __init__(self, model: Path, joints: Sequence[str], widths: dict[str, int]) -> None:
        super().__init__(model, joints)
        props = {entry.key: entry.value for entry in onnx.load(model).metadata_props}
        if missing := [key for key in self.KEYS if key not in props]:
            raise Unreadable(f"metadata_props have no {missing[0]}")
        if "/" in props["run_path"]:
            raise Unreadable("run_path is a path of one machine")
        self.props = {key: value.split(",") for key, value in props.items() if key != "genelab"}
        if self.props["joint_names"] != list(joints):
            raise Unreadable("joint_names are not the robot's, in its order")
        numbers = ("joint_stiffness", "joint_damping", "default_joint_pos", "action_scale")
        found = {name: [float(value) for value in self.props[name]] for name in numbers}
        check_lengths(found, len(joints))
        self.gains = list(zip(found["joint_stiffness"], found["joint_damping"], strict=True))
        self.scale, self.offset = np.array(found["action_scale"]), np.array(found["default_joint_pos"])
        self.default = self.offset
        names = self.props["observation_names"]
        for key in ("scale", "clip", "history_length", "flatten_history_dim"):
            check_lengths({key: self.props[f"observation_terms_{key}"]}, len(names))
        if {float(value) for value in self.props["observation_terms_scale"]} != {1.0}:
            raise Unreadable("the graph takes raw observations")
        if set(self.props["observation_terms_clip"]) != {"-inf;inf"}:
            raise Unreadable("the graph takes raw observations")
        lengths = [max(int(float(value)), 1) for value in self.props["observation_terms_history_length"]]
        if unknown := [name for name in names if name not in self.KNOWN]:
            raise Unreadable(f"the observation {unknown[0]} is not known")
        self.settle({name: (widths[name], length) for name, length in zip(names, lengths, strict=True)})
