"""Traces of where the time goes, with torch.profiler."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genelab.errors import GenelabError, UsageError


@dataclass(kw_only=True)
class ProfileCfg:
    """Which steps are traced, and where the traces go."""

    out: Path = Path("logs/prof")
    """Directory of the traces, which TensorBoard and Perfetto open."""
    wait: int = 5
    """Steps before a trace."""
    warmup: int = 5
    """Steps traced and thrown away."""
    active: int = 20
    """Steps in a trace."""
    repeat: int = 1
    """Number of traces."""


class _NoProfiler:
    def step(self) -> None:
        """Nothing to trace."""


def profiler(cfg: ProfileCfg | None) -> AbstractContextManager[Any]:
    """A context whose value has `step()`, to be called once per step; without a config it does nothing."""
    if cfg is None:
        return nullcontext(_NoProfiler())
    from torch import profiler as tp

    try:
        cfg.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--prof-out: cannot write to {cfg.out}: {error.strerror}") from error
    write = tp.tensorboard_trace_handler(str(cfg.out))

    def write_or_fail(trace: Any) -> None:
        before = _traces(cfg.out)
        write(trace)
        if _traces(cfg.out) == before:  # its writer only logs what goes wrong
            raise GenelabError(f"--prof-out: no trace could be written to {cfg.out}: is the disk full?")

    return tp.profile(
        schedule=tp.schedule(wait=cfg.wait, warmup=cfg.warmup, active=cfg.active, repeat=cfg.repeat),
        on_trace_ready=write_or_fail,
        record_shapes=False,
    )


def _traces(out: Path) -> set[Path]:
    """The traces that are there in full."""
    return {path for path in out.glob("*.pt.trace.json*") if path.stat().st_size and _ends(path)}


def _ends(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 8))
        return file.read().rstrip().endswith(b"}")
