"""Write a policy to a file that needs neither the lab nor the library that trained it.

Clip, scale and learned normaliser of the observations are inside, so the file takes what is measured and gives what the
environment got. It is compared with the policy before anything is written.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from genelab.config import TASKS, check_out, write_out
from genelab.config.offer import need_library
from genelab.envs import ManagerBasedRlEnv
from genelab.errors import GenelabError, UsageError, summary
from genelab.managers.observations import ObservationGroup
from genelab.rl.backends.base import Actor, InferenceSetup, Observations, select_backend
from genelab.rl.export_metadata import describe, input_names, output_names
from genelab.rl.exported import (
    SUFFIXES,
    TorchScriptPolicy,
    is_exported,
    metadata_path,
    open_policy,
    read_metadata,
)
from genelab.rl.locate import find_checkpoint
from genelab.rl.rollout import rollout
from genelab.rl.world import policy_on_task

Format = Literal["torchscript", "onnx"]

TOLERANCE = 1e-5
"""Largest difference from the live policy that an exported one may have."""
OPSET = 17
OPSETS = range(7, 21)
"""Versions of ONNX' operators that torch can write."""

_NUM_ENVS, _STEPS, _SEED = 8, 64, 0
"""What is compared: this many environments, for this many steps."""
_CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class ExportResult:
    """What an export wrote."""

    source: Path
    """The checkpoint."""
    path: Path
    metadata_path: Path
    metadata: dict[str, Any]
    parity_error: float | None
    """Largest difference from the live policy; None for an exported policy that was copied."""
    size: int
    """Of the policy's file, bytes."""


def export_task(
    task_id: str,
    checkpoint: str | Path,
    *,
    best: bool = False,
    format: Format | None = None,
    out: str | Path | None = None,
    opset: int | None = None,
    overrides: Mapping[str, Any] = {},
    notify: Callable[[str], None] = lambda message: None,
) -> ExportResult:
    """Write the policy of a checkpoint as TorchScript or ONNX, and its metadata beside it.

    `checkpoint` and `best` are as for `find_checkpoint`. Without a format it is the one that the suffix of `out` asks
    for, or TorchScript. What is an exported policy already is copied, if it has the format and is loaded without fault;
    TorchScript without memory can become ONNX.
    """
    source = find_checkpoint(task_id, checkpoint, best=best)
    out = None if out is None else Path(out)
    if format is None:
        named = out if out is not None else source if is_exported(source) else Path("policy.ts")
        format = "onnx" if named.suffix == SUFFIXES["onnx"] else "torchscript"
    out = Path(f"policy{SUFFIXES[format]}") if out is None else out
    _check(format, out, opset)
    if is_exported(source):
        if (format, read_metadata(source)["format"]) == ("onnx", "torchscript"):
            return _convert(task_id, source, out, opset or OPSET, overrides, notify)
        return _copy(task_id, source, format, out, opset, overrides, notify)
    return _export(task_id, source, format, out, opset, overrides, notify)


def _export(
    task_id: str,
    checkpoint: Path,
    format: Format,
    out: Path,
    opset: int | None,
    overrides: Mapping[str, Any],
    notify: Callable[[str], None],
) -> ExportResult:
    backend = select_backend(TASKS.get(task_id).agent)
    with policy_on_task(task_id, checkpoint, num_envs=_NUM_ENVS, overrides=overrides, notify=notify) as (env, setup):
        if setup.actor is None:
            raise UsageError(f"policies of {backend.name} cannot be exported: its backend gives no actor")
        metadata = describe(env, setup.actor, task=TASKS.entry(task_id).id, backend=backend.name, checkpoint=checkpoint)
        metadata["format"] = format
        groups = [env.observation_manager.groups[name] for name in setup.actor.groups]
        experience = collect(env, setup, groups)
        policy = WholePolicy(groups, setup.actor).to(_CPU).eval().requires_grad_(False)
    if format == "onnx":
        metadata["opset"] = opset or OPSET
        data = to_onnx(policy, setup.actor, metadata["opset"])
    else:
        data = to_torchscript(policy, setup.actor)
    return _finish(checkpoint, out, data, metadata, experience)


