"""A policy that lies elsewhere is brought here whole, is the one that was meant, and comes the safe way."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from genelab.cli.main import run
from genelab.errors import UsageError
from genelab.rl.fetch import _SameSafety, fetch, is_uri
from genelab.rl.locate import find_checkpoint, pretrained_policy

TASK = "GeneLab-Inverted-Pendulum-v0"
CONTENT = b"some weights and {}"
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nobody is there: this machine is asked directly
    return tmp_path / "cache"


@contextmanager
def served(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[ThreadingHTTPServer]:
    """A server whose requests a handler answers, until it is no longer needed."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield http
    finally:
        http.shutdown()
        http.server_close()


def address_of(http: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{http.server_address[1]}"


@dataclass(frozen=True, kw_only=True)
class Server:
    """Serves a directory, and remembers what it was asked for."""

    directory: Path
    asked: list[str]
    http: ThreadingHTTPServer

    @property
    def address(self) -> str:
        return address_of(self.http)


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, asked: list[str], *args: Any, **options: Any) -> None:
        self.asked = asked
        super().__init__(*args, **options)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path.startswith("/away"):
            self.send_response(302)
            self.send_header("Location", "http://example.org/model.pt")
            self.end_headers()
        elif self.path.startswith("/short"):
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"half")
        else:
            super().do_GET()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "model.pt").write_bytes(CONTENT)
    asked: list[str] = []
    with served(partial(_Handler, asked, directory=str(tmp_path / "www"))) as http:
        yield Server(directory=tmp_path / "www", asked=asked, http=http)


def refusal(uri: str) -> str:
    with pytest.raises(UsageError) as error:
        fetch(uri)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_an_address() -> None:
    assert is_uri("https://a/b.pt")
    assert is_uri("hf://owner/repo/b.pt")
    assert not is_uri("runs/b.pt")
    assert not is_uri("C:/b.pt")
    assert not is_uri(Path("https://a/b.pt"))


def test_a_file_of_this_machine_stays_where_it_is(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "my model.pt"
    path.write_bytes(CONTENT)
    assert fetch(path.as_uri()) == path
    assert fetch(f"{path.as_uri()}#sha256={SHA.upper()}") == path
    assert find_checkpoint(TASK, path.as_uri()) == path
    assert f"its sha256 is {SHA}, not {'0' * 64}" in refusal(f"{path.as_uri()}#sha256={'0' * 64}")
    assert refusal(f"{path.as_uri()}.pt").endswith("no such checkpoint")
    assert not cache.exists()


def test_with_a_checksum_it_is_fetched_once(server: Server, cache: Path) -> None:
    uri = f"{server.address}/model.pt#sha256={SHA}"
    path = fetch(uri)
    assert path.read_bytes() == CONTENT
    assert path.is_relative_to(cache / "genelab")
    server.http.shutdown()
    assert fetch(uri) == path
    assert server.asked == ["/model.pt"]


def test_a_cached_file_that_was_changed_is_fetched_again(server: Server) -> None:
    uri = f"{server.address}/model.pt#sha256={SHA}"
    fetch(uri).write_bytes(b"other weights")
    assert fetch(uri).read_bytes() == CONTENT


def test_without_a_checksum_it_is_fetched_every_time(server: Server) -> None:
    uri = f"{server.address}/model.pt"
    fetch(uri)
    (server.directory / "model.pt").write_bytes(b"newer weights")
    assert fetch(uri).read_bytes() == b"newer weights"


def test_another_file_than_the_one_that_was_meant_is_not_kept(server: Server, cache: Path) -> None:
    assert f"not the file that was meant: its sha256 is {SHA}" in refusal(
        f"{server.address}/model.pt#sha256={'0' * 64}"
    )
    assert [path for path in cache.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("{server}/nothing.pt", "the server answers 404 File not found"),
        ("{server}/short.pt", "the transfer broke off"),
        ("{server}/away.pt", "http://example.org/model.pt: only https:// is safe on the way"),
        ("{server}/model.py", "not a policy by its name; it must end in .pt, .zip, .ts, .onnx"),
        ("{server}/", "not a policy by its name"),
        ("{server}/model.pt#md5=1", "after # goes sha256= and 64 hexadecimal digits, not 'md5=1'"),
        ("http://example.org/model.pt", "only https:// is safe on the way"),
        ("ftp://example.org/model.pt", "no such kind of address; give file://, https://"),
        ("file://elsewhere/model.pt", "a file of another machine"),
        ("https://[::1/model.pt", "is not an address"),
        ("https://127.0.0.1:x/model.pt", "x"),
        ("hf://owner/model.pt", "expected hf://owner/repository/file"),
    ],
)
def test_what_is_refused(uri: str, message: str, server: Server, cache: Path) -> None:
    assert message in refusal(uri.format(server=server.address))
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_a_password_is_neither_sent_nor_repeated(server: Server) -> None:
    address = server.address.replace("http://", "http://me:secret@")
    with pytest.raises(UsageError, match="an address with a password in it is not fetched") as refusal:
        fetch(f"{address}/model.pt")
    assert "secret" not in str(refusal.value)
    assert server.asked == []


