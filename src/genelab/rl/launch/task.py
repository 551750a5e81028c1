"""The task of a training, as the processes of it will see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genelab.config import TASKS, refuse_decided
from genelab.errors import UsageError
from genelab.rl.config import configure


def check_overrides(overrides: Mapping[str, Any]) -> None:
    """Refuse what a training would replace."""
    refuse_decided(overrides, {"env.seed": "pass `seed`"}, "a training")


def load_cfg(task: str, overrides: Mapping[str, Any]) -> tuple[str, Any]:
    """Id and config of a task as its children will see them: what is wrong with it shows before any of them starts."""
    check_overrides(overrides)
    cfg = TASKS.get(task)
    task_id = TASKS.entry(task).id
    if cfg.agent is None:
        raise UsageError(f"{task_id} has no agent config: it can be played, not trained")
    configure(cfg.env, cfg.agent, overrides, learns=True)
    return task_id, cfg
