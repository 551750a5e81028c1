"""RL libraries, chosen by the type of the agent config.

Names are imported when they are used, so that reading an agent config imports neither torch nor a library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from genelab.rl.backends import rl_games, rsl_rl, sb3, skrl  # noqa: F401  each registers itself
from genelab.rl.backends.registry import BACKENDS, register_backend, select_backend

if TYPE_CHECKING:
    from genelab.rl.backends.base import Actor, Backend, FlatPolicy, InferenceSetup, Learner, Memory, TrainContext
    from genelab.rl.backends.loop import LoopBackend, LoopLearner
    from genelab.rl.backends.rl_games.env import GenelabRlGamesVecEnv
    from genelab.rl.backends.rsl_rl.wrapper import RslRlVecEnvWrapper
    from genelab.rl.backends.sb3.env import GenelabSb3VecEnv
    from genelab.rl.backends.skrl.wrapper import GenelabSkrlWrapper

_HOME = {
    "Actor": "base",
    "Backend": "base",
    "FlatPolicy": "base",
    "GenelabRlGamesVecEnv": "rl_games.env",
    "GenelabSb3VecEnv": "sb3.env",
    "GenelabSkrlWrapper": "skrl.wrapper",
    "InferenceSetup": "base",
    "Learner": "base",
    "LoopBackend": "loop",
    "LoopLearner": "loop",
    "Memory": "base",
    "RslRlVecEnvWrapper": "rsl_rl.wrapper",
    "TrainContext": "base",
}

__all__ = [
    "BACKENDS",
    "Actor",
    "Backend",
    "FlatPolicy",
    "GenelabRlGamesVecEnv",
    "GenelabSb3VecEnv",
    "GenelabSkrlWrapper",
    "InferenceSetup",
    "Learner",
    "LoopBackend",
    "LoopLearner",
    "Memory",
    "RslRlVecEnvWrapper",
    "TrainContext",
    "register_backend",
    "select_backend",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
