"""Refuse what no memory holds before it is asked for."""

import math
import os

from genelab.errors import ConfigError


def check_memory(path: str, value: object, need: float) -> None:
    """Refuse a setting that needs more bytes than this machine has; the need is to be estimated from below."""
    there = machine_memory()
    if need > there:
        raise ConfigError(
            f"{path}: {value} would need {_size(need)} of memory or more, and there are {_size(there)} here"
        )


def machine_memory() -> float:
    """Bytes that a process of this machine can have: memory and swap, or the limit that it was given."""
    import psutil

    limits: list[float] = [psutil.virtual_memory().total + psutil.swap_memory().total]
    if os.name == "posix":
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        limits += [] if soft == resource.RLIM_INFINITY else [soft]
    return min(limits)


def _size(number: float) -> str:
    units = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
    power = min(int(math.log(max(number, 1), 1000)), len(units) - 1)
    return f"{number / 1000**power:,.3g} {units[power]}"
