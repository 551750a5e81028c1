"""Bounds of ZIP archives (checkpoints, NPZ files), checked before anything in them is read."""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path
from typing import BinaryIO

from genelab.errors import UsageError

MAX_RECORDS = 2**16
"""Records of an archive at most: as many as ZIP has without its extension."""
_MAX_DIRECTORY = 2**24
"""Bytes of the list of records at most; reading it takes some twenty times as many."""
_END, _END_64 = struct.Struct("<4s8xLLH"), struct.Struct("<4s36xQQ20x22x")
"""Mark, length and start of the list of records; the 64-bit one is followed by its locator and by the other."""


def check_zip(file: Path | BinaryIO, where: str, *, most_bytes: float | None = None) -> list[zipfile.ZipInfo]:
    """Refuse an archive that could fill the memory: too many records, too large ones, or several at one place.

    Args:
        file: The archive.
        where: Its name in errors.
        most_bytes: Bytes that it may unpack to; None: no more than it has itself, so that nothing is compressed.

    Returns:
        Its records.

    Raises:
        UsageError: It is refused.
        BadZipFile: It is no archive.
    """
    if isinstance(file, Path):
        with open(file, "rb") as opened:
            return check_zip(opened, where, most_bytes=most_bytes)
    if not zipfile.is_zipfile(file):
        raise zipfile.BadZipFile("not a ZIP archive")
    size = file.seek(0, os.SEEK_END)
    _check_end(file, size, where)
    with zipfile.ZipFile(file) as archive:
        records = archive.infolist()
    if len(records) > MAX_RECORDS:
        raise UsageError(f"{where}: more than {MAX_RECORDS} records")
    if most_bytes is None:
        if any(record.compress_type != zipfile.ZIP_STORED for record in records):
            raise UsageError(f"{where}: not a checkpoint: torch compresses nothing")  # and a bomb is compressed
        most_bytes = size
    places = {record.header_offset for record in records}
    if len(places) < len(records) or sum(record.compress_size for record in records) > size:
        raise UsageError(f"{where}: damaged: several of its records are at one place")
    if (unpacked := sum(record.file_size for record in records)) > most_bytes:
        raise UsageError(f"{where}: unpacks to {unpacked:,} bytes, and {int(most_bytes):,} are the most")
    return records


def _check_end(file: BinaryIO, size: int, where: str) -> None:
    """Refuse an archive in which two readers could find two lists of records, or whose list is too long.

    torch's reader and Python's search for the list in different ways. Where nothing but its end follows it, both find
    the same.
    """
    file.seek(max(size - _END_64.size, 0))
    tail = file.read()
    end = size - _END.size
    fits = len(tail) >= _END.size and tail[-_END.size :].startswith(b"PK\5\6")
    if fits:
        _, length, start, comment = _END.unpack(tail[-_END.size :])
        fits = comment == 0
        if tail[-42:-38] == b"PK\6\7" and len(tail) == _END_64.size:
            mark, length, start = _END_64.unpack(tail)
            end = size - _END_64.size
            fits = fits and mark == b"PK\6\6" and int.from_bytes(tail[-34:-26], "little") == end
        fits = fits and start + length == end
    if not fits:
        raise UsageError(f"{where}: a damaged archive, or one with something before or behind it")
    if length > _MAX_DIRECTORY:
        raise UsageError(f"{where}: its list of records is longer than {_MAX_DIRECTORY // 2**20} MB")
