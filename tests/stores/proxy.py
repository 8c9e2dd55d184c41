"""A proxy in front of a database that cuts connections and delays answers."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections import Counter
from contextlib import suppress
from random import Random
from threading import Thread
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from tests.server_process import Address

_CHUNK_BYTES: Final = 1 << 16
BEFORE: Final = "before"
AFTER: Final = "after"
LATE: Final = "late"


class Faults(Struct, frozen=True):
    """The probability of each fault, per chunk that a client sends.

    `before`: the connection is cut before the database gets the chunk. `after`: the connection is
    cut when the database answers. `late`: the answer waits for `seconds`.
    """

    before: float = 0.0
    after: float = 0.0
    late: float = 0.0
    seconds: float = 0.0

    def drawn(self, random: Random) -> str:
        drawn = random.random()
        for name in (BEFORE, AFTER, LATE):
            drawn -= getattr(self, name)
            if drawn < 0:
                return name
        return ""


class Proxy:
    """Listens on its own port; `faults` can be changed at any time, and `done` counts them."""

    def __init__(self, target: Address, seed: int = 0) -> None:
        self.faults = Faults()
        self.done: Counter[str] = Counter()
        self._target = target
        self._random = Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        self.address: Address = self._server.sockets[0].getsockname()[:2]

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _stop(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, client: StreamReader, to_client: StreamWriter) -> None:
        writers = [to_client]
        try:
            database, to_database = await asyncio.open_connection(*self._target)
            writers.append(to_database)
            connection = _Connection(self, to_client, to_database)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(connection.forward_requests(client))
                tasks.create_task(connection.forward_answers(database))
        except* (OSError, _Cut):
            pass
        finally:
            for writer in writers:
                writer.transport.abort()  # As if the cable were unplugged.

    def _fault(self) -> str:
        fault = self.faults.drawn(self._random)
        if fault:
            self.done[fault] += 1
        return fault


class _Cut(Exception):
    """Ends a connection."""


class _Connection:
    def __init__(self, proxy: Proxy, to_client: StreamWriter, to_database: StreamWriter) -> None:
        self._proxy = proxy
        self._to_client = to_client
        self._to_database = to_database
        self._fault = ""

    async def forward_requests(self, client: StreamReader) -> None:
        while sent := await client.read(_CHUNK_BYTES):
            self._fault = self._proxy._fault()
            if self._fault == BEFORE:
                raise _Cut
            self._to_database.write(sent)
            await self._to_database.drain()
        raise _Cut

    async def forward_answers(self, database: StreamReader) -> None:
        while sent := await database.read(_CHUNK_BYTES):
            if self._fault == AFTER:
                raise _Cut
            if self._fault == LATE:
                await asyncio.sleep(self._proxy.faults.seconds)
            self._fault = ""
            with suppress(ConnectionError):
                self._to_client.write(sent)
                await self._to_client.drain()
        raise _Cut
