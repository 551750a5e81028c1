"""rsl_rl's normaliser for a policy that came to see more: a count for each column.

rsl_rl counts all columns together. A column that a checkpoint did not have would keep the mean 0 and the variance 1
that it was born with, for as long again as the others have been seen. rsl_rl's own arithmetic works with a row of
counts as well, so that is what a widened normaliser has, in its checkpoints, too; all others keep their one number.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_COUNT = "obs_normalizer.count"


def widen_count(state: dict[str, Tensor], width: int, columns: list[int]) -> dict[str, Tensor]:
    """A network's state in which the normaliser has seen only some of its columns: those of the checkpoint."""
    if _COUNT not in state or len(columns) == width:
        return state
    count = torch.zeros(1, width, dtype=state[_COUNT].dtype)
    count[:, columns] = state[_COUNT]
    return {**state, _COUNT: count}


def accept_counts(model: nn.Module) -> None:
    """Let a network load a state with one count, and one with a count for each column."""
    normalizer = model.get_submodule("obs_normalizer")
    if hasattr(normalizer, "count"):
        normalizer.register_load_state_dict_pre_hook(_take_shape_of_count)


def _take_shape_of_count(normalizer: Any, state: dict[str, Tensor], prefix: str, *rest: Any) -> None:
    saved = state.get(f"{prefix}count")
    if saved is not None and saved.shape != normalizer.count.shape:
        normalizer.count = torch.zeros_like(saved, device=normalizer.count.device)


@torch.no_grad()
def meet_new_columns(model: Any, rollout: Any) -> None:
    """Normalise columns that were never seen by the observations that the network is about to learn from.

    Their weights are still zero, so nothing that was done or valued changes by it. They stay uncounted: after the
    update rsl_rl counts the same observations for all columns.
    """
    if not model.obs_normalization:
        return
    normalizer = model.obs_normalizer
    new = normalizer.count == 0
    if new.dim() == 0 or not new.any():
        return
    before = {name: buffer.clone() for name, buffer in normalizer.named_buffers()}
    model.update_normalization(rollout.flatten(0, 1))
    for name, buffer in normalizer.named_buffers():
        measured = new if name != "count" else torch.zeros_like(new)
        buffer.copy_(torch.where(measured, buffer, before[name]))