def _finish(source: Path, out: Path, data: bytes, metadata: dict[str, Any], experience: Experience) -> ExportResult:
    """Write what does the same as the live policy, and nothing else."""
    error = parity_error(data, metadata, experience)
    if not error <= TOLERANCE:  # nor is a NaN
        raise GenelabError(
            f"the exported policy is not the live one: its actions differ by {error:.3g}, more than {TOLERANCE:g};"
            " nothing was written"
        )
    compared = {"num_envs": _NUM_ENVS, "steps": _STEPS, "seed": _SEED}
    metadata["parity"] = {"max_abs_error": error, "tolerance": TOLERANCE, **compared}
    text = json.dumps(metadata, indent=2, allow_nan=False) + "\n"
    write_out({out: data, metadata_path(out): text.encode()})
    return ExportResult(
        source=source,
        path=out,
        metadata_path=metadata_path(out),
        metadata=metadata,
        parity_error=error,
        size=len(data),
    )


def _convert(
    task_id: str,
    source: Path,
    out: Path,
    opset: int,
    overrides: Mapping[str, Any],
    notify: Callable[[str], None],
) -> ExportResult:
    """Write a TorchScript policy as ONNX, compared with what it was made from."""
    metadata = read_metadata(source)
    if metadata["is_recurrent"]:
        raise UsageError(
            f"{source}: a TorchScript policy with the memory of one robot, which ONNX keeps outside: "
            "give the checkpoint that it was made from"
        )
    with policy_on_task(task_id, source, num_envs=_NUM_ENVS, overrides=overrides, notify=notify) as (env, setup):
        groups = [env.observation_manager.groups[name] for name in metadata["obs_groups"]]
        experience = collect(env, setup, groups, takes_raw=True)
    policy = open_policy(source.read_bytes(), metadata, _CPU)
    assert isinstance(policy, TorchScriptPolicy)
    dims = experience.raw.shape[-1], experience.actions.shape[-1]
    if dims != (metadata["obs_dim"], metadata["action_dim"]):
        raise UsageError(f"{source}: not what its metadata say: it makes {dims[1]} actions of {dims[0]} observations")
    obs = torch.zeros(2, dims[0])
    data = _write_onnx(policy.module, (obs,), ["obs"], ["actions"], opset)
    return _finish(source, out, data, {**metadata, "format": "onnx", "opset": opset}, experience)


def _copy(
    task_id: str,
    source: Path,
    format: Format,
    out: Path,
    opset: int | None,
    overrides: Mapping[str, Any],
    notify: Callable[[str], None],
) -> ExportResult:
    """Take an exported policy as it is, once it has acted as its metadata say."""
    metadata = read_metadata(source)
    theirs = {"format": metadata["format"], "opset": metadata.get("opset")}
    asked = {"format": format, "opset": opset or theirs["opset"]}
    for key, has in theirs.items():
        if asked[key] != has:
            raise UsageError(
                f"{source}: an exported policy already, of {key} {has}, not {asked[key]}: "
                f"pass `{key}={has!r}` to copy it, or give the checkpoint that it was made from"
            )
    if source.resolve() == out.resolve():
        raise UsageError(f"`out`: {out} is the policy itself; give another file")
    with (
        torch.no_grad(),
        policy_on_task(task_id, source, num_envs=1, overrides=overrides, notify=notify) as (env, setup),
    ):
        observations, _ = env.reset(seed=_SEED)
        setup.reset(None)
        action = setup.policy(observations)
    if action.shape != (1, metadata["action_dim"]) or not action.isfinite().all():
        raise UsageError(f"{source}: not what its metadata say: it answers {tuple(action.shape)}, {action.tolist()}")
    data = source.read_bytes()
    write_out({out: data, metadata_path(out): metadata_path(source).read_bytes()})
    return ExportResult(
        source=source,
        path=out,
        metadata_path=metadata_path(out),
        metadata=metadata,
        parity_error=None,
        size=len(data),
    )


