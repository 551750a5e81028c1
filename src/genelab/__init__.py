"""GeneLab: a laboratory for robot reinforcement learning.

Importing this package is cheap; torch and the simulators are imported by the modules that need them.
"""

from __future__ import annotations

import os
import sys

from genelab.gymnasium_hook import register_when_imported

TYPE_CHECKING = False  # as in `typing`, which takes time to import
if TYPE_CHECKING:
    from typing import Any

    from genelab.config import TASKS, TaskCfg

# Threads of torch that wait for each other sleep instead of spinning, if torch is not imported yet. Spinning ones take
# the cores from the physics, and beside another busy process they made training ten times slower; alone on the machine
# they are a tenth faster. The environment variable, if set, decides.
if "torch" in sys.modules and not {"OMP_WAIT_POLICY", "OMP_NUM_THREADS"} & set(os.environ):
    import warnings

    warnings.warn(
        "torch was imported before genelab: on a busy machine its waiting threads take the cores from the physics. "
        "Import genelab first, or set OMP_WAIT_POLICY=PASSIVE",
        stacklevel=2,
    )
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.2.0"

__all__ = ["TASKS", "TaskCfg", "__version__"]

register_when_imported()


def __getattr__(name: str) -> Any:
    # On first use, so that the command answers Ctrl-C before anything else is imported.
    if name not in ("TASKS", "TaskCfg"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from genelab import config

    return getattr(config, name)
