"""What a bundle says of the software, the machine and the load."""

from __future__ import annotations

import dataclasses
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

from genelab import __version__
from genelab.bench.schema import GpuDeviceInfo, Hardware, Versions
from genelab.rl.backends.registry import BACKENDS
from genelab.rl.provenance import cpu_name, git_revision, versions
from genelab.sim import ENGINES

GB = 1e9
SHORTEST_S = 0.1
"""Over a shorter time psutil cannot tell the load of a CPU."""


def capture_versions() -> Versions:
    """The software of this process; an engine or an RL library that has no field of its own is among the packages."""
    found, git = versions(), git_revision() or {}
    parts = [ENGINES.entry(name) for name in ENGINES.names()] + [BACKENDS.entry(name) for name in BACKENDS.names()]
    fields = {field.name for field in dataclasses.fields(Versions)}
    named = {part.name: part.packages[0] for part in parts if part.name in fields and part.packages}
    rest = {name: found[name] for name in found if name not in (*named.values(), "python", "genelab", "torch", "numpy")}
    return Versions(
        genelab=__version__,
        torch=found["torch"] or "",
        numpy=found["numpy"],
        **{field: found[package] for field, package in named.items()},
        packages=rest,
        git_commit=git.get("commit"),
        git_branch=git.get("branch"),
        git_dirty=git.get("dirty"),
    )


def capture_hardware() -> Hardware:
    """The machine of this process."""
    import torch

    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return Hardware(
        hostname=platform.node(),
        gpu_devices=tuple(
            GpuDeviceInfo(name=gpu.name, mem_gb=gpu.total_memory / GB, compute_cap=f"{gpu.major}.{gpu.minor}")
            for gpu in gpus
        ),
        cpu_name=cpu_name(),
        cpu_count=psutil.cpu_count(logical=False),
        ram_gb=psutil.virtual_memory().total / GB,
    )


@dataclass(frozen=True, kw_only=True)
class Load:
    """What the process takes now; GPU numbers are None where there is none."""

    cpu_util_pct: float | None
    """Since the last look, None if that was too short ago to tell; 100 is one core."""
    ram_gb: float
    gpu_util_pct: float | None = None
    gpu_mem_gb: float | None = None


def load_probe() -> Callable[[], Load]:
    """A function that looks at the load of this process; the first look, which has no time to go by, is made here."""
    process = psutil.Process()
    process.cpu_percent()
    last = time.perf_counter()

    def look() -> Load:
        nonlocal last
        before, last = last, time.perf_counter()
        gpu, cpu = _gpu(), process.cpu_percent()
        return Load(
            cpu_util_pct=cpu if last - before >= SHORTEST_S else None,
            ram_gb=process.memory_info().rss / GB,
            gpu_util_pct=None if gpu is None else _utilization(gpu),
            gpu_mem_gb=None if gpu is None else gpu.memory_reserved() / GB,
        )

    return look


def _gpu() -> Any | None:
    """CUDA, if this process uses it: looking must not start it, nor import torch before its time."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)  # absent while torch is being imported
    started = getattr(cuda, "is_initialized", None)
    return cuda if started is not None and started() else None


def _utilization(gpu: Any) -> float | None:
    try:
        return float(gpu.utilization())
    except (ModuleNotFoundError, RuntimeError):  # it asks NVML, which may be missing
        return None
