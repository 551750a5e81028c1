"""Everything a learner of Stable-Baselines3 remembers, as tensors and plain values, to stop it and go on."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from genelab.rl.backends.sb3.env import get_statistics, set_statistics

_COUNTERS = ("num_timesteps", "_n_updates", "_episode_num")
_LAST = ("_last_obs", "_last_original_obs", "_last_episode_starts")
_BUFFER_ROWS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts", "ep_start", "ep_length")


def get_model_state(model: Any) -> dict[str, Any]:
    """Networks, optimizers, counters, normaliser, replay buffer, random numbers. Tensors may be the learner's own."""
    return {
        "counters": {name: getattr(model, name) for name in _COUNTERS},
        "parameters": model.get_parameters(),
        "variables": {name: attrgetter(name)(model) for name in _variables(model)},
        "last": {name: _to_torch(getattr(model, name)) for name in _LAST},
        "normalizer": get_statistics(model.get_vec_normalize_env()),
        "buffer": _buffer_state(getattr(model, "replay_buffer", None)),
        "random": _random_state(model),
    }


def set_model_state(model: Any, state: dict[str, Any]) -> None:
    """Put back what `get_model_state` gave, into a model of the same config."""
    for name, value in state["counters"].items():
        setattr(model, name, value)
    model.set_parameters(state["parameters"], exact_match=True, device=model.device)
    for name, value in state["variables"].items():
        attrgetter(name)(model).data.copy_(value)
    for name, value in state["last"].items():
        setattr(model, name, _to_numpy(value))
    if state["normalizer"] is not None:
        set_statistics(model.get_vec_normalize_env(), state["normalizer"])
    if state["buffer"] is not None:
        _set_buffer_state(model.replay_buffer, state["buffer"])
    _set_random_state(model, state["random"])


def _variables(model: Any) -> list[str]:
    """Names of SB3's tensors beside the networks: SAC's entropy coefficient."""
    return model._get_torch_save_params()[1]


def buffer_bytes(buffer: Any) -> int:
    """Memory of a replay buffer that is full; until then the rest of it is only reserved."""
    rows = [getattr(buffer, name) for name in _BUFFER_ROWS if hasattr(buffer, name)]
    arrays = [array for row in rows for array in (row.values() if isinstance(row, dict) else [row])]
    return sum(array.nbytes for array in arrays)


def _buffer_state(buffer: Any) -> dict[str, Any] | None:
    """The filled part of a replay buffer; for hindsight replay also where its episodes begin and how long they are."""
    if buffer is None:
        return None
    size = buffer.size()
    rows = {name: getattr(buffer, name) for name in _BUFFER_ROWS if hasattr(buffer, name)}
    return {
        "pos": buffer.pos,
        "full": buffer.full,
        "rows": {name: _first(array, size) for name, array in rows.items()},
        "episode_start": _to_torch(getattr(buffer, "_current_ep_start", None)),
    }


def _set_buffer_state(buffer: Any, state: dict[str, Any]) -> None:
    buffer.pos, buffer.full = state["pos"], state["full"]
    for name, saved in state["rows"].items():
        target = getattr(buffer, name)
        for key, values in saved.items() if isinstance(saved, dict) else [(..., saved)]:
            array = target[key]
            array[: len(values)] = values.numpy()
    if state["episode_start"] is not None:
        buffer._current_ep_start = _to_numpy(state["episode_start"])


def _first(array: Any, size: int) -> Any:
    if isinstance(array, dict):
        return {key: torch.from_numpy(value[:size]) for key, value in array.items()}
    return torch.from_numpy(array[:size])


def _random_state(model: Any) -> dict[str, Any]:
    """Batches and noise are drawn from numpy, warm-up actions from the action space."""
    _, keys, position, has_gauss, gauss = np.random.get_state()
    return {
        "keys": torch.from_numpy(np.asarray(keys).astype(np.int64)),
        "numbers": [int(position), int(has_gauss), float(gauss)],
        "action_space": json.dumps(model.action_space.np_random.bit_generator.state),
    }


def _set_random_state(model: Any, state: dict[str, Any]) -> None:
    np.random.set_state(("MT19937", state["keys"].numpy().astype(np.uint32), *state["numbers"]))
    model.action_space.np_random.bit_generator.state = json.loads(state["action_space"])


def _to_torch(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: torch.from_numpy(array) for name, array in value.items()}
    return None if value is None else torch.from_numpy(value)


def _to_numpy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: tensor.numpy() for name, tensor in value.items()}
    return None if value is None else value.numpy()
