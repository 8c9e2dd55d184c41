"""Clients that are slow, though right, and clients that break off, reset or talk nonsense."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final

from tests.load.talking import closed, read_answer, request
from tests.load.working import NAMESPACE, operations, put

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from tests.load.working import Record
    from tests.serving import Address

_SLOW_SEND_SECONDS: Final = 0.001
_SLOW_READ_SECONDS: Final = 0.002
_SLOW_READ_BYTES: Final = 512
_SMALL_BUFFER_BYTES: Final = 4096
_HANG_UP_SECONDS: Final = 30
_BETWEEN_BREAKS_SECONDS: Final = 0.02  # Or those who break off would have the server to themselves.


async def be_slow(
    address: Address, branch: str, record: Record, random: Random, turns: Iterable[object]
) -> None:
    """Send byte by byte, and take the answer in sips; it must be right all the same."""
    for _ in turns:
        body = {"requestedKeys": [{"elements": [NAMESPACE]}]}
        asked = random.choice(
            [
                request(address, "GET", f"/api/v2/trees/{branch}/entries?max-records=300"),
                request(address, "GET", f"/api/v1/trees/tree/{branch}/log?maxRecords=100"),
                request(address, "POST", f"/api/v2/trees/{branch}/contents", body),
            ]
        )
        # Without room in the system's own buffers, slow reading is felt by the server.
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER_BYTES)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, address)
        reader, writer = await asyncio.open_connection(sock=connection, limit=_SLOW_READ_BYTES)
        try:
            for byte in asked:
                writer.write(bytes([byte]))
                await asyncio.sleep(_SLOW_SEND_SECONDS)
            sipped = asyncio.StreamReader()
            answering = asyncio.ensure_future(read_answer(sipped))
            while not answering.done():
                sip = await reader.read(_SLOW_READ_BYTES)
                sipped.feed_data(sip) if sip else sipped.feed_eof()
                await asyncio.sleep(_SLOW_READ_SECONDS)
            answer = await answering
            if answer.status != 200:
                record.failures.append(f"slow: {asked!r}: {answer}")
            record.counts["slow"] += 1
        except (OSError, EOFError) as failure:
            record.failures.append(f"slow: {asked!r}: {failure!r}")
        finally:
            await closed(writer)


async def be_broken(
    address: Address, branch: str, record: Record, random: Random, turns: Iterable[object]
) -> None:
    """Whatever happens to this one is right, as long as nobody else notices."""
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
                record.tried.add(message)  # Whether it is carried out, nobody will ever be told.
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
