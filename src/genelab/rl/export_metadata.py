"""What a deployer has to know of an exported policy: how to make its input, and what its output means."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import inspect
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from genelab import math as gm
from genelab.envs import ManagerBasedRlEnv
from genelab.managers import ActionTerm, CommandTerm, Meaning, TermCfg, TerminationTermCfg
from genelab.managers.observations import ObservationGroup, TermLayout
from genelab.rl.backends.base import Actor
from genelab.rl.provenance import versions
from genelab.scene import Articulation

LAYOUT = "terms side by side in a frame; frames one after the other, the oldest first"


PROVENANCE = (
    "task",
    "checkpoint",
    "checkpoint_sha256",
    "backend",
    "algorithm",
    "action_range",
    "learned_normalizer",
    "is_recurrent",
    "recurrent",
    "stage",
    "engine",
    "exported_at",
    "torch_version",
    "versions",
)
"""What an exported policy's metadata say of its making; all else is told by the environment."""


def describe(env: ManagerBasedRlEnv, actor: Actor, *, task: str, backend: str, checkpoint: Path) -> dict[str, Any]:
    """All of the metadata that does not depend on the format."""
    making = {
        "task": task,
        "checkpoint": str(checkpoint),
        "checkpoint_sha256": hashlib.sha256(checkpoint.read_bytes()).hexdigest(),
        "backend": backend,
        "algorithm": actor.algorithm,
        "action_range": actor.action_range,
        "learned_normalizer": actor.normalizes,
        "is_recurrent": actor.memory is not None,
        **_recurrent(actor),
        "stage": env.commands.stage(),
        "engine": env.scene.engine.name,
        "exported_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "torch_version": torch.__version__,
        "versions": versions(),
    }
    return _plain({**making, **_of_env(env, actor.groups)})


