"""Curricula: what gets harder as the policy gets better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from genelab.managers.base import Manager, TermCfg


@dataclass(kw_only=True)
class CurriculumTermCfg(TermCfg):
    """A function `(env, env_ids, **params)`, called before a reset, that adapts the task.

    What it returns is logged: None, a number, or numbers by name.
    """


class CurriculumManager(Manager[CurriculumTermCfg]):
    """Runs the curricula of the environments that are about to start anew."""

    kind = "curriculum"
    takes_env_ids = True

    def compute(self, env_ids: Tensor) -> dict[str, Any]:
        """Adapt the task; returns what to log."""
        log: dict[str, Any] = {}
        for name, term in self.terms.items():
            value = term(env_ids)
            if isinstance(value, dict):
                log.update({f"Curriculum/{name}/{key}": item for key, item in value.items()})
            elif value is not None:
                log[f"Curriculum/{name}"] = value
        return log
