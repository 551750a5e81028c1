"""The world as files that load anywhere: its MJCF, and what that refers to beside it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import mujoco

from genelab.errors import UsageError
from genelab.scene.sources import is_asset, read_asset

WORLD = "world.xml"
FILE_ATTRIBUTES = ("file", "fileright", "fileleft", "fileup", "filedown", "filefront", "fileback")
"""Attributes of MJCF that name a file."""
_FOLDERS = ("meshdir", "texturedir", "assetdir", "strippath")


def pack(spec: mujoco.MjSpec, allowed: Sequence[Path]) -> dict[str, bytes]:
    """Return the MJCF of a spec and the files of its meshes and textures, by their names beside it.

    Args:
        spec: The model. Its files are named by absolute paths, or are given as bytes.
        allowed: The folders whose files may be copied: the models' own (`scene.model_dirs`), and those that the user
            allows.

    Raises:
        UsageError: If a file lies elsewhere, or is no mesh, texture, height field or skin.
    """
    root = ET.fromstring(spec.to_xml())
    for compiler in root.iter("compiler"):
        for attribute in _FOLDERS:
            compiler.attrib.pop(attribute, None)
    given = spec.assets
    names: dict[str, str] = {}
    files: dict[str, bytes] = {}
    for part in root.iter():  # meshes and textures are in <asset>, skins in <deformable>
        for attribute in FILE_ATTRIBUTES:
            source = part.get(attribute)
            if source is None:
                continue
            if source not in names:
                names[source] = free_name(f"assets/{PurePosixPath(source).name}", files)
                files[names[source]] = _content(source, given, allowed)
            part.set(attribute, names[source])
    ET.indent(root)
    return {WORLD: ET.tostring(root), **files}


def _content(source: str, given: dict[str, bytes], allowed: Sequence[Path]) -> bytes:
    if source not in given:
        return read_asset(Path(source), allowed, "the model")
    if not is_asset(given[source]):
        raise UsageError(f"the model: {source} is no mesh, texture or height field, and is not copied")
    return given[source]


def free_name(wanted: str, taken: dict[str, bytes]) -> str:
    """Return a path that is not taken: the wanted one, or one with a number."""
    path, i = PurePosixPath(wanted), 1
    while str(path) in taken:
        path, i = PurePosixPath(wanted).with_stem(f"{PurePosixPath(wanted).stem}_{i}"), i + 1
    return str(path)
