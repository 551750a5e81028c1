"""Write a policy to a file that needs neither the lab nor the library that trained it.

Clip, scale and learned normaliser of the observations are inside, so the file takes what is measured and gives what the
environment got. It is compared with the policy before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genelab.config import check_out, write_out
from genelab.errors import UsageError
from genelab.rl.export_metadata import as_text
from genelab.rl.exportable import Format, check_format, exportable
from genelab.rl.exported import SUFFIXES, is_exported, metadata_path
from genelab.rl.graphs import Batch
from genelab.rl.latency import Latency, measure_latency
from genelab.rl.locate import find_checkpoint


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
    latency: Latency
    """How long it takes to answer here."""


def export_task(
    task_id: str,
    checkpoint: str | Path,
    *,
    best: bool = False,
    format: Format | None = None,
    out: str | Path | None = None,
    opset: int | None = None,
    batch: Batch | None = None,
    overrides: Mapping[str, Any] = {},
    notify: Callable[[str], None] = lambda message: None,
) -> ExportResult:
    """Write the policy of a checkpoint as TorchScript or ONNX, and its metadata beside it and in it.

    `checkpoint` and `best` are as for `find_checkpoint`. Without a format it is the one that the suffix of `out` asks
    for, or TorchScript. What is an exported policy already is copied in its own format, described anew as the task has
    it now; TorchScript can become ONNX. An ONNX graph is for any number of robots at once unless `batch` is "static",
    which is for one, as the controllers of robots expect it.
    """
    source = find_checkpoint(task_id, checkpoint, best=best)
    out = None if out is None else Path(out)
    if format is None:
        named = out if out is not None else source if is_exported(source) else Path("policy.ts")
        format = "onnx" if named.suffix == SUFFIXES["onnx"] else "torchscript"
    out = Path(f"policy{SUFFIXES[format]}") if out is None else out
    _check(format, out)
    check_format(format, opset, batch)
    if source.resolve() == out.resolve():
        raise UsageError(f"`out`: {out} is the policy itself; give another file")
    with exportable(task_id, source, overrides=overrides, notify=notify) as policy:
        if format == "onnx" and not policy.is_given(format):
            batch = batch or "dynamic"
        written = policy.write(format, opset=opset, batch=batch)
    write_out({out: written.data, metadata_path(out): as_text(written.metadata).encode()})
    return ExportResult(
        source=source,
        path=out,
        metadata_path=metadata_path(out),
        metadata=written.metadata,
        parity_error=written.parity_error,
        size=len(written.data),
        latency=measure_latency(written.data, written.metadata),
    )


def _check(format: Format, out: Path) -> None:
    """Refuse a name that cannot be written, or would be taken for something else."""
    other = next(name for name in SUFFIXES if name != format)
    if out.suffix == SUFFIXES[other]:
        raise UsageError(f"`out`: {out.name} is the name of an {other} file, but `format` is {format}")
    if out.suffix in (".pt", ".zip"):
        raise UsageError(f"`out`: {out.name} would be taken for a checkpoint; call it {out.stem}{SUFFIXES[format]}")
    for path in (out, metadata_path(out)):
        check_out(path)
