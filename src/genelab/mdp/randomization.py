"""Domain randomisation: events that give environments models of their own.

Each draws anew from the model as it was written, so that running one again does not pile up. On both engines the
change is one of the compiled model: `engine.get_model_field` reads it back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import Tensor

from genelab import math as gm
from genelab.errors import ConfigError
from genelab.managers import ROBOT, Selection
from genelab.scene.names import match_names
from genelab.sim import EnvIds

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv

Func = TypeVar("Func", bound=Callable[..., Any])


def changes_model(func: Func) -> Func:
    """Marks an event that gives environments models of their own: play configs leave it out."""
    func.changes_model = True  # type: ignore[attr-defined]
    return func


@changes_model
def randomize_friction(
    env: ManagerBasedEnv,
    env_ids: EnvIds,
    friction_range: tuple[float, float],
    geoms: tuple[str, ...] = (".*",),
    shared: bool = True,
    asset: Selection = ROBOT,
) -> None:
    """Sliding friction of colliding geoms, by regular expression; one draw for all of them, or one each."""
    engine, prefix = env.scene.engine, f"{asset.entity.name}/"
    model = engine.model
    colliding = [i for i in range(model.ngeom) if model.geom_contype[i] or model.geom_conaffinity[i]]
    own = [i for i in colliding if model.geom(i).name.startswith(prefix)]
    chosen = match_names(geoms, [model.geom(i).name.removeprefix(prefix) for i in own], "geom")
    ids = torch.tensor([own[i] for i in chosen], device=env.device)
    values = _default(env, "geom_friction", ids, env_ids)
    values[..., 0] = _draw(env, friction_range, (len(values), 1 if shared else len(ids)))
    engine.set_model_field("geom_friction", values, ids, env_ids)


@changes_model
def randomize_mass(
    env: ManagerBasedEnv,
    env_ids: EnvIds,
    mass_range: tuple[float, float],
    operation: Literal["add", "scale"] = "add",
    asset: Selection = ROBOT,
) -> None:
    """Masses of bodies; the inertia goes with the mass."""
    engine, ids = env.scene.engine, asset.entity.body_ids[asset.body_ids]
    mass = _default(env, "body_mass", ids, env_ids)
    drawn = _draw(env, mass_range, tuple(mass.shape))
    changed = mass + drawn if operation == "add" else mass * drawn
    if (changed <= 0).any():
        raise ConfigError(f"a body would weigh nothing or less: mass_range {mass_range} is too wide")
    inertia = _default(env, "body_inertia", ids, env_ids)
    engine.set_model_field("body_mass", changed, ids, env_ids)
    engine.set_model_field("body_inertia", inertia * (changed / mass)[..., None], ids, env_ids)


@changes_model
def randomize_com(
    env: ManagerBasedEnv,
    env_ids: EnvIds,
    x: tuple[float, float],
    y: tuple[float, float],
    z: tuple[float, float],
    asset: Selection = ROBOT,
) -> None:
    """Centres of mass of bodies, moved along each axis of the body, m."""
    ids = asset.entity.body_ids[asset.body_ids]
    com = _default(env, "body_ipos", ids, env_ids)
    moves = [_draw(env, span, tuple(com.shape[:-1])) for span in (x, y, z)]
    env.scene.engine.set_model_field("body_ipos", com + torch.stack(moves, dim=-1), ids, env_ids)


@changes_model
def randomize_gains(
    env: ManagerBasedEnv,
    env_ids: EnvIds,
    stiffness_range: tuple[float, float],
    damping_range: tuple[float, float],
    asset: Selection = ROBOT,
) -> None:
    """Factors of the actuators' stiffness and damping, one draw per joint."""
    for actuator in asset.robot.actuators.values():
        stiffness, damping = actuator.default_gains()
        count = env.num_envs if env_ids is None else len(env_ids)
        shape = (count, len(actuator.joint_names))
        actuator.set_gains(
            stiffness * _draw(env, stiffness_range, shape).to(stiffness.dtype),
            damping * _draw(env, damping_range, shape).to(damping.dtype),
            env_ids,
        )


@changes_model
def randomize_encoder_bias(
    env: ManagerBasedEnv, env_ids: EnvIds, bias_range: tuple[float, float], asset: Selection = ROBOT
) -> None:
    """A constant error of each joint's encoder, rad: in what is seen, and in what the servo holds."""
    count = env.num_envs if env_ids is None else len(env_ids)
    bias = gm.uniform(*bias_range, (count, len(asset.robot.joint_names)), env.rng, env.dtype)
    asset.robot.write_encoder_bias(bias, env_ids)


def _default(env: ManagerBasedEnv, field: str, ids: Tensor, env_ids: EnvIds) -> Tensor:
    """A field as the model was written, a row for each environment."""
    count = env.num_envs if env_ids is None else len(env_ids)
    values = torch.as_tensor(getattr(env.scene.engine.model, field), device=env.device)[ids]
    return values.expand(count, *values.shape).clone()


def _draw(env: ManagerBasedEnv, span: tuple[float, float], shape: tuple[int, ...]) -> Tensor:
    return gm.uniform(*span, shape, env.rng, torch.float64)
