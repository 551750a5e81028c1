"""What a bundle says of the software, the machine and the load."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

from genelab import __version__
from genelab.bench.schema import GpuDeviceInfo, Hardware, Versions
from genelab.rl.run import cpu_name, git_revision, versions

GB = 1e9
SHORTEST_S = 0.1
"""Over a shorter time psutil cannot tell the load of a CPU."""


_FIELDS = {
    "mujoco": "mujoco",
    "genesis-world": "genesis",
    "numpy": "numpy",
    "rl-games": "rl_games",
    "rsl-rl-lib": "rsl_rl",
    "skrl": "skrl",
    "stable-baselines3": "sb3",
}
"""Distributions that have a field of their own in `Versions`."""


def capture_versions() -> Versions:
    """The software of this process."""
    found, git = versions(), git_revision() or {}
    rest = {name: found[name] for name in found if name not in (*_FIELDS, "python", "genelab", "torch")}
    return Versions(
        genelab=__version__,
        torch=found["torch"] or "",
        **{field: found.get(name) for name, field in _FIELDS.items()},
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
