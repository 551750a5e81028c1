"""Whom a policy is exported for: one file each.

Names are imported when they are used, so that offering the choice of a target does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from genelab.rl.targets.registry import TARGETS, register_target

if TYPE_CHECKING:
    from genelab.rl.targets.base import Parcel, Target
    from genelab.rl.targets.export import TargetResult, export_for

_HOME = {"Parcel": "base", "Target": "base", "TargetResult": "export", "export_for": "export"}

__all__ = ["TARGETS", "Parcel", "Target", "TargetResult", "export_for", "register_target"]

register_target(
    "mujoco",
    "genelab.rl.targets.plain:Plain",
    extra="onnx",
    packages=["onnx", "onnxruntime"],
    about="the world and a program that runs the policy in it, without genelab",
)
register_target(
    "unitree",
    "genelab.rl.targets.unitree:Unitree",
    extra="onnx",
    packages=["onnx", "onnxruntime"],
    about="Unitree's C++ controllers",
    settings={"motor_order": ""},
)
register_target(
    "mjlab",
    "genelab.rl.targets.mjlab:Mjlab",
    extra="onnx",
    packages=["onnx", "onnxruntime"],
    about="mjlab, BeyondMimic's controller, RoboJuDo",
)
register_target(
    "hub",
    "genelab.rl.targets.hub:Hub",
    extra="onnx",
    packages=["onnx", "onnxruntime"],
    about="a folder to share, with model card, film and evaluation",
    settings={"episodes": 16, "film_steps": 250, "license": "apache-2.0"},
)
register_target(
    "web",
    "genelab.rl.targets.web:Web",
    extra="onnx",
    packages=["onnx", "onnxruntime"],
    about="a page that runs in a browser",
    settings={"title": ""},
)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
