"""Seeds as tasks of Ray, on this machine or on a cluster that shares its file system: `--launcher ray`."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from genelab.config.offer import need_library
from genelab.errors import UsageError
from genelab.rl.launch.process import PATIENCE, Job, Process, available_threads, python_command, share

_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # a training tells nobody of itself
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a task without a share of the GPUs still sees them
}


@contextmanager
def ray_launcher(address: str | None, parallel: int, *, gpu: bool = False) -> Iterator[RayLauncher]:
    """A cluster to start children on: the one at this address, or one of this machine that ends with the block."""
    ray = need_library("ray", "ray")
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    options: dict[str, Any] = {"address": address}
    if address is None:
        options = {"address": "local", "num_cpus": parallel, "include_dashboard": False}
    try:
        if address is not None and ":" in address:
            host, _, port = address.removeprefix("ray://").rpartition(":")
            socket.create_connection((host, int(port)), timeout=10).close()  # Ray itself would wait for minutes
        ray.init(**options, log_to_driver=False, logging_level="ERROR")
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"`ray_address`: no Ray cluster answers at {address!r}: {error}") from error
    try:
        gpus = ray.cluster_resources().get("GPU", 0.0) if gpu else 0.0
        yield RayLauncher(ray, local=address is None, gpus=min(1.0, gpus / parallel))
    finally:
        ray.shutdown()


class RayLauncher:
    """Starts each child as a task with one CPU slot."""

    def __init__(self, ray: Any, *, local: bool, gpus: float) -> None:
        self._ray = ray
        self._local = local
        # A task that failed would fail again: it is the user who tries another time.
        self._task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(run_child)

    def threads(self, parallel: int) -> int | None:
        """A slot of this machine's Ray is a share of its cores; of a cluster, one core."""
        return share(available_threads(), parallel) if self._local else 1

    def start(self, words: Sequence[str], *, env: dict[str, str], log: Path) -> Job:
        """Submit a child."""
        return _RayJob(self._ray, self._task.remote(list(words), env, str(log), os.getcwd()))


class _RayJob:
    """A task of Ray that runs a child."""

    def __init__(self, ray: Any, ref: Any) -> None:
        self._ray = ray
        self._ref = ref

    def poll(self) -> int | None:
        done, _ = self._ray.wait([self._ref], timeout=0)
        if not done:
            return None
        try:
            return self._ray.get(self._ref)
        except self._ray.exceptions.TaskCancelledError:
            return 130
        except self._ray.exceptions.RayError as error:
            print(f"genelab: Ray: {error}", file=sys.stderr)
            return 1

    def signal(self, number: signal.Signals) -> None:
        """Ray knows two signals: one that the task sees, and its worker's end, with which the child dies."""
        self._ray.cancel(self._ref, force=number != signal.SIGINT)


def run_child(words: list[str], env: dict[str, str], log: str, directory: str) -> int:
    """On a worker of Ray: run a child to its end and return its exit code; a cancelled task stops it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which is how Ray cancels; a shell's `&` ignores it
    os.chdir(directory)
    child = Process(python_command(words), env=env, log=Path(log))
    deadline = float("inf")
    while True:
        try:
            if (code := child.poll()) is not None:
                return code
            time.sleep(0.1)
        except KeyboardInterrupt:
            child.signal(signal.SIGINT)
            deadline = time.monotonic() + PATIENCE[signal.SIGINT]
        if time.monotonic() > deadline:
            child.signal(signal.SIGKILL)
