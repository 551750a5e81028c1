"""The files of a robot's model that go into a project: the model, and what it refers to below its own folder."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path, PurePosixPath

import mujoco

from genelab.errors import UsageError
from genelab.scene import mjcf_file
from genelab.scene.incoming import write_paths
from genelab.scene.pack import FILE_ATTRIBUTES, WORLD, free_name, pack
from genelab.scene.sources import check_inside, parse_xml, read_asset
from genelab.scene.urdf import find_meshes, read_urdf, urdf_home
from genelab.sim import ModelError

_TEXTS = ("include", "model")
"""Elements that name a file of MJCF."""


def check_sources(model: Path, assets: Sequence[Path] = ()) -> None:
    """Refuse a model that refers to files outside of its folder, before anything reads them.

    Args:
        model: MJCF or URDF.
        assets: Folders besides the model's own that are allowed.
    """
    if model.suffix.lower() == ".urdf":
        for _, path in find_meshes(read_urdf(model), model.absolute().parent, {})[0]:
            check_inside(path, [urdf_home(model), *assets], model.name)
    else:
        _Mjcf(model, assets)


def model_files(model: Path, assets: Sequence[Path] = ()) -> dict[str, bytes]:
    """Return the model and what it refers to, by paths that load from another folder.

    The MJCF itself is copied as it is, unless something lies in one of the `assets`: then MuJoCo writes it anew.
    """
    if model.suffix.lower() == ".urdf":
        return _urdf_files(model, [urdf_home(model), *assets])
    sources = _Mjcf(model, assets)
    spec = mjcf_file(str(sources.model))
    found = sources.assets | _assets(spec, sources.home)
    for path in found:
        check_inside(path, sources.allowed, model.name)
    names = {path: _name_below(path, sources.home) for path in (*sources.texts, *sorted(found))}
    if sources.has_absolute or None in names.values():
        write_paths(spec)
        spec.compile()  # MuJoCo writes only what was compiled
        packed = pack(spec, sources.allowed)
        return {model.name: packed.pop(WORLD), **packed}
    content = {path: sources.read(path) for path in sorted(found)}
    return {str(names[path]): data for path, data in {**sources.texts, **content}.items()}


def _urdf_files(model: Path, allowed: Sequence[Path]) -> dict[str, bytes]:
    robot, files = read_urdf(model), dict[str, bytes]()
    names: dict[Path, str] = {}
    for mesh, path in find_meshes(robot, model.absolute().parent, {})[0]:
        if path not in names:
            names[path] = free_name(f"meshes/{path.parent.name}_{path.name}", files)
            files[names[path]] = read_asset(path, allowed, model.name)
        mesh.set("filename", names[path])
    return {model.name: ET.tostring(robot), **files}


class _Mjcf:
    """The files that an MJCF file names, found before MuJoCo opens one of them.

    Where MuJoCo looks depends on folders that any of the files may set, so every place where it could look is
    checked.
    """

    def __init__(self, model: Path, assets: Sequence[Path]) -> None:
        self.model = model.parent.resolve() / model.name  # the file itself may be a link, as in a cache of the Hub
        self.home = self.model.parent
        self.allowed = [self.home, *assets]
        self.has_absolute = False
        """Whether a file is named by an absolute path, which must not go into a project."""
        self.texts: dict[Path, bytes] = {}
        """The model, what it includes, and models that it attaches."""
        self.assets: set[Path] = set()
        """Meshes, textures, height fields and skins that are there."""
        roots = self._read_texts()
        folders = {""} | {
            part.get(name, "")
            for root in roots.values()
            for part in root.iter("compiler")
            for name in ("meshdir", "texturedir", "assetdir")
        }
        for here, root in roots.items():
            for part in root.iter():
                for attribute in FILE_ATTRIBUTES:
                    if part.tag not in _TEXTS and (name := part.get(attribute)):
                        self.assets.update(self._existing(name, here, folders))

    def read(self, path: Path) -> bytes:
        """Return the content of an asset."""
        return read_asset(path, self.allowed, self.model.name)

    def _read_texts(self) -> dict[Path, ET.Element]:
        roots: dict[Path, ET.Element] = {}
        pending, seen = [self.model], set[str]()
        while pending:
            path = pending.pop()
            if os.path.realpath(path) in seen:
                continue
            seen.add(os.path.realpath(path))
            try:
                self.texts[path] = path.read_bytes()
            except OSError as error:
                raise UsageError(f"{self.model.name}: cannot read {path}: {error.strerror}") from error
            roots[path] = parse_xml(self.texts[path], path)
            if path == self.model and roots[path].tag != "mujoco":
                as_urdf = ": a URDF must be called *.urdf" if roots[path].tag == "robot" else ""
                raise ModelError(f"{path} is no MJCF: its root is <{roots[path].tag}>, not <mujoco>{as_urdf}")
            for part in roots[path].iter():
                if part.tag in _TEXTS and (name := part.get("file")):
                    pending += self._existing(name, path, {""})
        return roots

    def _existing(self, name: str, here: Path, folders: set[str]) -> Iterator[Path]:
        """Yield the files that a name in the file `here` may mean, all of them in allowed folders."""
        lead = here.parent.relative_to(self.home) if here.is_relative_to(self.home) else Path()
        names = {name, _slashes(name), PurePosixPath(_slashes(name)).name}
        folders = {*folders, *map(_slashes, folders)}
        for base, folder, way, one in product({self.home, here.parent}, folders, {Path(), lead}, names):
            path = base / folder / way / one
            if path.exists() and not path.is_dir():
                check_inside(path, self.allowed, self.model.name)
                if not path.is_file():
                    raise UsageError(f"{self.model.name}: {path} is no regular file")
                self.has_absolute |= Path(folder, one).is_absolute()
                yield path


def _slashes(name: str) -> str:
    r"""Return a name as MuJoCo reads it: `..\a.stl` is `../a.stl`."""
    return name.replace("\\", "/")


def _name_below(path: Path, home: Path) -> str | None:
    """Return the path of a file below a folder, without `..`; None where there is none that leads to the same file."""
    plain = Path(os.path.normpath(path))
    is_same = plain.is_relative_to(home) and os.path.realpath(plain) == os.path.realpath(path)
    return plain.relative_to(home).as_posix() if is_same else None


def _assets(spec: mujoco.MjSpec, home: Path) -> set[Path]:
    """Return the files that MuJoCo takes a spec to refer to."""
    compiler = spec.compiler
    parts = [(part.file, compiler.meshdir) for part in (*spec.meshes, *spec.skins, *spec.hfields) if part.file]
    for texture in spec.textures:
        parts += [(name, compiler.texturedir) for name in (texture.file, *texture.cubefiles) if name]
    paths = (home / folder / (PurePosixPath(name).name if spec.strippath else name) for name, folder in parts)
    return {path for path in paths if path.is_file()}