def test_a_server_elsewhere_does_not_lead_back_to_this_machine() -> None:
    request = SimpleNamespace(full_url="https://example.org/model.pt")
    with pytest.raises(UsageError, match="a server elsewhere has no business there"):
        _SameSafety().redirect_request(request, None, 302, "", {}, "http://127.0.0.1:80/model.pt")


def test_without_a_network_it_says_so() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "cannot be reached: " in (text := refusal(f"http://127.0.0.1:{port}/model.pt"))
    assert text.endswith("without a network give a file")


def test_a_server_that_falls_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genelab.rl.fetch.TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "timed out" in refusal(f"http://127.0.0.1:{silent.getsockname()[1]}/model.pt")


class _Drip(BaseHTTPRequestHandler):
    """Sends a byte now and then, in time for every call of the client."""

    head: ClassVar[bytes] = b""

    def handle(self) -> None:
        self.rfile.readline()
        with suppress(OSError):
            self.wfile.write(self.head)
            for _ in range(100):
                self.wfile.write(b"x")
                self.wfile.flush()
                time.sleep(0.05)


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"])
def test_a_server_that_sends_a_byte_now_and_then_is_not_waited_for(
    head: bytes, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genelab.rl.fetch.GRACE_S", 0.5)
    monkeypatch.setattr(_Drip, "head", head)
    start = time.monotonic()
    with served(_Drip) as http:
        assert re.search(
            r"model\.pt: the server is too slow: \d+ bytes in \d s$", refusal(f"{address_of(http)}/model.pt")
        )
        assert time.monotonic() - start < 4
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_there_is_a_limit_for_the_whole_transfer(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genelab.rl.fetch.MAX_S", 0.5)
    monkeypatch.setattr(_Drip, "head", b"HTTP/1.1 200 OK\r\n\r\n")
    with served(_Drip) as http:
        assert "the server is too slow" in refusal(f"{address_of(http)}/model.pt")


def test_a_length_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Drip, "head", b"HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\n")
    with served(_Drip) as http:
        uri = f"{address_of(http)}/model.pt"
        assert refusal(uri) == f"{uri}: the server answers with Content-Length 'abc', which is no number"


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_the_checksum_is_for_the_metadata_as_well(server: Server, scheme: str) -> None:
    shipped = pretrained_policy(TASK)
    assert shipped is not None
    for path in shipped.parent.glob("policy.ts*"):
        shutil.copy(path, server.directory)
    beside = server.directory / "policy.ts.metadata.json"
    metadata = json.loads(beside.read_text())
    metadata["actions"][0]["scale"] = 1e3
    good = beside.read_text()
    beside.write_text(json.dumps(metadata))
    home = server.address if scheme == "http" else server.directory.as_uri()
    uri = f"{home}/policy.ts#sha256={hashlib.sha256(shipped.read_bytes()).hexdigest()}"
    assert refusal(uri) == f"{home}/policy.ts.metadata.json: not the metadata that the policy has inside"
    beside.write_text(good)
    path = fetch(uri)
    assert json.loads(path.with_name("policy.ts.metadata.json").read_text()) == json.loads(good)
    if scheme == "http":
        path.with_name("policy.ts.metadata.json").write_text(json.dumps(metadata))
        assert fetch(uri) == path
        assert path.with_name("policy.ts.metadata.json").read_text() == good, "changed in the cache, and fetched again"


def test_an_exported_policy_comes_with_its_metadata_and_plays(
    server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    shipped = pretrained_policy(TASK)
    assert shipped is not None
    for path in shipped.parent.glob("policy.ts*"):
        shutil.copy(path, server.directory)
    uri = f"{server.address}/policy.ts#sha256={hashlib.sha256(shipped.read_bytes()).hexdigest()}"
    assert run(["eval", TASK, uri, "--episodes", "2", "--max-steps", "2000"]) == 0
    assert run(["play", TASK, "--checkpoint", uri, "--steps", "3", "--headless"]) == 0
    assert run(["export", TASK, uri]) == 0
    assert Path("policy.ts").read_bytes() == shipped.read_bytes()
    Path("suite.json").write_text(json.dumps([{"task": TASK, "checkpoint": uri, "episodes": 1}]))
    assert run(["benchmark", "--suite", "suite.json", "--out", "report.json"]) == 0
    assert server.asked == ["/policy.ts.metadata.json", "/policy.ts"]
    assert run(["train", TASK, "--checkpoint", uri]) == 2
    assert "is an exported policy, which cannot learn" in capfd.readouterr().err


def test_best_is_for_runs() -> None:
    with pytest.raises(UsageError, match="an address is one policy"):
        find_checkpoint(TASK, "https://example.org/model.pt", best=True)


class _Hub(BaseHTTPRequestHandler):
    """What huggingface_hub asks of a hub to fetch a file: its size, its hash, its commit, and then itself."""

    files: ClassVar[dict[str, bytes]] = {
        "/owner/repo/resolve/v1/runs/policy.ts": CONTENT,
        "/owner/repo/resolve/v1/runs/policy.ts.metadata.json": b"{}",
        "/owner/repo/resolve/main/model.pt": b"of the newest revision",
    }

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.wfile.write(self.answer())

    def answer(self) -> bytes:
        content = self.files.get(self.path, b"")
        self.send_response(200 if content else 404)
        self.send_header("Content-Length", str(len(content)))
        if content:
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", "1" * 40)
        else:
            self.send_header("X-Error-Code", "EntryNotFound")
        self.end_headers()
        return content


def test_a_hub_is_asked_by_its_own_library(tmp_path: Path) -> None:
    home = {"HF_HOME": str(tmp_path), "no_proxy": "127.0.0.1"}
    program = """
from genelab.errors import UsageError
from genelab.rl.fetch import fetch

policy = fetch("hf://owner/repo@v1/runs/policy.ts#sha256=SHA")
print(policy.read_bytes(), sorted(path.name for path in policy.parent.iterdir()))
print(fetch("hf://owner/repo/model.pt").read_bytes())
try:
    fetch("hf://owner/repo/none.pt")
except UsageError as error:
    print(error)
"""
    command = [sys.executable, "-c", program.replace("SHA", SHA)]
    with served(_Hub) as hub:
        environment = {**os.environ, **home, "HF_ENDPOINT": address_of(hub)}
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[:2] == [f"{CONTENT!r} ['policy.ts', 'policy.ts.metadata.json']", "b'of the newest revision'"]
    assert said[2].startswith("hf://owner/repo/none.pt: 404 Client Error")
    assert len(said) == 3


def test_without_the_hubs_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert refusal("hf://owner/repo/model.pt").endswith("needs huggingface_hub: pip install 'genelab[hub]'")
