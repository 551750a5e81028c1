"""Files as data: written whole or not at all, and read with bounds.

A file is written to a temporary name beside it and renamed; what a writer that was killed left there goes when the file
is written again. A symbolic link is followed, so that what it points to is what changes; a device, a pipe or a
directory is never replaced.
"""

import contextlib
import errno
import fcntl
import glob
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from genelab.errors import ConfigError, GenelabError, UsageError

MAX_JSON_BYTES = 64 * 2**20
"""No JSON file of ours is larger; one that is was not made by us."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{8}\.tmp(-journal)?")  # SQLite writes a journal beside its file


def atomic_write_text(path: str | os.PathLike[str], text: str, *, parents: bool = True) -> None:
    """Replace the file with this text (UTF-8) in one step, making its directory if there is none, or failing."""
    atomic_write_bytes(path, text.encode(), parents=parents)


def atomic_write_bytes(path: str | os.PathLike[str], data: bytes, *, parents: bool = True) -> None:
    """Replace the file with these bytes in one step, making its directory if there is none, or failing."""
    atomic_write_files({Path(path): data}, parents=parents)


def atomic_write_files(files: Mapping[Path, bytes], *, parents: bool = True) -> None:
    """Replace files; if one of them cannot be written, none is."""
    with contextlib.ExitStack() as stack:
        temporaries = [stack.enter_context(replacing(path, parents=parents)) for path in files]
        for temporary, data in zip(temporaries, files.values(), strict=True):
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, parents: bool = True) -> Iterator[Path]:
    """A temporary name to write to, which takes the file's name when the block ends, and goes if it fails."""
    target = writable_target(path)
    if parents:
        target.parent.mkdir(parents=True, exist_ok=True)
    temporary, held = open_temporary(target)
    with held:
        try:
            yield temporary
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def writable_target(path: str | os.PathLike[str]) -> Path:
    """The file that is written where `path` is asked for; an OSError where that is no regular file."""
    target = Path(os.path.realpath(path)) if os.path.islink(path) else Path(path)
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(target).st_mode  # a loop of links is still a link here
        if not stat.S_ISREG(mode):
            kind = "it is a directory" if stat.S_ISDIR(mode) else "it is no regular file"
            raise OSError(errno.EINVAL, kind, str(path))
    return target


def check_out(path: Path, name: str = "out", *, parents: bool = True) -> None:
    """Refuse an output that could not be written in the end; its directory is made when it is, or must be there."""
    try:
        if path.is_dir():
            raise UsageError(f"`{name}`: {path} is a directory; give a file")
        if path.exists() and not path.is_file():
            raise UsageError(f"`{name}`: {path} is no regular file")
        target = writable_target(path).absolute()
        home = next(directory for directory in target.parents if directory.exists())
        if not parents and home != target.parent:
            raise UsageError(f"`{name}`: there is no directory {path.parent}")
        probe = temporary_name(home / target.name)
        probe.touch()
        probe.unlink(missing_ok=True)  # another process may have taken it for a leftover
    except OSError as error:
        raise UsageError(f"`{name}`: cannot write {path}: {error.strerror}") from error


def write_out(files: Mapping[Path, bytes], name: str = "out") -> None:
    """Write what a user asked for, all of it or nothing, or say in one line why it cannot be."""
    try:
        atomic_write_files(files)
    except OSError as error:
        raise UsageError(f"`{name}`: cannot write {error.filename or next(iter(files))}: {error.strerror}") from error