def _check(format: Format, out: Path, opset: int | None) -> None:
    """Refuse what cannot work before anything is built."""
    other = next(name for name in SUFFIXES if name != format)
    if out.suffix == SUFFIXES[other]:
        raise UsageError(f"`out`: {out.name} is the name of an {other} file, but `format` is {format}")
    if out.suffix in (".pt", ".zip"):
        raise UsageError(f"`out`: {out.name} would be taken for a checkpoint; call it {out.stem}{SUFFIXES[format]}")
    if format == "torchscript" and opset is not None:
        raise UsageError("`opset` is for `format='onnx'`")
    if opset is not None and opset not in OPSETS:
        raise UsageError(f"`opset`: {opset} cannot be written, only {OPSETS[0]} to {OPSETS[-1]}; {OPSET} is usual")
    for path in (out, metadata_path(out)):
        check_out(path)
    if format == "onnx":
        need_library("onnx", "onnx")
        need_library("onnxruntime", "onnx")


@dataclass(frozen=True, kw_only=True)
class Experience:
    """What the live policy saw and did."""

    raw: Tensor
    """Observations before clip and scale, `(T, N, obs_dim)`."""
    actions: Tensor
    """Its answers, `(T, N, action_dim)`."""
    resets: Tensor
    """Where its memory was wiped after the step, `(T, N)`."""


