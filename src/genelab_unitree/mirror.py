"""The mirror image of what a walking robot sees and does: left and right exchanged.

In a mirror that lies along the robot, y changes its sign: so do velocities to the side and rotations about x and z, and
what the left leg does the right one does.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from genelab import mdp
from genelab.envs import ManagerBasedRlEnv
from genelab.errors import ConfigError
from genelab.managers import CommandTerm
from genelab.managers.observations import ObservationGroup
from genelab.mdp import GaitClock, VelocityCommand
from genelab.mdp.sensors import get_sensor
from genelab.scene import Articulation, ContactSensor, HeightScan, PointsSensor

_SIDES = (("left_", "right_"), ("FL_", "FR_"), ("RL_", "RR_"))
_POLAR = [1.0, -1.0, 1.0]
_AXIAL = [-1.0, 1.0, -1.0]

Image = tuple[list[int], list[float]]
"""Where each column comes from, and its sign."""
TensorImage = tuple[Tensor, Tensor]


_IMAGES: WeakKeyDictionary[ManagerBasedRlEnv, tuple[dict[str, TensorImage], TensorImage]] = WeakKeyDictionary()


def augment(env: Any, obs: Any, actions: Tensor | None) -> tuple[Any, Tensor | None]:
    """A batch with its mirror images below it, as rsl_rl's symmetry extension wants it."""
    of_groups, of_actions = _images(env.unwrapped)
    if obs is not None:
        mirrored = obs.clone()
        for name, (columns, signs) in of_groups.items():
            mirrored[name] = obs[name][:, columns] * signs
        obs = torch.cat([obs, mirrored])
    if actions is not None:
        columns, signs = of_actions
        actions = torch.cat([actions, actions[:, columns] * signs])
    return obs, actions


def _images(env: ManagerBasedRlEnv) -> tuple[dict[str, TensorImage], TensorImage]:
    """Of the observations by group, and of the actions."""
    if env not in _IMAGES:
        groups = env.observation_manager.groups
        of_groups = {name: _tensors(_group(group, env), env) for name, group in groups.items()}
        _IMAGES[env] = (of_groups, _tensors(_joints(env.robot), env))
    return _IMAGES[env]


def _tensors(image: Image, env: ManagerBasedRlEnv) -> TensorImage:
    """In 32 bits, as networks are, whatever the precision of the physics is."""
    columns, signs = image
    return torch.tensor(columns, device=env.device), torch.tensor(signs, device=env.device, dtype=torch.float32)


def _group(group: ObservationGroup, env: ManagerBasedRlEnv) -> Image:
    columns: list[int] = []
    signs: list[float] = []
    for frame in range(group.cfg.history_length):
        for term in group.layout:
            image, sign = _term(group, term.name, env)
            columns += [frame * group.frame_dim + term.start + i for i in image]
            signs += sign
    return columns, signs


def _term(group: ObservationGroup, name: str, env: ManagerBasedRlEnv) -> Image:
    cfg = group.cfgs[name]
    func: Any = cfg.func
    if func in (mdp.base_lin_vel, mdp.projected_gravity):
        return [0, 1, 2], _POLAR
    if func is mdp.base_ang_vel:
        return [0, 1, 2], _AXIAL
    if func is mdp.generated_command:
        return _command(env.commands.term(cfg.params["command"]))
    if func in (mdp.joint_pos_rel, mdp.joint_pos_measured, mdp.joint_vel_rel, mdp.last_action):
        return _joints(env.robot)
    if func is mdp.height_scan:
        scan = get_sensor(env, cfg.params["sensor"], HeightScan)
        points = torch.arange(scan.num_points).view(scan.shape)
        return points.flip(0).flatten().tolist(), [1.0] * points.numel()
    if func is mdp.foot_height:
        return _bodies(get_sensor(env, cfg.params["sensor"], PointsSensor).body_names, [1.0])
    if func in (mdp.foot_air_time, mdp.foot_contact):
        return _bodies(get_sensor(env, cfg.params["sensor"], ContactSensor).body_names, [1.0])
    if func is mdp.foot_contact_forces:
        return _bodies(get_sensor(env, cfg.params["sensor"], ContactSensor).body_names, _POLAR)
    raise ConfigError(f"the mirror image of the observation {name!r} is not known")


def _command(term: CommandTerm) -> Image:
    if isinstance(term, VelocityCommand):  # forward, left, turning
        return [0, 1, 2], [1.0, -1.0, -1.0]
    if isinstance(term, GaitClock):
        ahead = {(term.offsets[i] - term.offsets[j]).item() % 1.0 for i, j in enumerate(_feet(term.foot_names))}
        if ahead == {0.0}:
            return [0, 1], [1.0, 1.0]
        if ahead == {0.5}:  # what the left foot does, the right one does half a period later
            return [0, 1], [-1.0, -1.0]
    raise ConfigError(f"the mirror image of the command {term.name!r} is not known")


def _feet(names: list[str]) -> list[int]:
    return [names.index(_other_side(name)) for name in names]


def _joints(robot: Articulation) -> Image:
    """A hinge about y turns the same way in the mirror, one about x or z the other way."""
    names, model = robot.joint_names, robot.engine.model
    about_y = [abs(model.joint(f"{robot.name}/{name}").axis[1]) > 0.5 for name in names]
    return [names.index(_other_side(name)) for name in names], [1.0 if same else -1.0 for same in about_y]


def _bodies(names: list[str], signs: list[float]) -> Image:
    width = len(signs)
    columns = [foot * width + i for foot in _feet(names) for i in range(width)]
    return columns, signs * len(names)


def _other_side(name: str) -> str:
    for left, right in _SIDES:
        if name.startswith(left):
            return right + name.removeprefix(left)
        if name.startswith(right):
            return left + name.removeprefix(right)
    return name
