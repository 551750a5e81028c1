"""Demonstrations: whole episodes on file that an off-policy learner starts with in its replay buffer.

The file is an NPZ of arrays `(T, num_envs, …)`: for each observation group `obs_<group>` and `next_obs_<group>`, and
`actions`, `rewards`, `dones` and `truncateds`. An episode ends where `dones` or `truncateds` is true; where
`truncateds` is, it was cut off and not lost. `next_obs_*` of an ending step is the last state of the old episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from genelab.config.archive import check_zip
from genelab.config.memory import machine_memory
from genelab.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Demos:
    """Transitions of `num_envs` environments side by side, all arrays `(T, num_envs, …)`."""

    observations: dict[str, np.ndarray]
    """By group, as they were before the step."""
    next_observations: dict[str, np.ndarray]
    """By group, as they were after it, before a reset."""
    actions: np.ndarray
    rewards: np.ndarray
    dones: np.ndarray
    """Whether the episode ended with the step, however it did."""
    truncateds: np.ndarray
    """Whether it was only cut off."""

    def __len__(self) -> int:
        return len(self.rewards)


def load_demos(path: Path, num_envs: int, groups: Mapping[str, int], action_dim: int, action_bound: float) -> Demos:
    """Read and check demonstrations for observation groups of these widths.

    Episodes that the file breaks off are cut off at its end, so that they do not run on into the learner's own.
    """
    arrays = _read(path)
    widths = {f"{when}_{name}": width for when in ("obs", "next_obs") for name, width in groups.items()}
    widths |= {"actions": action_dim, "rewards": 0, "dones": 0, "truncateds": 0}
    missing = [key for key in widths if key not in arrays]
    if missing:
        raise UsageError(
            f"{path}: demonstrations lack {', '.join(missing)}; they have {', '.join(arrays) or 'nothing'}"
        )
    if arrays["rewards"].ndim != 2 or not len(arrays["rewards"]):
        raise UsageError(f"{path}: rewards must have shape (T, num_envs), got {arrays['rewards'].shape}")
    steps, count = arrays["rewards"].shape
    if count != num_envs:
        raise UsageError(
            f"{path}: the demonstrations have {count} environments, training runs {num_envs}: pass `num_envs={count}`"
        )
    for key, width in widths.items():
        shape = (steps, num_envs, width) if width else (steps, num_envs)
        if arrays[key].shape != shape:
            raise UsageError(f"{path}: {key} must have shape {shape}, got {arrays[key].shape}")
        if arrays[key].dtype.kind not in "biuf":
            raise UsageError(f"{path}: {key} must be real numbers, got {arrays[key].dtype}")
        if not np.isfinite(arrays[key]).all():
            raise UsageError(f"{path}: {key} has values that are not finite")
    largest = np.abs(arrays["actions"]).max()
    if largest > action_bound * (1 + 1e-6):
        raise UsageError(f"{path}: actions reach {largest:.3g}, beyond the agent's action_bound of {action_bound:g}")
    return _demos(arrays, groups)


def _read(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise UsageError(f"{path}: no such file of demonstrations")
    try:
        check_zip(path, str(path), most_bytes=machine_memory())
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except UsageError:
        raise
    except Exception as error:  # each way to be damaged has an error of its own kind
        raise UsageError(f"{path}: not an NPZ file of demonstrations") from error


def _demos(arrays: dict[str, np.ndarray], groups: Mapping[str, int]) -> Demos:
    truncateds = arrays["truncateds"].astype(bool)
    dones = arrays["dones"].astype(bool) | truncateds
    truncateds[-1] |= ~dones[-1]
    dones[-1] = True
    return Demos(
        observations={name: arrays[f"obs_{name}"].astype(np.float32) for name in groups},
        next_observations={name: arrays[f"next_obs_{name}"].astype(np.float32) for name in groups},
        actions=arrays["actions"].astype(np.float32),
        rewards=arrays["rewards"].astype(np.float32),
        dones=dones,
        truncateds=truncateds,
    )
