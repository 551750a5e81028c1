"""The world as files that load anywhere: its MJCF, and what that refers to beside it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path, PurePosixPath

import mujoco

WORLD = "world.xml"
_FILES = ("file", "fileright", "fileleft", "fileup", "filedown", "filefront", "fileback")


def pack(spec: mujoco.MjSpec) -> dict[str, bytes]:
    """The MJCF and the files of meshes and textures, by their names beside it."""
    root = ET.fromstring(spec.to_xml())
    given = spec.assets
    names: dict[str, str] = {}
    files: dict[str, bytes] = {}
    for part in root.iterfind("asset/*"):
        for attribute in _FILES:
            source = part.get(attribute)
            if source is None:
                continue
            if source not in names:
                names[source] = _free_name(f"assets/{PurePosixPath(source).name}", files)
                files[names[source]] = given[source] if source in given else Path(source).read_bytes()
            part.set(attribute, names[source])
    ET.indent(root)
    return {WORLD: ET.tostring(root), **files}


def _free_name(wanted: str, taken: dict[str, bytes]) -> str:
    path, i = PurePosixPath(wanted), 1
    while str(path) in taken:
        path, i = PurePosixPath(wanted).with_stem(f"{PurePosixPath(wanted).stem}_{i}"), i + 1
    return str(path)