def write_new_directory(path: Path, files: Mapping[str, bytes], name: str = "out") -> None:
    """Make a directory with all of these files, or none.

    It is filled under a temporary name beside it and renamed, so that a process which is killed leaves no half of it;
    `leftovers_of` finds what it leaves instead.

    Args:
        path: The directory, which must not exist.
        files: Contents by path in the directory, with `/` between parts.
        name: The option it was asked for with, for errors.
    """
    temporary = temporary_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_files({temporary / file: content for file, content in files.items()})
        os.rename(temporary, path)
    except OSError as error:
        reason = f"cannot write {error.filename2 or path}: {error.strerror}"
        raise UsageError(f"`{name}`: {reason}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def leftovers_of(path: Path) -> list[Path]:
    """Return what writers of this file or directory left beside it when they were killed."""
    found = path.parent.glob(f".{glob.escape(path.name)}.*.tmp")
    return sorted(one for one in found if _LEFTOVER.fullmatch(one.name))


def write_json_out(value: Any, path: Path, name: str = "out") -> None:
    """Write JSON that a user asked for."""
    try:
        text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    except ValueError as error:
        raise GenelabError(f"`{name}`: nothing written to {path}: a number of it is NaN or infinite") from error
    write_out({path: text.encode()}, name)


def temporary_name(target: Path) -> Path:
    """A name to write to until the file is complete; if nobody renames it, `remove_leftovers` knows it."""
    # In the same directory, since a rename is atomic only within one file system. Opened by name and not with
    # `tempfile`, whose files no other user may read.
    return target.with_name(f".{target.name}.{os.urandom(4).hex()}.tmp")


def open_temporary(target: Path) -> tuple[Path, BinaryIO]:
    """Create the file to write to until it is complete, after deleting those of writers that were killed.

    Returns:
        Its path, and the open file: while it is open, no other process takes it for a leftover.
    """
    for path in leftovers_of(target):
        if path.is_file():  # a pipe would be waited for
            with contextlib.suppress(OSError), open(path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its writer lives
                path.unlink()
    while True:
        temporary = temporary_name(target)
        held = open(temporary, "xb")  # noqa: SIM115  # the caller closes it
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # it has been taken for a leftover
            held.close()
            continue
        except OSError:  # a file system without locks, on which leftovers stay
            pass
        if temporary.exists():
            return temporary, held
        held.close()


def remove_leftovers(directory: Path) -> None:
    """Delete all that writers that were killed left in a directory of which this process is the owner."""
    for path in directory.glob(".*.tmp*"):
        if _LEFTOVER.fullmatch(path.name) and path.is_file():
            with contextlib.suppress(OSError):
                path.unlink()


def inside(path: str | os.PathLike[str], home: str | os.PathLike[str]) -> bool:
    """Return whether a path lies in a directory or below it, with all links of both followed."""
    real, folder = os.path.realpath(path), os.path.realpath(home)
    return real == folder or Path(folder) in Path(real).parents


def read_head(path: Path, size: int) -> bytes:
    """The first bytes of a file."""
    with open(path, "rb") as file:
        return file.read(size)


def read_json(path: str | os.PathLike[str]) -> Any:
    """What a JSON file says; numbers that no float can be are refused, as are files too large or too deep."""
    try:
        if not Path(path).is_file() and Path(path).exists():
            raise ConfigError(f"cannot read {path}: it is no regular file")  # a pipe would be waited for
        if os.path.getsize(path) > MAX_JSON_BYTES:
            raise ConfigError(f"cannot read {path}: larger than {MAX_JSON_BYTES // 2**20} MB, no file of genelab")
        return parse_json(Path(path).read_bytes(), str(path))
    except (OSError, ValueError) as error:  # a path with a null byte is a ValueError
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def parse_json(data: str | bytes, where: str) -> Any:
    """What JSON text says; `where` names its source in errors."""
    try:
        value = json.loads(data, parse_int=_int, parse_float=_float, parse_constant=_float)
        if _SURROGATE.search(data if isinstance(data, bytes) else data.encode()):
            json.dumps(value, ensure_ascii=False).encode()  # half a character cannot be printed
        return value
    except RecursionError:
        raise ConfigError(f"{where} is not JSON: nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON: {error}") from error


def _float(word: str) -> float:
    """Python would read NaN and Infinity, which are no JSON, and 1e999 as infinite."""
    value = float(word)
    if not math.isfinite(value):
        raise ValueError(f"{word[:20]} is no number")
    return value


def _int(word: str) -> int:
    _float(word)
    return int(word)
