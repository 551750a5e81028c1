"""The options of the world: what the task sets, else what the models that come in say, else the defaults here."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import mujoco

from genelab.errors import ConfigError
from genelab.sim.cfg import SimulationCfg

Source = Literal["task", "model", "default"]

_ORDER = (
    *("timestep", "impratio", "tolerance", "ls_tolerance", "noslip_tolerance", "ccd_tolerance", "sleep_tolerance"),
    *("gravity", "wind", "magnetic", "density", "viscosity", "o_margin", "o_solref", "o_solimp", "o_friction"),
    *("integrator", "cone", "jacobian", "solver", "iterations", "ls_iterations", "noslip_iterations"),
    *("ccd_iterations", "disableflags", "enableflags", "disableactuator", "sdf_initpoints", "sdf_iterations"),
)
"""MuJoCo's options; one bit for each, in this order, says whether a file sets it."""
_FLAGS = ("disableflags", "enableflags", "disableactuator")
"""Masks: what one model switches, is switched for all."""
_OURS = ("timestep", "jacobian", *_FLAGS)
"""What is not a matter between task and models."""
_SETTINGS = {
    **{name: f"env.simulation.{name}" for name in ("gravity", "wind", "density", "viscosity")},
    **{
        name: f"env.simulation.solver.{name}"
        for name in ("integrator", "iterations", "ls_iterations", "tolerance", "cone", "impratio")
    },
}
"""Where the task may set an option."""
DEFAULTS: Mapping[str, Any] = {"integrator": "implicitfast"}
"""What is otherwise than in MuJoCo where nobody says anything."""
_NAMES: Mapping[str, Mapping[str, Any]] = {
    "integrator": {
        "euler": mujoco.mjtIntegrator.mjINT_EULER,
        "rk4": mujoco.mjtIntegrator.mjINT_RK4,
        "implicit": mujoco.mjtIntegrator.mjINT_IMPLICIT,
        "implicitfast": mujoco.mjtIntegrator.mjINT_IMPLICITFAST,
    },
    "cone": {"pyramidal": mujoco.mjtCone.mjCONE_PYRAMIDAL, "elliptic": mujoco.mjtCone.mjCONE_ELLIPTIC},
    "solver": {
        "PGS": mujoco.mjtSolver.mjSOL_PGS,
        "CG": mujoco.mjtSolver.mjSOL_CG,
        "Newton": mujoco.mjtSolver.mjSOL_NEWTON,
    },
}


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of the world and who decided it."""

    value: Any
    """A number, a tuple of numbers, or a name."""
    source: Source


def resolve_options(cfg: SimulationCfg, models: Mapping[str, mujoco.MjSpec]) -> dict[str, Option]:
    """The options of a world with these models in it, by their names in MJCF; two that disagree are refused."""
    plain = _values(mujoco.MjSpec())
    said = {name: said_by(model) for name, model in models.items()}
    options = {"timestep": Option(value=cfg.dt, source="task")}
    for name in (name for name in _ORDER if name not in _OURS):
        path = _SETTINGS.get(name, "")
        set_here = _of_task(cfg, path) if path else None
        if set_here is not None:
            options[name] = Option(value=set_here, source="task")
            continue
        sayers = [entity for entity, values in said.items() if name in values]
        _refuse_conflict(name, path, sayers, [said[entity][name] for entity in sayers])
        if sayers:
            options[name] = Option(value=said[sayers[0]][name], source="model")
        else:
            options[name] = Option(value=DEFAULTS.get(name, plain[name]), source="default")
    return options


def said_by(model: mujoco.MjSpec) -> dict[str, Any]:
    """The options that a model sets, in its file or by hand, as far as the world takes them over."""
    plain, values = _values(mujoco.MjSpec()), _values(model)
    in_file = {name for i, name in enumerate(_ORDER) if model.authored.option & 1 << i}
    return {name: values[name] for name in values if name in in_file or values[name] != plain[name]}


def apply_options(cfg: SimulationCfg, spec: mujoco.MjSpec) -> None:
    """Make a world of one model: what the task does not set is as the model itself says."""
    write_options(resolve_options(cfg, {"the world": spec}), spec)


def write_options(options: Mapping[str, Option], spec: mujoco.MjSpec, models: Iterable[mujoco.MjSpec] = ()) -> None:
    """Write resolved options, and the flags of all models, into the world's MJCF: it says all there is to say."""
    for name, option in options.items():
        value = _NAMES[name][option.value] if isinstance(option.value, str) else option.value
        setattr(spec.option, name, list(value) if isinstance(value, tuple) else value)
    for name, model in itertools.product(_FLAGS, models):
        setattr(spec.option, name, getattr(spec.option, name) | getattr(model.option, name))
    # MuJoCo 4.0.0 factors the Hessian of its solver wrongly where the Jacobian is sparse, as `auto` has it above 60
    # degrees of freedom.
    spec.option.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    # A diverged state must stay visible: MuJoCo would otherwise reset it silently in the middle of an episode.
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET


def _values(spec: mujoco.MjSpec) -> dict[str, Any]:
    values = {}
    for name in (name for name in _ORDER if name not in _OURS):
        value = getattr(spec.option, name)
        if name in _NAMES:
            value = next(word for word, code in _NAMES[name].items() if code == value)
        values[name] = tuple(value.tolist()) if hasattr(value, "tolist") else value
    return values


def _of_task(cfg: SimulationCfg, path: str) -> Any:
    name = path.rsplit(".", 1)[1]
    return getattr(cfg.solver if ".solver." in path else cfg, name)


def _refuse_conflict(name: str, path: str, entities: list[str], values: list[Any]) -> None:
    for entity, value in zip(entities, values, strict=True):
        if value != values[0]:
            what = f"the models of {entities[0]!r} and {entity!r} disagree on {name}: {values[0]} and {value}"
            raise ConfigError(f"{what}. " + (f"Set {path}" if path else f"Give both the same <option {name}>"))