def describe_again(env: ManagerBasedRlEnv, about: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of an exported policy that fits the environment, as they would be told today."""
    making = {key: about[key] for key in PROVENANCE if key in about}
    return _plain({**making, **_of_env(env, tuple(about["obs_groups"]))})


def _of_env(env: ManagerBasedRlEnv, names: Sequence[str]) -> dict[str, Any]:
    """What goes in and out, and what that is to the robot."""
    groups = [env.observation_manager.groups[name] for name in names]
    entities = dict.fromkeys(term.cfg.entity for term in env.action_manager.terms.values())
    return {
        "obs_dim": sum(group.dim for group in groups),
        "obs_groups": _groups(groups),
        "obs_layout": LAYOUT,
        "action_dim": env.action_dim,
        "normalization_baked": True,
        "actions": describe_actions(env.action_manager.terms.values()),
        "entities": {name: _entity(env.scene.articulation(name)) for name in entities},
        "commands": {name: _command(term) for name, term in env.commands.terms.items()},
        "start": _start(env),
        "ends": _terms(env.cfg.terminations),
        "episode_length_s": env.max_episode_length * env.step_dt,
        "step_dt": env.step_dt,
        "physics_dt": env.physics_dt,
        "decimation": env.cfg.decimation,
    }


def as_text(metadata: Mapping[str, Any]) -> str:
    """As JSON that a person can read: a list of plain values stands in one line."""
    text = json.dumps(metadata, indent=2, allow_nan=False, ensure_ascii=False)
    lists = re.compile(r"\[\n([^\[\]{}]*)\n *\]")
    return lists.sub(lambda found: "[" + re.sub(r"\n *", " ", found[1]).strip() + "]", text) + "\n"


def _groups(groups: Iterable[ObservationGroup]) -> dict[str, Any]:
    described, start = {}, 0
    for group in groups:
        described[group.name] = {
            "start": start,
            "dim": group.dim,
            "history_length": group.cfg.history_length,
            "frame_dim": group.frame_dim,
            "terms": [_observation(group, term) for term in group.layout],
        }
        start += group.dim
    return described


def _observation(group: ObservationGroup, term: TermLayout) -> dict[str, Any]:
    """Where a term lies, what is done to it in the file, and what it is."""
    cfg, told = group.cfgs[term.name], group.terms[term.name].meaning()
    return {
        "name": term.name,
        "dim": term.dim,
        "start": term.start,
        "scale": term.scale,
        "clip": term.clip,
        "delay": cfg.delay,
        "function": getattr(cfg.func, "__name__", str(cfg.func)),
        **_meaning(told),
        "source": told.source or None,
    }


def _meaning(told: Meaning) -> dict[str, Any]:
    """Units, frame, names and formula of columns; null where a term does not tell."""
    return {
        "unit": told.unit or None,
        "frame": told.frame or None,
        "columns": told.columns or None,
        "formula": told.formula or None,
    }


def _command(term: CommandTerm) -> dict[str, Any]:
    """What is asked for, its columns, and from where it was drawn at last."""
    told = {key: value for key, value in _meaning(term.meaning()).items() if value is not None}
    kind = {"dim": term.command.shape[1], "type": type(term).__name__}
    goal = {} if term.goal_radius is None else {"goal_radius": term.goal_radius}
    return {**kind, **told, **goal, "ranges": term.ranges, **term.metadata()}


def _start(env: ManagerBasedRlEnv) -> dict[str, Any]:
    """Where an episode begins: the default state of everything that moves, and what changes it at a reset."""
    ground = env.scene.terrain
    return {
        "entities": {
            name: {
                "root_pos": None if entity.is_fixed_base else gm.decimals(entity.default_root_pose[0, :3]),
                "root_quat": None if entity.is_fixed_base else gm.decimals(entity.default_root_pose[0, 3:]),
                "joint_names": entity.joint_names,
                "joint_pos": gm.decimals(entity.default_joint_pos[0]) if entity.joint_names else [],
                "joint_vel": gm.decimals(entity.default_joint_vel[0]) if entity.joint_names else [],
            }
            for name, entity in env.scene.entities.items()
        },
        "origin": [0.0, 0.0, 0.0] if ground is None or ground.is_plane else gm.decimals(env.scene.env_origins[0]),
        "events": _terms({name: term for name, term in env.cfg.events.items() if term.mode == "reset"}),
    }


def _terms(cfgs: Mapping[str, TermCfg | None]) -> list[dict[str, Any]]:
    """Terms as they are configured: functions by name, with what they mean in words."""
    return [
        {
            "name": name,
            "function": getattr(cfg.func, "__name__", str(cfg.func)),
            "formula": first_paragraph(cfg.func),
            "params": cfg.params,
            **({"time_out": cfg.time_out} if isinstance(cfg, TerminationTermCfg) else {}),
        }
        for name, cfg in cfgs.items()
        if cfg is not None
    ]


def first_paragraph(thing: Any) -> str:
    """What a function or class says of itself, in one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


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
            "onnx_inputs": ["obs", *(f"{state}_in" for state in _states(actor))],
            "onnx_outputs": ["actions", *(f"{state}_out" for state in _states(actor))],
        }
    }


def _states(actor: Actor) -> str:
    return "" if actor.memory is None else {"lstm": "hc", "gru": "h"}[actor.memory.rnn_type]


def describe_actions(terms: Iterable[ActionTerm]) -> list[dict[str, Any]]:
    """What the columns of the action are, and what is done with them."""
    described, start = [], 0
    for term in terms:
        entry = {"name": term.name, "type": type(term).__name__, "start": start, "dim": term.dim}
        entry |= {"entity": term.cfg.entity, "delay": term.cfg.delay, **_meaning(term.meaning())}
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
        "armature": robot.engine.model.dof_armature[robot.dof_ids.tolist()].tolist(),
        "frictionloss": robot.engine.model.dof_frictionloss[robot.dof_ids.tolist()].tolist(),
        "passive_damping": robot.engine.model.dof_damping[robot.dof_ids.tolist()].tolist(),
        "actuators": {name: type(actuator.cfg).__name__ for name, actuator in robot.actuators.items()},
        "drives": {
            name: {
                "type": type(actuator.cfg).__name__,
                "law": first_paragraph(type(actuator.cfg)),
                "joint_names": actuator.joint_names,
            }
            for name, actuator in robot.actuators.items()
        },
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
