"""Observations: functions of the environment that return `(num_envs, d)`, each with what its columns are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from genelab import math as gm
from genelab.errors import ConfigError
from genelab.managers import ROBOT, XYZ, Meaning, Selection, observation
from genelab.mdp.sensors import get_sensor
from genelab.scene import AXIAL, POLAR, SAME, ContactSensor, FrameSensor, HeightScan, Image, PointsSensor
from genelab.scene.mirror import of_joints, of_names

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv


def _per_joint(kind: str, hinge: str, slide: str) -> Callable[..., Meaning]:
    """A column for each joint of a selection, in a unit by its kind: less what it is by default."""

    def meaning(asset: Selection) -> Meaning:
        robot, joints = asset.entity, asset.joints
        default = robot.default_joint_pos if kind == "joint_pos" else robot.default_joint_vel
        names = [robot.joint_names[i] for i in joints]
        return Meaning(
            unit=tuple(hinge if robot.joint_is_hinge[i] else slide for i in joints),
            columns=tuple(names),
            source={"kind": kind, "entity": robot.name, "joints": names, "minus": gm.decimals(default[0, joints])},
            mirror=partial(of_joints, robot, joints),
        )

    return meaning


def _of_root(kind: str, unit: str, mirror: Image) -> Callable[..., Meaning]:
    """A vector in the root's frame."""

    def meaning(asset: Selection) -> Meaning:
        body = f"{asset.entity.name}/{asset.entity.body_names[0]}"
        return Meaning(unit=unit, frame="root", columns=XYZ, source={"kind": kind, "body": body}, mirror=mirror)

    return meaning


def _per_body(
    kind: type[ContactSensor] | type[PointsSensor], unit: str, frame: str = "", each: Image = SAME
) -> Callable[..., Meaning]:
    """The same columns for each body of a sensor: one, or a vector's."""

    def meaning(env: ManagerBasedEnv, sensor: str) -> Meaning:
        read = get_sensor(env, sensor, kind)
        names = read.body_names
        vector = [f"{name} {axis}" for name in names for axis in XYZ]
        sides = env.scene[read.cfg.entity].cfg.sides
        return Meaning(
            unit=unit,
            frame=frame,
            columns=tuple(vector if each is not SAME else names),
            mirror=partial(of_names, names, sides, each),
        )

    return meaning


def _actions(env: ManagerBasedEnv) -> Meaning:
    return replace(env.action_manager.meaning(), source={"kind": "last_action"})


def _commanded(env: ManagerBasedRlEnv, command: str) -> Meaning:
    return replace(env.commands.term(command).meaning(), source={"kind": "command", "command": command})


def _scanned(env: ManagerBasedEnv, sensor: str, offset: float) -> Meaning:
    scan = get_sensor(env, sensor, HeightScan)
    points = torch.arange(scan.num_points).view(scan.shape).flip(0).flatten()
    image = Image(tuple(points.tolist()), SAME.signs * scan.num_points)
    source = {
        "kind": "height_scan",
        **_frame(scan),
        "points": [[float(number) for number in name.split()] for name in scan.point_names],
        "max_distance": scan.cfg.max_distance,
        "minus": offset,
    }
    return Meaning(unit="m", columns=scan.point_names, source=source, mirror=image)


def _frame(sensor: FrameSensor) -> dict[str, Any]:
    """Which frame a sensor measures in."""
    cfg = sensor.cfg
    return {"body": f"{cfg.entity}/{cfg.body}", "pos": cfg.pos, "rot": cfg.rot}


def _wheels(asset: Selection) -> Meaning:
    """The mirror turns all wheels the same way, or all the other way."""

    def image() -> Image:
        signs = set(of_joints(asset.entity, asset.joints).signs)
        if len(signs) > 1:
            raise ConfigError(f"the wheels of {asset.entity.name!r} do not all turn the same way in the mirror")
        return Image((0, 1), (*signs, 1.0))

    names = [asset.entity.joint_names[i] for i in asset.joints]
    source = {"kind": "mean_sine_cosine", "entity": asset.entity.name, "joints": names}
    return Meaning(unit="1", columns=("sine", "cosine"), source=source, mirror=image)


def _gyroscope(env: ManagerBasedEnv, sensor: str) -> Meaning:
    source = {"kind": "ang_vel", **_frame(get_sensor(env, sensor, FrameSensor))}
    return Meaning(unit="rad/s", frame=sensor, columns=XYZ, source=source)


