"""Robots from URDF: read by MuJoCo, after what it would drop or not find has been put right."""

from __future__ import annotations

import functools
import logging
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from pathlib import Path

import mujoco
import numpy as np

from genelab.errors import ConfigError
from genelab.scene.incoming import parse
from genelab.scene.sources import parse_xml
from genelab.sim import ModelError

_READABLE = (".stl", ".obj", ".msh")
"""Meshes that MuJoCo reads."""
_PLAIN = {"strippath": "false", "discardvisual": "false", "fusestatic": "false"}
"""What MuJoCo does otherwise with a URDF: look for meshes by their bare names, drop visuals, and fuse fixed links."""


def urdf_file(
    path: str,
    floating_base: bool = False,
    packages: Mapping[str, str] = {},
    compiler: Mapping[str, str] = {},
) -> mujoco.MjSpec:
    """A model from a URDF file: all links are bodies, visuals are kept, mimic joints are coupled.

    `floating_base` gives the root link a free joint instead of fixing it to the world. `packages` says where the
    packages of `package://` are; those not named are looked for above the file. `compiler` are attributes of MuJoCo's
    `<compiler>`, `{"balanceinertia": "true"}` for one.
    """
    file = Path(path)
    if not file.is_file():
        raise ModelError(f"no URDF file at {path!r}")
    robot = read_urdf(file)
    assets = _name_files(*find_meshes(robot, file.absolute().parent, packages))
    _set_base(robot, path, floating_base)
    _set_compiler(robot, compiler)
    if compiler.get("balanceinertia") == "true":
        _balance(robot)
    mimics = list(_mimics(robot, path))
    text = ET.tostring(robot, encoding="unicode")
    spec = parse(lambda: mujoco.MjSpec.from_string(text, assets=assets), path)
    spec.modelfiledir = str(urdf_home(file))
    for link in _weightless(robot, path):
        for geom in spec.body(link).geoms if spec.body(link) is not None else ():
            geom.mass = 0.0  # MuJoCo would weigh it
    for joint, master, factor, offset in mimics:
        couple = spec.add_equality(
            name=f"{joint}_mimic", type=mujoco.mjtEq.mjEQ_JOINT, objtype=mujoco.mjtObj.mjOBJ_JOINT
        )
        couple.name1, couple.name2 = joint, master
        couple.data = [offset, factor, 0.0, 0.0, 0.0, *[0.0] * (len(couple.data) - 5)]
    return spec


def read_urdf(file: Path) -> ET.Element:
    """Return the root of a URDF file."""
    robot = parse_xml(file.read_bytes(), file)
    if robot.tag != "robot":
        raise ModelError(f"{file} is no URDF: its root is <{robot.tag}>, not <robot>")
    return robot


def urdf_home(file: Path) -> Path:
    """Return the folder that a URDF's meshes may be copied from: its ROS package, or else where it is."""
    folder = file.absolute().parent
    return next((above for above in (folder, *folder.parents) if (above / "package.xml").is_file()), folder)


def find_meshes(
    robot: ET.Element, home: Path, packages: Mapping[str, str]
) -> tuple[list[tuple[ET.Element, Path]], dict[Path, bytes]]:
    """Return where every mesh is; a visual that cannot be read is left out, a collision shape must be there.

    Args:
        robot: Root of the URDF; shapes that are left out are removed from it.
        home: The folder of the URDF.
        packages: Where the packages of `package://` are.

    Returns:
        Each `<mesh>` with its file, and by file the STL that Collada was converted to.
    """
    left_out, files = list[str](), list[tuple[ET.Element, Path]]()
    converted: dict[Path, bytes] = {}
    for link in robot.iter("link"):
        for shape in [*link.findall("visual"), *link.findall("collision")]:
            mesh = shape.find("geometry/mesh")
            if mesh is None:
                continue
            name = mesh.get("filename", "")
            found = find_mesh(name, home, packages)
            if found is not None and found.suffix.lower() in _READABLE:
                files.append((mesh, found))
            elif found is not None and found.suffix.lower() == ".dae" and (stl := _as_stl(str(found))) is not None:
                files.append((mesh, found))
                converted[found] = stl
            elif shape.tag == "visual":
                link.remove(shape)
                left_out.append(name)
            elif found is None:
                raise ModelError(f"link {link.get('name')!r}: no mesh at {name!r}, looked for in and above {home}")
            else:
                kinds = ", ".join(_READABLE)
                raise ModelError(f"link {link.get('name')!r}: MuJoCo reads {kinds} but not the collision mesh {name!r}")
    if left_out:
        more = f" and {len(left_out) - 1} more" if len(left_out) > 1 else ""
        kinds = ", ".join((*_READABLE, ".dae (pip install 'genelab[urdf]')"))
        _say_once(f"left out the visual mesh {left_out[0]}{more}: not found, or none of {kinds}")
    return files, converted


def _name_files(files: list[tuple[ET.Element, Path]], converted: Mapping[Path, bytes]) -> dict[str, bytes]:
    """Write into each mesh where it is. If some were converted all are given as bytes: MuJoCo loses paths of files that
    stand beside bytes when it attaches a model."""
    given: dict[str, bytes] = {}
    names: dict[Path, str] = {}
    for mesh, path in files:
        if converted and path not in names:
            names[path] = f"{len(names)}_{path.stem}{'.stl' if path in converted else path.suffix}"
            given[names[path]] = converted[path] if path in converted else path.read_bytes()
        mesh.set("filename", names.get(path, str(path)))
    return given


