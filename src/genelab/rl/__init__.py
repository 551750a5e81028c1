"""Reinforcement learning around a task.

Names are imported when they are used, so that reading an agent config does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genelab.rl.evaluator import EvalSettings, evaluate_task
    from genelab.rl.exporter import ExportResult, export_task
    from genelab.rl.film_callback import FilmOptions
    from genelab.rl.monitor import Iteration, IterationHook, Progress
    from genelab.rl.motion_player import play_motion
    from genelab.rl.player import PlayResult, play_task, replay_dump
    from genelab.rl.profiling import ProfileCfg
    from genelab.rl.targets.export import TargetResult, export_for
    from genelab.rl.train import resume_task, train_task
    from genelab.rl.training import TrainResult

_HOME = {
    "ExportResult": "genelab.rl.exporter",
    "EvalSettings": "genelab.rl.evaluator",
    "FilmOptions": "genelab.rl.film_callback",
    "Iteration": "genelab.rl.monitor",
    "IterationHook": "genelab.rl.monitor",
    "PlayResult": "genelab.rl.player",
    "ProfileCfg": "genelab.rl.profiling",
    "Progress": "genelab.rl.monitor",
    "TargetResult": "genelab.rl.targets.export",
    "TrainResult": "genelab.rl.training",
    "evaluate_task": "genelab.rl.evaluator",
    "export_for": "genelab.rl.targets.export",
    "export_task": "genelab.rl.exporter",
    "play_motion": "genelab.rl.motion_player",
    "play_task": "genelab.rl.player",
    "replay_dump": "genelab.rl.player",
    "resume_task": "genelab.rl.train",
    "train_task": "genelab.rl.train",
}

__all__ = [
    "EvalSettings",
    "ExportResult",
    "FilmOptions",
    "Iteration",
    "IterationHook",
    "PlayResult",
    "ProfileCfg",
    "Progress",
    "TargetResult",
    "TrainResult",
    "evaluate_task",
    "export_for",
    "export_task",
    "play_motion",
    "play_task",
    "replay_dump",
    "resume_task",
    "train_task",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
