"""Policies in files of their own: TorchScript and ONNX, run where they were trained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from genelab.config import expect, read_json
from genelab.config.offer import need_library
from genelab.envs import ManagerBasedRlEnv
from genelab.errors import ConfigError, UsageError, refusing
from genelab.rl.backends.base import InferenceSetup, Observations
from genelab.rl.checkpoint import begin_at_stage, check_schema, schema_of
from genelab.rl.export_metadata import describe_actions
from genelab.rl.torchscript import load_torchscript
from genelab.rl.transforms import action_transforms, check_transforms

SUFFIXES = {"torchscript": ".ts", "onnx": ".onnx"}
"""How an exported policy's file ends, by format."""


def metadata_path(path: Path) -> Path:
    """Where the description of an exported policy lies: beside it."""
    return Path(f"{path}.metadata.json")


def is_exported(path: Path) -> bool:
    """Whether a file, by its name, is an exported policy."""
    return path.suffix in SUFFIXES.values()


class ExportedPolicy(ABC):
    """A policy from raw observations to actions, with its recurrent state."""

    @abstractmethod
    def __call__(self, obs: Tensor) -> Tensor:
        """Actions `(N, action_dim)` for raw observations `(N, obs_dim)`."""

    @abstractmethod
    def reset(self, dones: Tensor | None) -> None:
        """Forget the recurrent state where episodes ended; None: everywhere."""


class TorchScriptPolicy(ExportedPolicy):
    """A TorchScript module; a recurrent one keeps its state itself, of one environment."""

    def __init__(self, data: bytes, *, recurrent: bool, device: torch.device) -> None:
        self.module = load_torchscript(data, device)
        self._recurrent = recurrent

    def __call__(self, obs: Tensor) -> Tensor:
        return self.module(obs.float())

    def reset(self, dones: Tensor | None) -> None:
        if self._recurrent and (dones is None or bool(dones.any())):
            self.module.reset()


class OnnxPolicy(ExportedPolicy):
    """An ONNX graph, run by onnxruntime; what it returns besides actions is given to it in the next step.

    A graph of a static batch is run once for each environment.
    """

    def __init__(self, data: bytes) -> None:
        runtime = need_library("onnxruntime", "onnx")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1  # a policy is too small to share
        options.log_severity_level = 3
        self._session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        obs, *state = self._session.get_inputs()
        self._static = isinstance(obs.shape[0], int)
        self._shapes = {port.name: (port.shape[0], port.shape[2]) for port in state}
        self._state: dict[str, np.ndarray] = {}

    def __call__(self, obs: Tensor) -> Tensor:
        if not self._state:
            shapes = self._shapes.items()
            self._state = {name: np.zeros((n, len(obs), width), np.float32) for name, (n, width) in shapes}
        inputs = obs.to("cpu", torch.float32).numpy()
        if self._static:
            rows = [self._run(inputs[i : i + 1], slice(i, i + 1)) for i in range(len(inputs))]
            actions, *after = (
                np.concatenate(parts, axis=int(k > 0)) for k, parts in enumerate(zip(*rows, strict=True))
            )
        else:
            actions, *after = self._run(inputs, slice(None))
        self._state = dict(zip(self._shapes, after, strict=True))
        return torch.from_numpy(actions).to(obs.device)

    def _run(self, obs: np.ndarray, rows: slice) -> list[np.ndarray]:
        state = {name: values[:, rows] for name, values in self._state.items()}
        return self._session.run(None, {"obs": obs, **state})

    def reset(self, dones: Tensor | None) -> None:
        if dones is None:
            self._state = {}
        for values in self._state.values():
            values[:, dones.cpu().numpy()] = 0.0  # type: ignore[union-attr]


def open_policy(data: bytes, metadata: dict[str, Any], device: torch.device) -> ExportedPolicy:
    """The policy in the content of an exported file."""
    if metadata["format"] == "onnx":
        return OnnxPolicy(data)
    return TorchScriptPolicy(data, recurrent=metadata["is_recurrent"], device=device)


