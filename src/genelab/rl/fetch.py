"""A policy that lies elsewhere: `file://`, `https://` and `hf://` addresses, brought to a cache on this machine.

`…#sha256=<hex>` says what must arrive. With it a file that is here already is not asked for again; without it the file
may have changed, and is fetched every time. The checksum covers the metadata beside an exported policy as well: they
must be those that the policy has inside. What arrives is read like any other file: no code in it is run.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import importlib
import ipaddress
import json
import os
import queue
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from genelab.config import read_json
from genelab.config.files import replacing
from genelab.errors import UsageError, summary

SUFFIXES = (".pt", ".zip", ".ts", ".onnx")
"""Policies that are read without running code."""
MAX_BYTES = 2_000_000_000
"""No policy is larger."""
TIMEOUT_S = 30.0
"""How long a server may be silent."""
GRACE_S = 60.0
MIN_RATE = 10_000.0
"""Bytes per second that must have come on average, from a minute on."""
MAX_S = 7200.0
"""How long a file may take altogether."""

_EXPORTED = (".ts", ".onnx")
_METADATA = ".metadata.json"
"""What an exported policy has beside it, and cannot be read without."""
_CHUNK = 1 << 20


def is_uri(word: object) -> bool:
    """Whether a word is an address and not the name of a file."""
    return isinstance(word, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", word) is not None


def fetch(uri: str) -> Path:
    """The file at an address, on this machine."""
    try:
        return _fetch(_parse(uri))
    except ValueError as error:  # what the library says to a host, a port or a character that cannot be
        raise UsageError(f"{uri!r} is not an address: {summary(error)}") from error


def _fetch(address: _Address) -> Path:
    get = _SCHEMES.get(address.scheme)
    if get is None:
        raise UsageError(f"{address.text}: no such kind of address; give {', '.join(f'{one}://' for one in _SCHEMES)}")
    if address.suffix not in SUFFIXES:
        raise UsageError(f"{address.text}: not a policy by its name; it must end in {', '.join(SUFFIXES)}")
    path = get(address)
    if address.sha256 is not None and (found := _digest(path)) != address.sha256:
        raise UsageError(f"{address.text}: not the file that was meant: its sha256 is {found}, not {address.sha256}")
    if address.sha256 is not None and address.suffix in _EXPORTED and not _has_its_metadata(path):
        raise UsageError(f"{address.text}{_METADATA}: not the metadata that the policy has inside")
    return path


def _has_its_metadata(path: Path) -> bool:
    """Return whether the metadata beside an exported policy are those inside, which its checksum covers.

    Both formats have them as plain text.
    """
    try:
        text = json.dumps(read_json(path.with_name(path.name + _METADATA)), allow_nan=False)
        return text.encode() in path.read_bytes()
    except (OSError, UsageError):
        return False


@dataclass(frozen=True, kw_only=True)
class _Address:
    text: str
    """As it was given, without the checksum."""
    sha256: str | None

    @property
    def scheme(self) -> str:
        return urlsplit(self.text).scheme.lower()

    @property
    def name(self) -> str:
        """Of the file, in characters that every file system takes."""
        last = PurePosixPath(unquote(urlsplit(self.text).path)).name
        return re.sub(r"[^\w.-]", "_", last)[-100:]

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    def beside(self, ending: str) -> _Address:
        """The file whose name goes on with this."""
        parts = urlsplit(self.text)
        return _Address(text=parts._replace(path=parts.path + ending).geturl(), sha256=None)

    @property
    def home(self) -> Path:
        """Its directory in the cache."""
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        key = hashlib.sha256(f"{self.text}#{self.sha256}".encode()).hexdigest()[:32]
        return base / "genelab" / "checkpoints" / key


def _parse(uri: str) -> _Address:
    text, _, fragment = uri.partition("#")
    host = urlsplit(text).netloc
    if "@" in host:  # and it is not repeated: messages and records are read by others
        raise UsageError(
            f"an address with a password in it is not fetched: leave out what is before {host.split('@')[-1]}"
        )
    if not fragment:
        return _Address(text=text, sha256=None)
    kind, _, digest = fragment.partition("=")
    if kind.lower() != "sha256" or not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
        raise UsageError(f"{text}: after # goes sha256= and 64 hexadecimal digits, not {fragment[:80]!r}")
    return _Address(text=text, sha256=digest.lower())


def _local(address: _Address) -> Path:
    parts = urlsplit(address.text)
    if parts.netloc not in ("", "localhost"):
        raise UsageError(f"{address.text}: a file of another machine; file:///path is one of this")
    path = Path(unquote(parts.path))
    if not path.is_file():
        raise UsageError(f"{address.text}: no such checkpoint")
    return path


def _download(address: _Address) -> Path:
    """Over the network into the cache; an exported policy with its metadata."""
    _check_secure(address.text)
    path = address.home / address.name
    metadata = path.with_name(path.name + _METADATA)
    needed = [path, metadata] if address.suffix in _EXPORTED else [path]
    there = address.sha256 is not None and all(one.is_file() for one in needed) and _digest(path) == address.sha256
    if there and (metadata not in needed or _has_its_metadata(path)):
        return path
    if metadata in needed:
        _get(address.beside(_METADATA), metadata)
    _get(address, path)
    return path


def _get(address: _Address, path: Path) -> None:
    """Fetch a file in one step: it has its name only once it is complete and the one that was meant."""
    try:
        with replacing(path) as temporary:
            with open(temporary, "wb") as file:
                found = _in_time(address.text, file.write)
            if address.sha256 not in (None, found):
                raise UsageError(f"{address.text}: not the file that was meant: its sha256 is {found}")
    except urllib.error.HTTPError as error:
        raise UsageError(f"{address.text}: the server answers {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise UsageError(f"{address.text}: cannot be reached: {error.reason}; without a network give a file") from error
    except http.client.HTTPException as error:
        raise UsageError(f"{address.text}: the transfer broke off: {error!r}") from error
    except OSError as error:
        raise UsageError(f"{address.text}: cannot be kept in {path.parent}: {error.strerror or error}") from error


def _in_time(url: str, write: Callable[[bytes], Any]) -> str:
    """Return the sha256 of what came, or give up on a server that is too slow.

    A socket's time-out is for each of its calls: a server that sends one byte in time, be it of the headers, never
    meets it. So the transfer has a thread, which is left to itself when its time is over.
    """
    digest, done = hashlib.sha256(), queue.SimpleQueue[BaseException | None]()
    size = 0

    def take(chunk: bytes) -> None:
        nonlocal size
        size += len(chunk)
        if size > MAX_BYTES:
            raise UsageError(f"{url}: larger than {MAX_BYTES / 1e9:g} GB, which no policy is")
        digest.update(chunk)
        write(chunk)

    def transfer() -> None:
        try:
            _stream(url, take)
        except BaseException as error:
            done.put(error)
        else:
            done.put(None)

    start = time.monotonic()
    threading.Thread(target=transfer, name="genelab-fetch", daemon=True).start()
    while True:
        with contextlib.suppress(queue.Empty):
            if (error := done.get(timeout=0.2)) is not None:
                raise error
            return digest.hexdigest()
        seconds = time.monotonic() - start
        if seconds > MAX_S or (seconds > GRACE_S and size < MIN_RATE * seconds):
            raise UsageError(f"{url}: the server is too slow: {size:,} bytes in {seconds:.0f} s")


def _stream(url: str, take: Callable[[bytes], None]) -> None:
    size = 0
    request = urllib.request.Request(url, headers={"User-Agent": "genelab"})
    with _opener(url).open(request, timeout=TIMEOUT_S) as response:
        expected = response.headers.get("Content-Length")
        if expected is not None and not re.fullmatch("[0-9]{1,18}", expected):
            raise UsageError(f"{url}: the server answers with Content-Length {expected[:40]!r}, which is no number")
        while chunk := _read(response):
            size += len(chunk)
            take(chunk)
    if expected is not None and size != int(expected):
        raise http.client.IncompleteRead(b"", int(expected) - size)


def _read(response: Any) -> bytes:
    try:
        return response.read1(_CHUNK)  # what has come; `read` would wait for all of it
    except OSError as error:  # a time-out or a reset is the network's fault, not the disk's
        raise urllib.error.URLError(str(error) or type(error).__name__) from error


class _SameSafety(urllib.request.HTTPRedirectHandler):
    """Follows a redirection only to where one may go directly."""

    def redirect_request(self, request: Any, file: Any, code: int, message: str, headers: Any, url: str) -> Any:
        _check_secure(url)
        if _is_loopback(url) and not _is_loopback(request.full_url):
            raise UsageError(f"{request.full_url}: leads to {url}, and a server elsewhere has no business there")
        return super().redirect_request(request, file, code, message, headers, url)


def _opener(url: str) -> urllib.request.OpenerDirector:
    direct = [urllib.request.ProxyHandler({})] if _is_loopback(url) else []
    return urllib.request.build_opener(_SameSafety, *direct)


def _check_secure(url: str) -> None:
    scheme = urlsplit(url).scheme.lower()
    if scheme != "https" and not (scheme == "http" and _is_loopback(url)):
        raise UsageError(f"{url}: only https:// is safe on the way; http:// is for this machine, such as 127.0.0.1")


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _from_hub(address: _Address) -> Path:
    """`hf://owner/repository[@revision]/path`: into the cache of huggingface_hub, which knows what it has."""
    parts = urlsplit(address.text)
    repository, *rest = parts.path.lstrip("/").split("/")
    name, _, revision = repository.partition("@")
    file = "/".join(rest)
    if not (parts.netloc and name and file):
        raise UsageError(f"{address.text}: expected hf://owner/repository/file, or repository@revision")
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise UsageError(f"{address.text} needs huggingface_hub: pip install 'genelab[hub]'") from error
    wanted = [file + _METADATA, file] if address.suffix in _EXPORTED else [file]
    try:
        for one in wanted:
            path = hub.hf_hub_download(f"{parts.netloc}/{name}", unquote(one), revision=revision or None)
    except Exception as error:  # it has a class of errors for everything that can go wrong
        reason = " ".join(str(error).split())
        raise UsageError(f"{address.text}: {reason[:300] or type(error).__name__}") from error
    return Path(path)


def _digest(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


_SCHEMES: dict[str, Callable[[_Address], Path]] = {
    "file": _local,
    "https": _download,
    "http": _download,
    "hf": _from_hub,
}
