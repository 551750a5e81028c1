"""Reinforcement learning around a task.

Names are imported when they are used, so that reading an agent config does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genelab.rl.play import PlayResult, play_task
    from genelab.rl.profiling import ProfileCfg

_HOME = {
    "PlayResult": "genelab.rl.play",
    "ProfileCfg": "genelab.rl.profiling",
    "play_task": "genelab.rl.play",
}

__all__ = ["PlayResult", "ProfileCfg", "play_task"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
