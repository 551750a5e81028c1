"""Who may talk to the web page, and what of it is listened to.

A page on this machine can be reached by every page that the same browser shows: through a websocket, which knows no
origins, or by a name of its own that it lets point to this machine. So a request must name the page's own host, and a
browser's request its own origin. Opened to other machines, the page also asks for a token, which is in its address.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import logging
import math
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # they come with viser
    from websockets import Request, Response
    from websockets.asyncio.server import Server, ServerConnection

_MOST = 2**16
"""The longest message of a client, bytes: a place of the camera takes 300."""
_AGAIN = 0.05
"""Time between two looks for connections that are still open after the end, s."""
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([0-9a-z._-]+))(?::\d+)?")
"""A host as a browser names it: an address of version 6 or a name, and perhaps a port."""
_CAMERA = {
    "wxyz": 4,
    "position": 3,
    "look_at": 3,
    "up_direction": 3,
    "fov": 0,
    "near": 0,
    "far": 0,
    "image_height": 0,
    "image_width": 0,
}
"""What a client tells of its camera, with the length of each; 0: a number."""


class Guard:
    """Stands before viser's server, which takes anybody's word."""

    def __init__(self, host: str, addresses: set[str], protocol: str) -> None:
        """`addresses` are those that `host` stands for, `protocol` is the one that the page speaks."""
        places = [ipaddress.ip_address(address.partition("%")[0]) for address in addresses]
        self.is_open = not all(place.is_loopback for place in places)
        """Whether other machines can reach it."""
        self.token = secrets.token_urlsafe(16) if self.is_open else None
        """What the path of every request must be; None: anything."""
        self.inputs: dict[str, Callable[[Any], bool]] = {}
        """The inputs of the page by their id: whether a value is one that they can have."""
        self._everywhere = any(place.is_unspecified for place in places)
        self._names = {host.lower(), *addresses}
        if self._everywhere or not self.is_open:
            self._names |= {"localhost", "127.0.0.1", "::1"}
        if self._everywhere:
            self._names |= {socket.gethostname().lower(), f"{socket.gethostname().lower()}.local"}
        self._protocol = protocol
        self._server: Server | None = None

    @contextlib.contextmanager
    def standing(self) -> Iterator[None]:
        """Guard the server that is started meanwhile. viser has no hook for it: what it listens with is replaced."""
        import websockets.asyncio.server as library

        serve = library.serve

        def guarded(
            handler: Callable[[ServerConnection], Any], *args: Any, process_request: Any, **options: Any
        ) -> Any:
            options |= {"max_size": _MOST, "logger": logging.Logger("silent", logging.CRITICAL + 1)}
            answer, hear = partial(self._answer, process_request), partial(self._hear, handler)
            listening = serve(hear, *args, process_request=answer, **options)
            self._server = listening.server
            return listening

        library.serve = guarded  # type: ignore[assignment,misc]
        try:
            yield
        finally:
            library.serve = serve  # type: ignore[misc]
        if self._server is None:
            raise RuntimeError("this version of viser cannot be guarded")

    # -- requests

    def _answer(
        self, serve: Callable[..., Response | None], connection: ServerConnection, request: Request
    ) -> Response | None:
        """Turn a request away, or let it through to viser."""
        if (reason := self.objection(request)) is not None:
            return connection.respond(403, f"{reason}\n")
        response = serve(connection, replace(request, path="/") if self.token is not None else request)
        if response is not None:
            # The page can be told another server in its address, and that server may run code in the page.
            host = request.headers["Host"]
            policy = f"connect-src 'self' blob: data: ws://{host} wss://{host}; frame-ancestors 'none'"
            response.headers["Content-Security-Policy"] = policy
            response.headers["Referrer-Policy"] = "no-referrer"
        return response

    def objection(self, request: Request) -> str | None:
        """Why a request is turned away; None: it is not."""
        hosts, origins = request.headers.get_all("Host"), request.headers.get_all("Origin")
        is_socket = request.headers.get("Upgrade", "").lower() == "websocket"
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            return "this host is not the one of the page: open the address that genelab printed"
        own = {f"{scheme}://{hosts[0]}".lower() for scheme in ("http", "https")}
        if not own.issuperset(origin.lower() for origin in origins):
            return "this origin is not the one of the page"
        if is_socket and not origins:
            return "a websocket says where it comes from"
        spoken = ",".join(request.headers.get_all("Sec-WebSocket-Protocol")).split(",")
        if is_socket and self._protocol not in (word.strip() for word in spoken):
            return "another version of the page: reload it"
        path = request.path.partition("?")[0].strip("/")
        if self.token is not None and not hmac.compare_digest(path.encode(), self.token.encode()):
            return "the token is missing: open the address that genelab printed, to its end"
        return None

    def _is_own(self, host: str) -> bool:
        parts = _HOST.fullmatch(host.lower())
        name = (parts[1] or parts[2]) if parts is not None else ""
        if self._everywhere and _is_address(name):
            return True  # a name that somebody lets point to this machine is no address
        return name in self._names

    # -- messages

    async def _hear(self, handle: Callable[[ServerConnection], Any], connection: ServerConnection) -> None:
        """Let viser hear of a connection only what is acceptable."""
        hear = connection.recv

        async def recv(decode: bool | None = None) -> Any:
            while not self.accepts(frame := await hear(decode)):
                pass
            return frame

        connection.recv = recv  # type: ignore[method-assign]
        await handle(connection)

    def accepts(self, frame: str | bytes) -> bool:
        """Whether a client's message is one that the page sends, with values that it can have."""
        import msgspec

        try:
            message = msgspec.msgpack.decode(frame) if isinstance(frame, bytes) else None
        except (msgspec.DecodeError, RecursionError):
            return False
        match message:
            case {"type": "GuiUpdateMessage", "uuid": str(uuid), "updates": {"value": value, **others}, **rest}:
                return not others and not rest and uuid in self.inputs and self.inputs[uuid](value)
            case {"type": "ViewerCameraMessage", **camera}:
                return camera.keys() == _CAMERA.keys() and all(_is_row(camera[key], n) for key, n in _CAMERA.items())
        return False

    # -- the end

    def hang_up(self, loop: Any) -> None:
        """End all connections, whether they answer or not; called in the server's own thread."""
        assert self._server is not None
        for connection in list(self._server.handlers):
            connection.transport.abort()
        loop.call_later(_AGAIN, self.hang_up, loop)


def is_number(value: Any, low: float = -math.inf, high: float = math.inf) -> bool:
    """Whether a value is a finite number of a range."""
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return is_one and math.isfinite(value) and low <= value <= high


def _is_address(name: str) -> bool:
    try:
        return ipaddress.ip_address(name) is not None
    except ValueError:
        return False


def _is_row(value: Any, length: int) -> bool:
    if length == 0:
        return is_number(value)
    return isinstance(value, list) and len(value) == length and all(is_number(part) for part in value)