@observation(_per_joint("joint_pos", "rad", "m"))
def joint_pos_rel(env: ManagerBasedEnv, asset: Selection = ROBOT) -> Tensor:
    """Joint positions relative to the default pose."""
    return gm.take(asset.entity.joint_pos_rel, asset.joint_ids)


@observation(_per_joint("joint_vel", "rad/s", "m/s"))
def joint_vel_rel(env: ManagerBasedEnv, asset: Selection = ROBOT) -> Tensor:
    """Joint velocities relative to the default ones."""
    return gm.take(asset.entity.joint_vel_rel, asset.joint_ids)


@observation(_actions)
def last_action(env: ManagerBasedEnv) -> Tensor:
    """The action of the last control step."""
    return env.action_manager.action


@observation(_gyroscope)
def frame_ang_vel(env: ManagerBasedEnv, sensor: str) -> Tensor:
    """Angular velocity of a frame in itself, as a gyroscope has it."""
    return get_sensor(env, sensor, FrameSensor).ang_vel_b


@observation(_commanded)
def generated_command(env: ManagerBasedRlEnv, command: str) -> Tensor:
    """The command as it is."""
    return env.commands[command]


@observation(_of_root("lin_vel", "m/s", POLAR))
def base_lin_vel(env: ManagerBasedEnv, asset: Selection = ROBOT) -> Tensor:
    """Velocity of the root in its own frame: what no robot measures, for critics."""
    return asset.entity.root_lin_vel_b


@observation(_of_root("ang_vel", "rad/s", AXIAL))
def base_ang_vel(env: ManagerBasedEnv, asset: Selection = ROBOT) -> Tensor:
    """Angular velocity of the root in its own frame."""
    return asset.entity.root_ang_vel_b


@observation(_of_root("gravity", "1", POLAR))
def projected_gravity(env: ManagerBasedEnv, asset: Selection = ROBOT) -> Tensor:
    """The unit vector down, in the root's frame."""
    return asset.entity.projected_gravity_b


@observation(_per_joint("joint_pos", "rad", "m"))
def joint_pos_measured(env: ManagerBasedEnv, asset: Selection = ROBOT) -> Tensor:
    """Joint positions relative to the default pose, as encoders with a constant error read them."""
    robot = asset.robot
    measured = robot.joint_pos_rel + robot.encoder_bias if robot.has_encoder_bias else robot.joint_pos_rel
    return gm.take(measured, asset.joint_ids)


@observation(_wheels)
def wheel_angle(env: ManagerBasedEnv, asset: Selection = ROBOT) -> Tensor:
    """Mean sine and mean cosine of the angles of joints that turn without end, as their encoders read them: bounded,
    and the same after every turn."""
    robot = asset.robot
    angle = gm.take(robot.joint_pos, asset.joint_ids) + gm.take(robot.encoder_bias, asset.joint_ids)
    return torch.stack((angle.sin(), angle.cos()), dim=1).mean(dim=2)


@observation(_scanned)
def height_scan(env: ManagerBasedEnv, sensor: str, offset: float = 0.0) -> Tensor:
    """How far the ground lies below a frame at each point of a scan, less an offset."""
    return get_sensor(env, sensor, HeightScan).distance - offset


@observation(_per_body(PointsSensor, "m"))
def foot_height(env: ManagerBasedEnv, sensor: str) -> Tensor:
    """Heights of the feet above the ground."""
    return get_sensor(env, sensor, PointsSensor).height


@observation(_per_body(ContactSensor, "s"))
def foot_air_time(env: ManagerBasedEnv, sensor: str) -> Tensor:
    """How long each foot has been in the air, s."""
    return get_sensor(env, sensor, ContactSensor).air_time


@observation(_per_body(ContactSensor, "1"))
def foot_contact(env: ManagerBasedEnv, sensor: str) -> Tensor:
    """1 for each foot on the ground."""
    return get_sensor(env, sensor, ContactSensor).touching.to(env.dtype)


@observation(_per_body(ContactSensor, "ln(1 + N)", "world", POLAR))
def foot_contact_forces(env: ManagerBasedEnv, sensor: str) -> Tensor:
    """Forces on the feet on a logarithmic scale that keeps their sign, `(N, 3 · feet)`."""
    force = get_sensor(env, sensor, ContactSensor).force_w.flatten(1)
    return force.sign() * torch.log1p(force.abs())