@functools.lru_cache(maxsize=256)
def _as_stl(path: str) -> bytes | None:
    """A Collada file in metres, as STL; None if it cannot be read here."""
    try:
        import trimesh

        mesh = trimesh.load(path, force="mesh")
        unit = re.match(r"[\d.e+-]+", str(mesh.metadata.get("units", "")))  # as in "0.001 * meters"
        mesh.apply_scale(float(unit[0]) if unit else 1.0)
        return bytes(mesh.export(file_type="stl"))
    except Exception:  # not installed, or one of the many ways in which a file is not what it should be
        return None


@functools.cache
def _say_once(remark: str) -> None:
    """A model is read more than once, and the remark is the same."""
    logging.getLogger("genelab").warning("%s", remark)


def find_mesh(name: str, home: Path, packages: Mapping[str, str]) -> Path | None:
    """Where a mesh is: beside the file, or in a package that is named or lies above it."""
    scheme, found, rest = name.rpartition("://")
    if not found or scheme == "file":
        places = [home / rest if not found else Path(f"/{rest.lstrip('/')}")]
    else:
        package, _, inside = rest.partition("/")
        if package in packages:
            places = [Path(packages[package]) / inside]
        else:
            above = (home, *home.parents)
            places = [folder / inside for folder in above if folder.name == package]
            places += [folder / rest for folder in above]
    return next((place for place in places if place.is_file()), None)


def _set_base(robot: ET.Element, path: str, floating: bool) -> None:
    """Make the root link a body: MuJoCo would make it part of the world."""
    links = [link.get("name", "") for link in robot.findall("link")]
    joints = {
        child.get("link"): joint for joint in robot.findall("joint") if (child := joint.find("child")) is not None
    }
    roots = [name for name in links if name not in joints]
    if len(roots) != 1:
        raise ModelError(f"{path}: a robot has one root link, this has {len(roots)}: {', '.join(roots)}")
    root = roots[0]
    if root == "world":  # an empty link of the file's own stands for the world
        for joint in joints.values():
            parent = joint.find("parent")
            if floating and parent is not None and parent.get("link") == "world" and joint.get("type") == "fixed":
                joint.set("type", "floating")
        return
    ET.SubElement(robot, "link", name="world")
    base = ET.SubElement(robot, "joint", name=f"{root}_base", type="floating" if floating else "fixed")
    ET.SubElement(base, "parent", link="world")
    ET.SubElement(base, "child", link=root)


def _set_compiler(robot: ET.Element, attributes: Mapping[str, str]) -> None:
    """What the file says itself in `<mujoco><compiler>` stays, but for where meshes are: that is known by now."""
    extension = robot.find("mujoco")
    extension = ET.SubElement(robot, "mujoco") if extension is None else extension
    own = extension.find("compiler")
    own = ET.SubElement(extension, "compiler") if own is None else own
    for folder in ("meshdir", "assetdir"):
        own.attrib.pop(folder, None)
    own.attrib.update({**_PLAIN, **own.attrib, **attributes, "strippath": "false"})


def _weightless(robot: ET.Element, path: str) -> list[str]:
    """Links that weigh nothing, since they have no `<inertial>` and are fixed to a link that has.

    Where none of those fixed together has one, they weigh as much as their shapes: no body can move without a mass.
    """
    link_of = {link.get("name", ""): link.get("name", "") for link in robot.findall("link")}
    roots = set(link_of)
    for joint in robot.findall("joint"):
        parent, child = (joint.find(end) for end in ("parent", "child"))
        if parent is not None and child is not None:
            above, below = (link_of.get(end.get("link", ""), "") for end in (parent, child))
            roots.discard(child.get("link", ""))
            if joint.get("type") == "fixed":  # what is fixed together goes by one name
                link_of = {link: above if group == below else group for link, group in link_of.items()}
    links = {link.get("name", ""): link for link in robot.findall("link")}
    with_mass = {name for name, link in links.items() if link.find("inertial") is not None}
    weighed = {link_of[name] for name in with_mass}
    at_rest = {link_of[name] for name in roots}
    guessed = [
        name
        for name, link in links.items()
        if link_of[name] not in weighed | at_rest and link.find("collision") is not None
    ]
    if guessed:
        more = f" and {len(guessed) - 1} more have" if len(guessed) > 1 else " has"
        _say_once(f"{path}: link {guessed[0]!r}{more} no <inertial>: shapes there weigh 1000 kg/m³")
    return [link for link, group in link_of.items() if link not in with_mass and group in weighed]


def _balance(robot: ET.Element) -> None:
    """Give tensors that are no inertia the mean of their diagonal, as MuJoCo does with axes that do not fit."""
    for tensor in robot.iterfind("link/inertial/inertia"):
        xx, xy, xz, yy, yz, zz = (float(tensor.get(key, 0.0)) for key in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"))
        axes = np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        if axes[-1] > 0.0 and axes[0] <= 1e-9 * axes[-1]:
            mean = repr((xx + yy + zz) / 3.0)
            tensor.attrib = {"ixx": mean, "iyy": mean, "izz": mean, "ixy": "0", "ixz": "0", "iyz": "0"}


def _mimics(robot: ET.Element, path: str) -> Iterator[tuple[str, str, float, float]]:
    """Joints that follow another, which, by what factor and from where on."""
    names = {joint.get("name") for joint in robot.findall("joint")}
    for joint in robot.findall("joint"):
        mimic = joint.find("mimic")
        if mimic is not None:
            master = mimic.get("joint", "")
            if master not in names:
                raise ConfigError(f"{path}: joint {joint.get('name')!r} mimics {master!r}, which is no joint of it")
            yield joint.get("name", ""), master, float(mimic.get("multiplier", 1)), float(mimic.get("offset", 0))