def load_exported(env: ManagerBasedRlEnv, path: Path) -> InferenceSetup:
    """An exported policy for an environment, which from its next reset on leaves clip and scale to the policy."""
    metadata = read_metadata(path)
    groups = metadata["obs_groups"]
    here = schema_of(env)
    check_schema(
        _schema(metadata),
        {**here, "observations": {name: here["observations"].get(name) for name in groups}},
        path,
        metadata["task"],
    )
    _check_actions(metadata, env, path)
    if _of_one_robot(metadata) and env.num_envs > 1:
        raise UsageError(
            f"{path}: a recurrent TorchScript policy has the memory of one robot: "
            f"pass `num_envs=1` instead of {env.num_envs}, or export it as ONNX, which serves any number"
        )
    if metadata["format"] == "onnx":
        need_library("onnxruntime", "onnx")
    with refusing(path, f"a damaged {metadata['format']} file"):
        policy = open_policy(path.read_bytes(), metadata, env.device)
    begin_at_stage(env, metadata.get("stage", {}), path)
    env.observation_manager.leave_raw(groups)

    shape = (env.num_envs, env.action_dim)

    def act(observations: Observations) -> Tensor:
        with refusing(path, "not the policy that its metadata describe"):
            actions = policy(torch.cat([observations[name] for name in groups], dim=1))
            if not isinstance(actions, Tensor) or actions.shape != shape:
                raise UsageError(f"it answers {_kind(actions)}, not {shape} numbers")
            return actions

    def reset(dones: Tensor | None) -> None:
        with refusing(path, "not the policy that its metadata describe"):
            policy.reset(dones)

    return InferenceSetup(policy=act, reset=reset)


def _kind(value: Any) -> str:
    return f"{tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def acts_alone(path: Path) -> bool:
    """Whether a policy can act in one environment only."""
    return is_exported(path) and _of_one_robot(read_metadata(path))


def _of_one_robot(metadata: dict[str, Any]) -> bool:
    """A recurrent TorchScript policy keeps the memory of one robot."""
    return metadata["format"] == "torchscript" and metadata["is_recurrent"]


def read_metadata(path: Path) -> dict[str, Any]:
    """What an exported policy says about itself."""
    if not path.is_file():
        raise UsageError(f"{path}: no such policy")
    beside = metadata_path(path)
    try:
        metadata = read_json(beside)
    except UsageError as error:
        if not beside.exists():
            raise UsageError(f"{path}: an exported policy needs {beside.name} beside it") from error
        raise
    try:
        _schema(metadata)
        expect(metadata, {"task": str, "is_recurrent": bool, "action_dim": int, "opset": int | None}, beside)
        _ = SUFFIXES[metadata["format"]]
    except (KeyError, TypeError, AttributeError, ConfigError) as error:
        raise UsageError(f"{beside}: not the metadata of a policy exported by genelab") from error
    return metadata


def _schema(metadata: dict[str, Any]) -> dict[str, Any]:
    """What goes in and out, as `schema_of` tells it of an environment."""
    return {
        "observations": {
            name: {"history": group["history_length"], "terms": {term["name"]: term["dim"] for term in group["terms"]}}
            for name, group in metadata["obs_groups"].items()
        },
        "actions": {term["name"]: term["dim"] for term in metadata["actions"]},
    }


def _check_actions(metadata: dict[str, Any], env: ManagerBasedRlEnv, path: Path) -> None:
    """Refuse a policy whose actions do something else here; what is done to observations is inside the file.

    How late an action arrives is not what it does: a policy may be tried with other delays.
    """
    here = {entry["name"]: entry for entry in describe_actions(env.action_manager.terms.values())}
    for term in metadata["actions"]:
        for key in ("type", "target", "entity", "joint_names"):
            there, ours = term.get(key), here[term["name"]].get(key)
            if there != ours:
                raise UsageError(
                    f"{path}: trained with {key} {there} of the action {term['name']!r}; here it is {ours}"
                )
    check_transforms(_transforms(metadata, env), env, path)


def _transforms(metadata: dict[str, Any], env: ManagerBasedRlEnv) -> dict[str, Any]:
    """What the environment it was made in does with the actions, as far as it tells."""
    found: dict[str, Any] = {}
    for entry in metadata["actions"]:
        term = env.action_manager.terms[entry["name"]]
        values = {key: entry[key] for key in term.transforms() if key in entry}
        for key, here in term.transforms().items():
            if term.is_per_joint(here) and isinstance(values.get(key), list):
                values[key] = dict(zip(term.joint_names, values[key], strict=False))
        found |= action_transforms(term, values)
    return found
