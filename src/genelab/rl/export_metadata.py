"""What a deployer has to know of an exported policy: how to make its input, and what its output means."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from genelab import math as gm
from genelab.envs import ManagerBasedRlEnv
from genelab.managers import ActionTerm
from genelab.managers.observations import ObservationGroup
from genelab.rl.backends.base import Actor
from genelab.rl.provenance import versions
from genelab.scene import Articulation

LAYOUT = "terms side by side in a frame; frames one after the other, the oldest first"


def describe(env: ManagerBasedRlEnv, actor: Actor, *, task: str, backend: str, checkpoint: Path) -> dict[str, Any]:
    """All of the metadata that does not depend on the format."""
    groups = [env.observation_manager.groups[name] for name in actor.groups]
    entities = dict.fromkeys(term.cfg.entity for term in env.action_manager.terms.values())
    description = {
        "task": task,
        "checkpoint": str(checkpoint),
        "checkpoint_sha256": hashlib.sha256(checkpoint.read_bytes()).hexdigest(),
        "backend": backend,
        "algorithm": actor.algorithm,
        "obs_dim": sum(group.dim for group in groups),
        "obs_groups": _groups(groups),
        "obs_layout": LAYOUT,
        "action_dim": env.action_dim,
        "action_range": actor.action_range,
        "normalization_baked": True,
        "learned_normalizer": actor.normalizes,
        "is_recurrent": actor.memory is not None,
        **_recurrent(actor),
        "actions": describe_actions(env.action_manager.terms.values()),
        "entities": {name: _entity(env.scene.articulation(name)) for name in entities},
        "commands": {
            name: {"dim": term.command.shape[1], **vars(term.cfg_in_force())}
            for name, term in env.commands.terms.items()
        },
        "stage": env.commands.stage(),
        "step_dt": env.step_dt,
        "physics_dt": env.physics_dt,
        "decimation": env.cfg.decimation,
        "engine": env.scene.engine.name,
        "exported_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "torch_version": torch.__version__,
        "versions": versions(),
    }
    return _plain(description)


def _groups(groups: Iterable[ObservationGroup]) -> dict[str, Any]:
    described, start = {}, 0
    for group in groups:
        described[group.name] = {
            "start": start,
            "dim": group.dim,
            "history_length": group.cfg.history_length,
            "frame_dim": group.frame_dim,
            "terms": [
                {"name": term.name, "dim": term.dim, "start": term.start, "scale": term.scale, "clip": term.clip}
                for term in group.layout
            ],
        }
        start += group.dim
    return described


def _recurrent(actor: Actor) -> dict[str, Any]:
    memory = actor.memory
    if memory is None:
        return {}
    return {
        "recurrent": {
            "rnn_type": memory.rnn_type,
            "rnn_num_layers": memory.num_layers,
            "rnn_hidden_dim": memory.hidden_dim,
            "hidden_state_shape": [memory.num_layers, 1, memory.hidden_dim],
            "onnx_inputs": input_names(actor),
            "onnx_outputs": output_names(actor),
        }
    }


def input_names(actor: Actor) -> list[str]:
    """Ports that an ONNX graph takes."""
    return ["obs", *(f"{state}_in" for state in _states(actor))]


def output_names(actor: Actor) -> list[str]:
    """Ports that an ONNX graph gives."""
    return ["actions", *(f"{state}_out" for state in _states(actor))]


def _states(actor: Actor) -> str:
    return "" if actor.memory is None else {"lstm": "hc", "gru": "h"}[actor.memory.rnn_type]


def describe_actions(terms: Iterable[ActionTerm]) -> list[dict[str, Any]]:
    """What the columns of the action are, and what is done with them."""
    described, start = [], 0
    for term in terms:
        entry = {"name": term.name, "type": type(term).__name__, "start": start, "dim": term.dim}
        entry |= {"entity": term.cfg.entity, "delay": term.cfg.delay}
        described.append(entry | term.metadata())
        start += term.dim
    return described


def _entity(robot: Articulation) -> dict[str, Any]:
    """Joints in the order that observations have them, and what drives them as it was configured."""
    drives: dict[int, dict[str, float]] = {}
    for actuator in robot.actuators.values():
        columns = actuator.drive()
        for k, joint in enumerate(actuator.joint_ids):
            drives[joint] = {key: column[k] for key, column in columns.items()}
    joints = range(len(robot.joint_names))
    keys = dict.fromkeys(("stiffness", "damping", "effort_limit", *(key for drive in drives.values() for key in drive)))
    return {
        "joint_names": robot.joint_names,
        "default_joint_pos": gm.decimals(robot.default_joint_pos[0]),
        "joint_pos_limits": [gm.decimals(pair) for pair in robot.joint_pos_limits[0]],
        **{key: [drives.get(i, {}).get(key) for i in joints] for key in keys},
        "actuators": {name: type(actuator.cfg).__name__ for name, actuator in robot.actuators.items()},
    }


def _plain(value: Any) -> Any:
    """As JSON has it, which has no infinities: where there is no bound, there is None."""
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return (
        value
        if value is None or isinstance(value, str | bool | int | float)
        else getattr(value, "__name__", str(value))
    )