@torch.no_grad()
def collect(
    env: ManagerBasedRlEnv, setup: InferenceSetup, groups: Sequence[ObservationGroup], *, takes_raw: bool = False
) -> Experience:
    """Let the live policy act, which may take raw observations as an exported one does.

    In mid-run half of the environments lose their memory, though their episodes go on.
    """
    env.observation_manager.leave_raw(group.name for group in groups)
    raw: list[Tensor] = []
    actions: list[Tensor] = []
    resets: list[Tensor] = []

    def act(observations: Observations) -> Tensor:
        raw.append(torch.cat([observations[group.name] for group in groups], dim=1))
        seen = {} if takes_raw else {group.name: group.process(observations[group.name]) for group in groups}
        action = setup.policy({**observations, **seen})
        actions.append(action.clone())
        return action

    def forget(dones: Tensor | None) -> None:
        if dones is not None:
            dones = dones.clone()
            if len(resets) == _STEPS // 2:
                dones[: env.num_envs // 2] = True
            resets.append(dones)
        setup.reset(dones)

    for _ in rollout(env, InferenceSetup(policy=act, reset=forget), seed=_SEED, steps=_STEPS):
        pass
    raw_, actions_ = (torch.stack(values).to(_CPU, torch.float32) for values in (raw, actions))
    return Experience(raw=raw_, actions=actions_, resets=torch.stack(resets).to(_CPU))


class WholePolicy(nn.Module):
    """From raw observations to actions: clip and scale of every column, then the actor."""

    def __init__(self, groups: Sequence[ObservationGroup], actor: Actor) -> None:
        super().__init__()
        frames = [(group.clip_and_scale(), group.cfg.history_length) for group in groups]
        columns = zip(*([each.float().repeat(count) for each in frame] for frame, count in frames), strict=True)
        low, high, scale = map(torch.cat, columns)
        self.low, self.high, self.scale = nn.Buffer(low), nn.Buffer(high), nn.Buffer(scale)
        self.clips = bool(low.isfinite().any() or high.isfinite().any())
        self.scales = bool((scale != 1).any())
        self.network = actor.network

    def forward(self, obs: Tensor, *state: Tensor) -> Any:
        if self.clips:
            obs = obs.maximum(self.low).minimum(self.high)
        if self.scales:
            obs = obs * self.scale
        return self.network(obs, *state)


def to_torchscript(policy: WholePolicy, actor: Actor) -> bytes:
    """A TorchScript file; a recurrent policy keeps its state inside and has `reset()`."""
    obs = torch.zeros(1, len(policy.scale))
    with _quiet():
        if actor.memory is None:
            module = torch.jit.trace(policy, obs, check_trace=False)
        else:
            state = torch.stack(_empty_state(actor))
            step = torch.jit.trace(_Step(policy), (obs, state), check_trace=False)
            module = torch.jit.script(_Remembering(step, state))
        buffer = io.BytesIO()
        torch.jit.save(module, buffer)
    return buffer.getvalue()


def to_onnx(policy: WholePolicy, actor: Actor, opset: int) -> bytes:
    """An ONNX file for any batch size; a recurrent policy takes and gives its state."""
    obs = torch.zeros(2, len(policy.scale))
    state = _empty_state(actor, batch=2)
    return _write_onnx(policy, (obs, *state), input_names(actor), output_names(actor), opset)


def _write_onnx(
    module: Any, example: tuple[Tensor, ...], inputs: Sequence[str], outputs: Sequence[str], opset: int
) -> bytes:
    axes = {name: {0 if name in ("obs", "actions") else 1: "batch"} for name in (*inputs, *outputs)}
    buffer: Any = io.BytesIO()  # its annotation says a path, this exporter takes either
    try:
        with _quiet():
            torch.onnx.export(
                module,
                example,
                buffer,
                dynamo=False,  # torch.export cannot follow the distributions of every library
                opset_version=opset,
                input_names=inputs,
                output_names=outputs,
                dynamic_axes=axes,
            )
    except RuntimeError as error:
        raise UsageError(f"`opset={opset}` cannot express this policy, try {OPSET}: {summary(error)[:200]}") from error
    return buffer.getvalue()


def _empty_state(actor: Actor, batch: int = 1) -> list[Tensor]:
    memory = actor.memory
    if memory is None:
        return []
    shape = (memory.num_layers, batch, memory.hidden_dim)
    return [torch.zeros(shape) for _ in input_names(actor)[1:]]


class _Step(nn.Module):
    """A recurrent policy whose states are one tensor."""

    def __init__(self, policy: WholePolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, obs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        action, *after = self.policy(obs, *state.unbind(0))
        return action, torch.stack(after)


class _Remembering(nn.Module):
    """A recurrent policy of one robot that keeps its state."""

    def __init__(self, step: Any, state: Tensor) -> None:
        super().__init__()
        self.step = step
        self.state = nn.Buffer(state)

    def forward(self, obs: Tensor) -> Tensor:
        if obs.dim() != 2 or obs.size(0) != 1:  # an LSTM would write beyond its state
            raise RuntimeError(
                "this policy keeps the memory of one robot: give it observations of the shape (1, obs_dim), "
                "or export it as ONNX for more"
            )
        action, after = self.step(obs, self.state)
        self.state.copy_(after)
        return action

    @torch.jit.export
    def reset(self) -> None:
        """Forget: at the start of each episode."""
        self.state.zero_()


def parity_error(data: bytes, metadata: Mapping[str, Any], experience: Experience) -> float:
    """Largest difference between what the live policy did and what the exported one does, loaded anew."""
    try:
        policy = open_policy(data, dict(metadata), _CPU)
    except Exception as error:  # onnxruntime has its own kinds, and not all operators in all their versions
        if "opset" in metadata:
            opset = metadata["opset"]
            raise UsageError(f"`opset={opset}` cannot be run, try {OPSET}: {summary(error)[:200]}") from error
        raise GenelabError(f"the exported policy cannot be loaded again: {summary(error)[:200]}") from error
    one_by_one = metadata["is_recurrent"] and metadata["format"] == "torchscript"
    batches = [[i] for i in range(_NUM_ENVS)] if one_by_one else [list(range(_NUM_ENVS)), [0]]
    worst = torch.tensor(0.0)
    with torch.no_grad():
        for rows in batches:
            policy.reset(None)
            for raw, action, resets in zip(experience.raw, experience.actions, experience.resets, strict=True):
                worst = torch.maximum(worst, (policy(raw[rows]) - action[rows]).abs().max())
                policy.reset(resets[rows])
    return worst.item()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of tracing, which say what is done on purpose."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
