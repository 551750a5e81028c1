"""A model on its way into the world: what it is alone, and whether it is still the same when it has come in.

Attaching a model to a world keeps its bodies and loses what its file says globally. Here that is written into the
bodies instead, or handed to the world, and in the end every number of the model is compared with what it was alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

import mujoco
import numpy as np

from genelab.errors import ConfigError, did_you_mean
from genelab.sim import ModelError, compile_spec

_KINDS = {
    "body": "bodies",
    "jnt": "joints",
    "geom": "geoms",
    "site": "sites",
    "tendon": "tendons",
    "eq": "equalities",
    "pair": "pairs",
    "actuator": "actuators",
}
"""Beginnings of the names of arrays in a compiled model, and the parts of a spec that they are about."""
_ELSEWHERE = ("id", "adr", "num", "parentid", "sameframe", "simple", "signature", "geom1", "geom2", "plugin", "user")
"""How names of arrays end that say where in the model something is, or that physics does not read."""
_DERIVED = ("body_invweight0", "body_subtreemass", "dof_invweight0", "dof_M0", "dof_length", "tendon_invweight0")
"""What follows from the rest and from who else is in the world."""
_OF_ACTUATORS = ("actuator_acc0", "actuator_length0", "actuator_lengthrange")
_PLACE = ("body_pos", "body_quat", "geom_pos", "geom_quat", "site_pos", "site_quat", "eq_data")
"""Changed by the pose in which a fixed entity is put into the world."""
_SIZES = (
    "nuserdata",
    *(f"nuser_{kind}" for kind in ("body", "jnt", "geom", "site", "cam", "tendon", "actuator", "sensor")),
)

Model = TypeVar("Model")
Exempt = Callable[[str, str], bool]
"""Whether the config changes an array of the part of this name on purpose."""


def mjcf_file(path: str) -> mujoco.MjSpec:
    """A model from an MJCF file; `urdf_file` reads URDF."""
    if Path(path).suffix.lower() == ".urdf":
        raise ModelError(f"{path} is URDF: read it with `urdf_file` instead of `mjcf_file`")
    if not Path(path).is_file():
        raise ModelError(f"no MJCF file at {path!r}")
    return parse(lambda: mujoco.MjSpec.from_file(path), path)


def mjcf_text(xml: str) -> mujoco.MjSpec:
    """A model from MJCF text."""
    return parse(lambda: mujoco.MjSpec.from_string(xml), "the MJCF text")


def parse(read: Callable[[], Model], where: str) -> Model:
    """What `read` gives, or one line that says why it is no model."""
    try:
        return read()
    except ValueError as error:
        raise ModelError(f"{where} is not a valid model: {' '.join(str(error).split())}") from error


class Incoming:
    """What a model is before it comes into the world."""

    def __init__(self, name: str, spec: mujoco.MjSpec) -> None:
        self._name = name
        self.spec = spec
        write_paths(spec)
        # What the compiler would do to the whole world because one file says so is done to this model here.
        for done, do in (("discardvisual", spec.discard_visual), ("fusestatic", spec.fuse_static)):
            if getattr(spec.compiler, done):
                parse(do, f"the model of {name!r}")
                setattr(spec.compiler, done, False)
        copy = spec.copy()
        self.alone = compile_spec(copy, f"the model of {name!r}")
        """The model compiled by itself."""
        self._ids = {kind: [part.id for part in getattr(copy, parts)] for kind, parts in _KINDS.items()}
        self._parts = {kind: list(getattr(spec, parts)) for kind, parts in _KINDS.items()}
        self._names = {kind: [part.name for part in parts] for kind, parts in self._parts.items()}
        self._kept = {kind: [True] * len(parts) for kind, parts in self._parts.items()}
        self._kept["body"][0] = False  # the world, which is everybody's
        if spec.compiler.settotalmass > 0:
            self._write_inertias()

    def _write_inertias(self) -> None:
        """Give every body the inertia that it has when the masses are scaled to their total."""
        compiler = self.spec.compiler
        compiler.settotalmass = -1
        compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_AUTO
        for body, i in zip(self._parts["body"], self._ids["body"], strict=True):
            if self.alone.body_mass[i] > 0:
                body.explicitinertial = True
                body.mass = self.alone.body_mass[i]
                body.fullinertia = [np.nan] * 6
                body.ipos, body.iquat, body.inertia = (
                    list(getattr(self.alone, f"body_{what}")[i]) for what in ("ipos", "iquat", "inertia")
                )

    def positions(self, keyframe: str | None) -> dict[str, list[float]]:
        """Positions of the joints by name, in a keyframe or as the model is compiled."""
        model, qpos = self.alone, self.alone.qpos0
        if keyframe is not None:
            names = [model.key(i).name for i in range(model.nkey)]
            if keyframe not in names:
                those = f"it has {', '.join(filter(None, names))}" if any(names) else "it has none"
                hint = did_you_mean(keyframe, names)
                raise ConfigError(f"the model of {self._name!r} has no keyframe {keyframe!r}; {those}.{hint}")
            qpos = model.key(keyframe).qpos
        return {
            name: qpos[_span(model, "qpos", i)].tolist()
            for name, i in zip(self._names["jnt"], self._ids["jnt"], strict=True)
        }

    def leave_out(self, actuators: Collection[int]) -> None:
        """Delete some of the model's actuators, by their places in its file."""
        for i in actuators:
            self.spec.delete(self._parts["actuator"][i])
            self._kept["actuator"][i] = False

    def attach_to(self, world: mujoco.MjSpec, frame: mujoco.MjsFrame) -> None:
        """Put the model into the world. Its global options are the world's from here on, and it has no keyframes."""
        spec, plain = self.spec, mujoco.MjSpec()
        for key in list(spec.keys):
            spec.delete(key)  # a keyframe is of the whole world, not of one thing in it
        spec.nkey = plain.nkey
        for size in _SIZES:
            setattr(world, size, max(getattr(world, size), getattr(spec, size)))
            setattr(spec, size, getattr(plain, size))
        for option in _fields(spec.option):
            setattr(spec.option, option, getattr(world.option, option))
        spec.visual = plain.visual
        for mask in _fields(spec.authored):
            setattr(spec.authored, mask, 0)
        world.attach(spec, prefix=f"{self._name}/", frame=frame)

    def compare(self, model: mujoco.MjModel, exempt: Exempt, moved: bool) -> None:
        """Refuse a world in which the model is another than it was alone; `moved`: fixed in another place."""
        for field, part, mine, here in self._differences(model, moved):
            if not exempt(field, part):
                what = f"{field} of {part!r} is {_text(mine)} alone and {_text(here)} in the world"
                raise ModelError(f"the model of {self._name!r} would change by coming into the world: {what}")

    def _differences(self, model: mujoco.MjModel, moved: bool) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
        for field in _compared(model):
            if moved and field in _PLACE:
                continue
            mine, here = getattr(self.alone, field), getattr(model, field)
            for kind, name, rows, their_rows in self._rows(field, model):
                if not np.allclose(mine[rows], here[their_rows], rtol=1e-9, atol=1e-12, equal_nan=True):
                    yield field, name or f"{kind} {rows.start}", mine[rows], here[their_rows]

    def _rows(self, field: str, model: mujoco.MjModel) -> Iterator[tuple[str, str, slice, slice]]:
        """Rows of an array for each part of the model: alone and in the world."""
        prefix = field.split("_")[0] if not field.startswith("qpos") else "qpos"
        kind = "jnt" if prefix in ("dof", "qpos") else prefix
        if not len(getattr(self.alone, field)):
            return
        for i, part in enumerate(self._parts[kind]):
            if self._kept[kind][i]:
                mine, here = self._ids[kind][i], part.id
                rows, their_rows = (_span(m, prefix, at) for m, at in ((self.alone, mine), (model, here)))
                yield kind, self._names[kind][i], rows, their_rows


