"""A minimal HTTP/1.1 client, for many connections in one event loop."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

if TYPE_CHECKING:
    from tests.server_process import Address

_ANSWER_SECONDS: Final = 60
_BYTES_AT_ONCE: Final = 1 << 20


class Answer(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        packed = self.headers.get("content-encoding") == "gzip"
        return json.loads(gzip.decompress(self.body) if packed else self.body)


class Connection:
    """The keep-alive connection of one client, opened on first use."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> Answer:
        async with asyncio.timeout(_ANSWER_SECONDS):
            if self._streams is None:
                self._streams = await asyncio.open_connection(*self._address, limit=_BYTES_AT_ONCE)
            reader, writer = self._streams
            writer.write(request)
            answer = await read_answer(reader)
        if answer.headers.get("connection") == "close":
            await self.close()
        return answer

    async def close(self) -> None:
        if self._streams is not None:
            writer = self._streams[1]
            self._streams = None
            await closed(writer)


def request(
    address: Address,
    method: str,
    path: str,
    body: object = None,
    *,
    zipped: bool = False,
) -> bytes:
    """A request like that of the Java client; `zipped` compresses the body and accepts gzip."""
    head = [f"{method} {path} HTTP/1.1", f"Host: {address[0]}:{address[1]}"]
    head += ["Accept: application/json", "Nessie-Client-Spec: 2"]
    sent = b""
    if zipped:
        head.append("Accept-Encoding: gzip")
    if body is not None:
        sent = json.dumps(body).encode()
        head.append("Content-Type: application/json")
        if zipped:
            sent = gzip.compress(sent, 1)
            head.append("Content-Encoding: gzip")
        head.append(f"Content-Length: {len(sent)}")
    return "\r\n".join([*head, "", ""]).encode() + sent


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    status = int(first.split()[1])
    length = 0 if status == 204 else int(headers["content-length"])
    return Answer(status, headers, await reader.readexactly(length))


async def closed(writer: asyncio.StreamWriter, *, reset: bool = False) -> None:
    """Close the connection, with `reset` by a TCP reset."""
    if reset:
        raw: socket.socket = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()
    with suppress(ConnectionError):  # The other side closed first.
        await writer.wait_closed()
