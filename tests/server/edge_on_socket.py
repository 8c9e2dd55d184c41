"""The edge on a real socket, with a stand-in for the API."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from uvicorn.config import Config
from uvicorn.server import ServerState

from morag.api.http import Request, Response
from morag.config import ServerSettings
from morag.masking import hiding
from morag.server.connection import Connection
from morag.server.edge import Edge
from morag.versions.tickets import Spawn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from morag.api.later import Later

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
SECRET = "remote://me:secret@host"
DONE = Response(200, b"done")


class StandIn:
    """An API whose answers a test provides."""

    def __init__(self, answer: Callable[[Request], Response | Later]) -> None:
        self.answer = answer

    def failure(self, request: Request, error: Exception) -> Response:
        """Raises the error again if only a bug can cause it."""
        if isinstance(error, OSError | TypeError):
            raise error
        return Response(400, str(error).encode())


class Started(Struct, frozen=True):
    """A deferred answer, started by the function of a test."""

    begin: Callable[[Spawn, Callable[[Response], None]], object]

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        self.begin(spawn, done)


class ServedEdge(Struct, frozen=True):
    edge: Edge
    port: int

    async def exchange(self, sent: bytes, address: str = "127.0.0.1") -> bytes:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(address, 0)
        )
        writer.write(sent)
        try:
            return await asyncio.wait_for(reader.read(), 30)
        except asyncio.CancelledError:
            reset_at_close = struct.pack("ii", 1, 0)
            client: socket.socket = writer.get_extra_info("socket")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset_at_close)
            raise
        finally:
            writer.close()


@asynccontextmanager
async def serving(
    answer: Callable[[Request], Response | Later], **settings: Any
) -> AsyncIterator[ServedEdge]:
    """Serve the stand-in on a real socket; at the end no work may be left."""
    edge = Edge(
        StandIn(answer),
        ServerSettings(threads=2, **settings),
        check_store=lambda: None,
        hide=hiding(SECRET),
    )
    config, state = Config(lambda: None), ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(config, state, {"edge": edge}), "127.0.0.1", 0
    )
    async with server:
        yield ServedEdge(edge, server.sockets[0].getsockname()[1])
    assert await edge.finish()
    assert (edge.pending, edge.large_bodies.held_bytes) == (0, 0)


class Gate:
    """Requests wait until `open` is called."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Callable[[Response], None]] = []
        self.arrived = asyncio.Semaphore(0)

    def answer(self, request: Request) -> Response | Later:
        return Started(lambda _, done: self._loop.call_soon_threadsafe(self._arrive, done))

    def open(self) -> None:
        while self._waiting:
            self._waiting.pop()(DONE)

    def _arrive(self, done: Callable[[Response], None]) -> None:
        self._waiting.append(done)
        self.arrived.release()


def post(body: bytes, *headers: bytes) -> bytes:
    head = b"\r\n".join([b"POST / HTTP/1.1", b"Host: localhost", b"Connection: close", *headers])
    return head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body
