"""Files that are either there in full or not there: written to a temporary name, then renamed."""

import os
from pathlib import Path


def atomic_write_text(path: str | os.PathLike[str], text: str) -> None:
    """Replace the file with this text (UTF-8) in one step, making its directory if there is none."""
    atomic_write_bytes(path, text.encode())


def atomic_write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace the file with these bytes in one step, making its directory if there is none."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # In the same directory, since a rename is atomic only within one file system. Opened by name and not with
    # `tempfile`, whose files no other user may read.
    temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
