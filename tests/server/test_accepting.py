"""Workers share the connections of a socket equally, and no connection waits for one of them."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import ssl
from contextlib import ExitStack, asynccontextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, ParamSpec

import pytest

from morag.server.accepting import OTHERS_SECONDS, Acceptor, ConnectionCounts
from tests.server.test_operations import children_of
from tests.server_process import Served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from pathlib import Path

P = ParamSpec("P")


def on_a_loop(test: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    """Run a test on an event loop of its own. Nothing that the loop calls may raise an error."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        errors: list[object] = []

        async def noting_errors() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: errors.append(context))
            await test(*args, **kwargs)

        asyncio.run(noting_errors())
        assert errors == []

    return run


class Greeter(asyncio.Protocol):
    """A connection that counts for its worker, and sends the number of this worker."""

    def __init__(self, worker: int, connections: set[Greeter]) -> None:
        self._worker, self._connections = worker, connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._connections.add(self)
        transport.write(b"%d" % self._worker)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)


class Workers:
    """Acceptors of one socket on one event loop, where their order is always the same."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        """The sockets are duplicates, because a loop has one reader for each descriptor."""
        self._address = sockets[0].getsockname()
        self._counts = ConnectionCounts(len(sockets))
        self._connections: list[set[Greeter]] = [set() for _ in sockets]
        self._clients: list[tuple[int, asyncio.StreamWriter]] = []
        self._acceptors = [self._acceptor(each, number) for number, each in enumerate(sockets)]

    async def connect(self, count: int) -> list[int]:
        """Open connections. Returns the numbers of the workers that accepted them."""
        accepted = []
        for _ in range(count):
            reader, writer = await asyncio.open_connection(*self._address)
            accepted.append(int(await reader.readexactly(1)))
            self._clients.append((accepted[-1], writer))
        return accepted

    async def disconnect(self, worker: int) -> None:
        """Close the connections of a worker."""
        for number, client in self._clients:
            if number == worker:
                client.close()
        while self._connections[worker]:
            await asyncio.sleep(0)
        self._counts.update(worker, 0)

    async def close(self) -> None:
        for number, acceptor in enumerate(self._acceptors):
            await acceptor.close()
            await self.disconnect(number)

    def _acceptor(self, listening: socket.socket, number: int) -> Acceptor:
        connections = self._connections[number]

        def is_my_turn() -> bool:
            self._counts.update(number, len(connections))
            return self._counts.is_least(number)

        return Acceptor(listening, partial(Greeter, number, connections), None, is_my_turn)


@asynccontextmanager
async def workers(count: int) -> AsyncIterator[Workers]:
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        others = [stack.enter_context(listening.dup()) for _ in range(count - 1)]
        made = Workers([listening, *others])
        yield made
        await made.close()


@on_a_loop
async def test_connections_are_shared_equally() -> None:
    async with workers(3) as shared:
        assert sorted(await shared.connect(12)) == 4 * [0] + 4 * [1] + 4 * [2]


@on_a_loop
async def test_a_worker_that_lost_connections_gets_the_next_ones() -> None:
    async with workers(2) as shared:
        await shared.connect(8)
        await shared.disconnect(1)
        assert await shared.connect(4) == 4 * [1]


def test_a_worker_that_left_is_not_waited_for() -> None:
    counts = ConnectionCounts(2)
    counts.update(0, 5)
    assert counts.is_least(0)
    counts.update(1, 4)
    assert not counts.is_least(0)
    counts.remove(1)
    assert counts.is_least(0)


async def accepted_by(listening: socket.socket, is_my_turn: Callable[[], bool]) -> bytes:
    """What a client receives if this is the only worker that accepts."""
    acceptor = Acceptor(listening, partial(Greeter, 7, set()), None, is_my_turn)
    reader, writer = await asyncio.open_connection(*listening.getsockname())
    received = await reader.readexactly(1)
    writer.close()
    await acceptor.close()
    return received


@on_a_loop
async def test_a_connection_that_no_other_worker_takes_is_accepted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert await accepted_by(listening, lambda: False) == b"7"


class Short(socket.socket):
    """Has no file descriptor for the first connections."""

    failures = 2

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


@on_a_loop
async def test_accepting_goes_on_after_a_shortage_of_file_descriptors() -> None:
    with Short() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        assert await accepted_by(listening, lambda: True) == b"7"
        assert listening.failures == 0


@on_a_loop
async def test_a_client_that_fails_in_the_handshake_is_dropped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        acceptor = Acceptor(listening, partial(Greeter, 7, set()), tls, lambda: True)
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert b"7" not in await reader.read()
        writer.close()
        await acceptor.close()


@pytest.mark.parametrize("is_my_turn", [True, False])
@on_a_loop
async def test_a_closed_acceptor_leaves_connections_to_others(is_my_turn: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, listening.dup() as other:
        asked = asyncio.Event()

        def turn() -> bool:
            asked.set()
            return is_my_turn

        def never() -> Greeter:
            raise AssertionError("it is closed")

        closed = Acceptor(other, never, None, turn)
        if not is_my_turn:  # Close it while it leaves a connection to others.
            connecting = asyncio.create_task(asyncio.open_connection(*listening.getsockname()))
            await asked.wait()
            (await connecting)[1].close()
        await closed.close()
        await asyncio.sleep(2 * OTHERS_SECONDS)
        assert await accepted_by(listening, lambda: True) == b"7"


def test_a_worker_that_hangs_takes_no_connections(tmp_path: Path) -> None:
    with Served(tmp_path, "--workers", "2", store=f"sqlite:{tmp_path / 'morag.db'}") as server:
        hanging = children_of(server.process.pid)[0]
        os.kill(hanging, signal.SIGSTOP)
        assert [server.ask("GET", "/api/v2/trees/main").status for _ in range(8)] == 8 * [200]
        os.kill(hanging, signal.SIGCONT)
