"""Files that a model of others refers to: which of them may be copied, and what they must be."""

from __future__ import annotations

import re
import struct
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from xml.parsers import expat

from genelab.config.files import inside
from genelab.errors import UsageError
from genelab.sim import ModelError

_BEGINNINGS = (
    b"\x89PNG\r\n\x1a\n",
    b"\xabKTX 11\xbb\r\n\x1a\n",
    b"\xabKTX 20\xbb\r\n\x1a\n",
    b"$MeshFormat",
)
"""First bytes of PNG and KTX textures, and of Gmsh meshes."""
_OBJ_WORDS = frozenset(
    b"v vn vt vp f l p g o s usemtl mtllib mg cstype deg bmat step curv curv2 surf parm trim hole scrv sp end con "
    b"bevel c_interp d_interp lod maplib usemap shadow_obj trace_obj ctech stech".split()
)
"""How lines of a Wavefront OBJ begin."""


def parse_xml(data: bytes, where: object) -> ET.Element:
    """Return the root of an XML file of others.

    A document type is refused: a model needs none, and entities in it can name other files or grow without end.

    Raises:
        ModelError: If it is not well-formed XML in UTF-8, or has a document type.
    """
    parser = expat.ParserCreate("utf-8")
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        text = data.decode("utf-8-sig")
        parser.Parse(text, True)
        return ET.fromstring(text)
    except (expat.ExpatError, ET.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"{where} is not XML: {error}") from error
    except _Doctype:
        raise ModelError(f"{where}: has a <!DOCTYPE>, which no model needs: delete it") from None


class _Doctype(Exception):
    pass


def _refuse_doctype(*_: object) -> None:
    raise _Doctype


def check_inside(path: Path, allowed: Sequence[Path], model: str) -> None:
    """Refuse a file that is in none of the folders that may be copied from; links are followed.

    Args:
        path: The file.
        allowed: The model's own folder, and those that the user allows.
        model: What refers to the file, for the error.
    """
    if not any(inside(path, home) for home in allowed):
        folder = str(path.resolve().parent)
        raise UsageError(f"{model}: {path} lies outside of the model's folder; pass `assets={folder!r}` to allow it")


def read_asset(path: Path, allowed: Sequence[Path], model: str) -> bytes:
    """Return the content of a mesh, texture, height field or skin that is about to be copied.

    Args:
        path: The file.
        allowed: The model's own folder, and those that the user allows.
        model: What refers to the file, for errors.

    Raises:
        UsageError: If the file lies elsewhere, cannot be read, or is none of these.
    """
    check_inside(path, allowed, model)
    try:
        if not path.is_file():
            raise UsageError(f"{model}: there is no file {path}")
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{model}: cannot read {path}: {error.strerror}") from error
    if not is_asset(data):
        raise UsageError(f"{model}: {path} is no mesh, texture or height field, and is not copied")
    return data


def is_asset(data: bytes) -> bool:
    """Return whether these bytes are a mesh, a texture, a height field or a skin that MuJoCo or a converter reads.

    What MuJoCo does not decode itself (KTX) it would pass on unseen, whatever it is.
    """
    return data.startswith(_BEGINNINGS) or _is_stl(data) or _is_obj(data) or _is_collada(data) or _is_counted(data)


def _is_stl(data: bytes) -> bool:
    if len(data) >= 84 and len(data) == 84 + 50 * struct.unpack_from("<I", data, 80)[0]:
        return True
    return re.match(rb"\s*solid\b[^\n]*\n\s*(facet\s+normal|endsolid)\b", data) is not None


def _is_obj(data: bytes) -> bool:
    if b"\0" in data or re.search(rb"^[ \t]*v[ \t]+[-+.\d]", data, re.MULTILINE) is None:
        return False
    lines = re.sub(rb"\\\r?\n", b" ", data).splitlines()  # a line may go on after a backslash
    words = (line.split(None, 1)[0] for line in lines if line.strip())
    return all(word in _OBJ_WORDS or word.startswith(b"#") for word in words)


def _is_collada(data: bytes) -> bool:
    try:
        return parse_xml(data, "").tag.rpartition("}")[2] == "COLLADA"
    except ModelError:
        return False


def _is_counted(data: bytes) -> bool:
    """MuJoCo's own formats begin with counts that give the size of the file."""
    if len(data) < 12:
        return False
    first, second, third, fourth = struct.unpack_from("<4i", data.ljust(16, b"\0"))
    if min(first, second) >= 1:
        field = 8 + 4 * first * second  # rows, columns
        texture = 12 + first * second * max(third, 0)  # width, height and channels
        if len(data) in (field, texture):
            return True
    mesh = 16 + 4 * (3 * first + 3 * second + 2 * third + 3 * fourth)  # vertices, normals, texture coordinates, faces
    return (first >= 1 and min(second, third, fourth) >= 0 and len(data) == mesh) or _is_skin(data)


def _is_skin(data: bytes) -> bool:
    """Vertices, texture coordinates, faces and bones; each bone with its name and the vertices it moves."""
    vertices, coordinates, faces, bones = struct.unpack_from("<4i", data.ljust(16, b"\0"))
    if min(vertices, faces, bones) < 1 or coordinates < 0:
        return False
    at = 16 + 4 * (3 * vertices + 2 * coordinates + 3 * faces)
    for _ in range(bones):
        head = at + 40 + 4 * 7  # name, bind position and orientation
        if len(data) < head + 4:
            return False
        at = head + 4 + 8 * max(struct.unpack_from("<i", data, head)[0], 0)
    return at == len(data)
