"""Clients that are slow but correct, and clients that disconnect, reset or send garbage."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final

from tests.load.http_client import closed, read_answer, request
from tests.load.working import NAMESPACE, operations, put

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from tests.load.working import Record
    from tests.server_process import Address

_SLOW_SEND_SECONDS: Final = 0.001
_SLOW_READ_SECONDS: Final = 0.002
_SLOW_READ_BYTES: Final = 512
_SMALL_BUFFER_BYTES: Final = 4096
_HANG_UP_SECONDS: Final = 30
# With a shorter pause, the broken clients would take most of the server's time.
_BETWEEN_BREAKS_SECONDS: Final = 0.02


async def be_slow(
    address: Address, branch: str, record: Record, random: Random, turns: Iterable[object]
) -> None:
    """Send byte by byte, and read the answer in small parts; it must be correct."""
    for _ in turns:
        body = {"requestedKeys": [{"elements": [NAMESPACE]}]}
        sent = random.choice(
            [
                request(address, "GET", f"/api/v2/trees/{branch}/entries?max-records=300"),
                request(address, "GET", f"/api/v1/trees/tree/{branch}/log?maxRecords=100"),
                request(address, "POST", f"/api/v2/trees/{branch}/contents", body),
            ]
        )
        # With small buffers of the system, slow reading affects the server.
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER_BYTES)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, address)
        reader, writer = await asyncio.open_connection(sock=connection, limit=_SLOW_READ_BYTES)
        try:
            for byte in sent:
                writer.write(bytes([byte]))
                await asyncio.sleep(_SLOW_SEND_SECONDS)
            received = asyncio.StreamReader()
            answering = asyncio.ensure_future(read_answer(received))
            while not answering.done():
                part = await reader.read(_SLOW_READ_BYTES)
                received.feed_data(part) if part else received.feed_eof()
                await asyncio.sleep(_SLOW_READ_SECONDS)
            answer = await answering
            if answer.status != 200:
                record.failures.append(f"slow: {sent!r}: {answer}")
            record.counts["slow"] += 1
        except (OSError, EOFError) as failure:
            record.failures.append(f"slow: {sent!r}: {failure!r}")
        finally:
            await closed(writer)


async def be_broken(
    address: Address, branch: str, record: Record, random: Random, turns: Iterable[object]
) -> None:
    """Any outcome is right for this client, as long as no other client is affected."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request(address, "GET", f"/api/v2/trees/{branch}"))
    head = (await read_answer(reader)).json["reference"]["hash"]
    await closed(writer)
    for turn, _ in enumerate(turns):
        message = f"broken {turn}"
        commit = request(
            address,
            "POST",
            f"/api/v2/trees/{branch}@{head}/history/commit",
            operations(message, put(f"broken-{turn}", turn, None)),
        )
        size = len(commit)
        manner = random.choice(["nothing", "head", "body", "whole", "garbage"])
        reader, writer = await asyncio.open_connection(*address)
        try:
            if manner == "head":
                writer.write(commit[: random.randrange(1, commit.index(b"\r\n\r\n"))])
            elif manner == "body":
                writer.write(commit[: random.randrange(commit.index(b"\r\n\r\n") + 5, size)])
            elif manner == "whole":
                record.tried.add(message)  # Its outcome stays unknown.
                writer.write(commit)
            elif manner == "garbage":
                writer.write(random.randbytes(random.randrange(1, 2000)) + b"\r\n\r\n")
            await writer.drain()
            if random.random() < 0.5:
                await closed(writer, reset=True)
            elif manner != "whole":
                writer.write_eof()
                async with asyncio.timeout(_HANG_UP_SECONDS):
                    await reader.read()
            record.counts[f"broken: {manner}"] += 1
        except ConnectionError:
            pass
        except TimeoutError:
            record.failures.append(f"broken: the server does not hang up on {manner}")
        finally:
            await closed(writer)
        await asyncio.sleep(_BETWEEN_BREAKS_SECONDS)
