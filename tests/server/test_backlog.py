"""A client that sends much at once does not hold up others, which get their turns in between."""

from __future__ import annotations

import asyncio
import socket
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING

from morag.api.http import Response
from morag.server.backlog import Backlog
from tests.server.edge_on_socket import GET, LAST, post, serving

if TYPE_CHECKING:
    import pytest

    from morag.api.http import Request

MANY = 1000


def connected(port: int, address: str) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), source_address=(address, 0))
    client.setblocking(False)
    return client


async def read_all(client: socket.socket) -> bytes:
    loop, received = asyncio.get_running_loop(), b""
    with client:
        while part := await asyncio.wait_for(loop.sock_recv(client, 1 << 16), 30):
            received += part
    return received


def test_another_client_does_not_wait_for_many_requests_sent_at_once() -> None:
    before: list[int] = []
    answered = 0

    def answer(request: Request) -> Response:
        nonlocal answered
        if request.path == "/other":
            before.append(answered)
        answered += 1
        return Response(200, b"%d." % answered)

    async def scenario() -> bytes:
        async with serving(answer) as server:
            greedy = [connected(server.port, "127.0.0.1") for _ in range(3)]
            other = connected(server.port, "127.0.0.2")
            await asyncio.sleep(0.1)  # Until the server has accepted all connections.
            for client in greedy:
                client.sendall((MANY - 1) * GET + LAST)
            other.sendall(LAST.replace(b"/", b"/other", 1))
            await read_all(other)
            return b"".join([await read_all(client) for client in greedy])

    received = asyncio.run(scenario())
    assert received.count(b"HTTP/1.1 200") == received.count(b"HTTP/1.1") == 3 * MANY
    assert before[0] < 100


def test_a_body_in_small_chunks_arrives_whole() -> None:
    """The chunks are parsed in many shares, and so is the request that follows them."""
    bodies: list[bytes] = []

    def answer(request: Request) -> Response:
        bodies.append(request.body)
        return Response(200, b"done")

    body = bytes(65 + number % 26 for number in range(50_000))
    head = post(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    head = head.replace(b"Connection: close\r\n", b"")
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"

    async def scenario() -> bytes:
        async with serving(answer) as server:
            return await server.exchange(head + chunks + post(body))

    assert asyncio.run(scenario()).count(b"HTTP/1.1 200") == 2
    assert bodies == [body, body]


class Sender:
    """A connection with `count` shares to handle."""

    def __init__(self, name: str, count: int, done: list[str]) -> None:
        self._name, self._left, self._done = name, count, done
        self.is_cut = False

    def take_share(self) -> bool:
        self._done.append(self._name)
        self._left -= 1
        if self._left < 0:
            raise ValueError("no share is left")
        return self._left > 0

    def hang_up(self) -> None:
        self.is_cut = True


async def run_dry(backlog: Backlog) -> None:
    while backlog.senders:
        await asyncio.sleep(0)


def test_clients_take_turns_and_so_do_the_connections_of_each() -> None:
    done: list[str] = []

    async def scenario() -> None:
        backlog = Backlog(asyncio.get_running_loop(), monotonic)
        for name in ("a1", "a2"):
            backlog.add("a", Sender(name, 2, done))
        backlog.add("b", Sender("b1", 2, done))
        await run_dry(backlog)

    asyncio.run(scenario())
    assert done == ["a1", "b1", "a2", "b1", "a1", "a2"]


def test_the_event_loop_runs_between_shares() -> None:
    done: list[str] = []

    async def scenario() -> None:
        loop, seconds = asyncio.get_running_loop(), count()
        backlog = Backlog(loop, lambda: next(seconds))
        backlog.add("a", Sender("a", 3, done))
        while backlog.senders:
            loop.call_soon(done.append, "other")
            await asyncio.sleep(0)

    asyncio.run(scenario())
    assert "".join(name[0] for name in done).startswith("aoaoa")


def test_a_share_that_fails_ends_its_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []

    async def scenario() -> None:
        backlog = Backlog(asyncio.get_running_loop(), monotonic)
        broken, sound = Sender("broken", 0, done), Sender("sound", 3, done)
        backlog.add("a", broken)
        backlog.add("a", sound)
        await run_dry(backlog)
        assert (broken.is_cut, sound.is_cut) == (True, False)

    asyncio.run(scenario())
    assert done == ["broken", "sound", "sound", "sound"]
    assert "Handling a connection failed" in caplog.text