def write_paths(spec: mujoco.MjSpec) -> None:
    """Name the files of meshes and textures by absolute paths: the world does not know the folder of this model."""
    home = Path(spec.modelfiledir)
    for parts, folder in (
        (spec.meshes, spec.compiler.meshdir),
        (spec.skins, spec.compiler.meshdir),
        (spec.hfields, spec.compiler.meshdir),
        (spec.textures, spec.compiler.texturedir),
    ):
        for part in parts:
            if part.file:
                part.file = _path_of(part.file, home / folder, spec)
            if getattr(part, "cubefiles", None) is not None:
                for i, name in enumerate(part.cubefiles):
                    if name:
                        part.cubefiles[i] = _path_of(name, home / folder, spec)


def _path_of(name: str, folder: Path, spec: mujoco.MjSpec) -> str:
    path = folder / (Path(name).name if spec.strippath else name)
    return str(path.resolve()) if path.is_file() else name


def _span(model: mujoco.MjModel, prefix: str, i: int) -> slice:
    if prefix not in ("dof", "qpos"):
        return slice(i, i + 1)
    starts, end = (model.jnt_dofadr, model.nv) if prefix == "dof" else (model.jnt_qposadr, model.nq)
    return slice(int(starts[i]), int(starts[i + 1]) if i + 1 < model.njnt else end)


def _compared(model: mujoco.MjModel) -> Iterator[str]:
    for field in _fields(model):
        prefix, _, rest = field.partition("_")
        ours = prefix in (*_KINDS, "dof") or field in ("qpos0", "qpos_spring")
        if ours and not rest.endswith(_ELSEWHERE) and field not in (*_DERIVED, *_OF_ACTUATORS):
            yield field


def _fields(thing: Any) -> list[str]:
    return [name for name in dir(thing) if not name.startswith("_") and not callable(getattr(thing, name))]


def _text(values: np.ndarray) -> str:
    flat = [f"{value:g}" for value in values.flatten().tolist()]
    return flat[0] if len(flat) == 1 else f"({' '.join(flat)})"
