"""A policy as a file: TorchScript or ONNX, with its metadata inside."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from genelab.config.offer import need_library
from genelab.errors import UsageError, summary
from genelab.managers.observations import ObservationGroup
from genelab.rl.backends.base import Actor
from genelab.rl.torchscript import without_lines

Batch = Literal["static", "dynamic"]
"""How many robots an ONNX graph serves at once: one, or any number."""

OPSET = 17
OPSETS = range(7, 21)
"""Versions of ONNX' operators that torch can write."""
KEY = "genelab"
"""Where the metadata stand in an ONNX file's `metadata_props`; in TorchScript it is the extra file `genelab.json`."""


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


def to_torchscript(policy: nn.Module, metadata: Mapping[str, Any]) -> bytes:
    """A TorchScript file; a recurrent policy keeps its state inside and has `reset()`."""
    obs = torch.zeros(1, metadata["obs_dim"])
    with _quiet():
        if not metadata["is_recurrent"]:
            module = torch.jit.trace(policy, obs, check_trace=False)
        else:
            state = torch.stack(_empty_state(metadata))
            step = torch.jit.trace(_Step(policy), (obs, state), check_trace=False)
            module = torch.jit.script(_Remembering(step, state))
        buffer = io.BytesIO()
        torch.jit.save(module, buffer)
    return without_lines(buffer.getvalue())


def to_onnx(
    policy: Any,
    metadata: Mapping[str, Any],
    opset: int = OPSET,
    batch: Batch = "static",
    *,
    more_inputs: Sequence[str] = (),
    more_outputs: Sequence[str] = (),
) -> bytes:
    """An ONNX file; a recurrent policy takes and gives its state.

    With a static batch all shapes are fixed, for one robot, which is what the controllers of robots expect. More inputs
    are single numbers.
    """
    rows = 1 if batch == "static" else 2
    inputs, outputs = ports(metadata)
    inputs, outputs = [*inputs, *more_inputs], [*outputs, *more_outputs]
    numbers = [torch.zeros(rows, 1) for _ in more_inputs]
    example = (torch.zeros(rows, metadata["obs_dim"]), *_empty_state(metadata, rows), *numbers)
    axes = {name: {0 if name in ("obs", "actions") else 1: "batch"} for name in (*inputs, *outputs)}
    buffer: Any = io.BytesIO()  # its annotation says a path, this exporter takes either
    try:
        with _quiet():
            if _has_scripted_part(policy):  # which torch.onnx does not follow by itself
                policy = torch.jit.trace(policy, example, check_trace=False)
            torch.onnx.export(
                policy,
                example,
                buffer,
                dynamo=False,  # torch.export cannot follow the distributions of every library
                opset_version=opset,
                input_names=inputs,
                output_names=outputs,
                dynamic_axes=axes if batch == "dynamic" else None,
            )
    except RuntimeError as error:
        raise UsageError(f"`opset={opset}` cannot express this policy, try {OPSET}: {summary(error)[:200]}") from error
    return buffer.getvalue()


def _has_scripted_part(policy: Any) -> bool:
    """Whether something scripted is inside something that is not."""
    parts = policy.modules() if isinstance(policy, nn.Module) else ()
    scripted = torch.jit.ScriptModule
    return not isinstance(policy, scripted) and any(isinstance(part, scripted) for part in parts)


def ports(metadata: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """What an ONNX graph takes and what it gives."""
    if not metadata["is_recurrent"]:
        return ["obs"], ["actions"]
    return metadata["recurrent"]["onnx_inputs"], metadata["recurrent"]["onnx_outputs"]


def with_metadata(data: bytes, metadata: Mapping[str, Any], props: Mapping[str, str] = {}) -> bytes:
    """The file with its metadata inside, and in an ONNX file with other entries of `metadata_props`."""
    text = json.dumps(metadata, allow_nan=False)
    if metadata["format"] == "onnx":
        onnx = need_library("onnx", "onnx")
        model = onnx.load_from_string(data)
        onnx.helper.set_model_props(model, {**props, KEY: text})
        return model.SerializeToString()
    archive = io.BytesIO(data)
    with zipfile.ZipFile(archive, "a") as file:
        name = f"{file.infolist()[0].filename.split('/')[0]}/extra/{KEY}.json"
        if name in file.NameToInfo:  # it was written last: what is written now takes its place
            old = file.NameToInfo.pop(name)
            file.filelist.remove(old)
            file.start_dir = old.header_offset
        file.writestr(zipfile.ZipInfo(name), text)  # without the time of day: the same content is the same file
    return archive.getvalue()


def _empty_state(metadata: Mapping[str, Any], rows: int = 1) -> list[Tensor]:
    if not metadata["is_recurrent"]:
        return []
    layers, _, width = metadata["recurrent"]["hidden_state_shape"]
    return [torch.zeros(layers, rows, width) for _ in ports(metadata)[0][1:]]


class _Step(nn.Module):
    """A recurrent policy whose states are one tensor."""

    def __init__(self, policy: nn.Module) -> None:
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
                "this policy keeps the memory of one robot: give it observations of the shape (1, obs_dim). "
                "For more robots export it as ONNX, which takes their memories as an input"
            )
        action, after = self.step(obs, self.state)
        self.state.copy_(after)
        return action

    @torch.jit.export
    def reset(self) -> None:
        """Forget: at the start of each episode."""
        self.state.zero_()


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
