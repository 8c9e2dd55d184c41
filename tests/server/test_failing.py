"""When something fails or waits inside the server: everybody is answered once, nothing is kept."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast

import pytest
from msgspec import Struct
from uvicorn.config import Config
from uvicorn.server import ServerState

from morag.api.http import Request, Response
from morag.config import ServerSettings, Settings
from morag.server.access_log import access_log
from morag.server.connection import Connection
from morag.server.edge import Edge
from morag.server.lifespan import Lifespan, _check_connections
from morag.server.running import _run_one
from morag.server.sockets import bound
from morag.server.stores import hiding
from morag.server.threads import Threads
from morag.versions.tickets import Spawn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from morag.api.http import Later

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
SECRET = "far://me:secret@host"
DONE = Response(200, b"done")

pytestmark = pytest.mark.filterwarnings("error")


class StandIn:
    """An API that does what a test says."""

    def __init__(self, answer: Callable[[Request], Response | Later]) -> None:
        self.answer = answer

    def failure(self, request: Request, error: Exception) -> Response:
        return Response(400, str(error).encode())


class Started(Struct, frozen=True):
    """An answer that comes later, in whichever way."""

    begin: Callable[[Spawn, Callable[[Response], None]], object]

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        self.begin(spawn, done)


class Carried(Struct, frozen=True):
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
async def carried(
    answer: Callable[[Request], Response | Later], **settings: Any
) -> AsyncIterator[Carried]:
    """The stand-in behind a real socket; at the end nothing may be left to do."""
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
        yield Carried(edge, server.sockets[0].getsockname()[1])
    assert await edge.finish()
    assert (edge.pending, edge.large_bodies.held_bytes) == (0, 0)


def fail(*_: object) -> NoReturn:
    raise OSError(f"cannot reach {SECRET}")


def fail_after_answering(spawn: Spawn, done: Callable[[Response], None]) -> None:
    done(DONE)
    fail()


FAILURES: dict[str, Callable[[Request], Response | Later]] = {
    "at once": fail,
    "in start": lambda _: Started(fail),
    "in a thread": lambda _: Started(lambda spawn, done: spawn(fail)),
    "in start, in a thread": lambda _: Started(
        lambda spawn, done: spawn(lambda: Started(fail).start(spawn, done))
    ),
    "while packing": lambda _: Response(200, cast("bytes", 100_000 * "x")),
    "while packing a little": lambda _: Response(200, cast("bytes", 20_000 * "x")),
}


@pytest.mark.parametrize("where", FAILURES)
def test_who_meets_a_bug_gets_an_answer(where: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> bytes:
        async with carried(FAILURES[where]) as server:
            packing = (b"Host", b"Accept-Encoding: gzip\r\nHost")
            return await server.exchange(GET.replace(*packing) + LAST.replace(*packing))

    heard = asyncio.run(scenario())
    assert heard.count(b"HTTP/1.1 500") == heard.count(b"HTTP/1.1") == 2
    assert heard.endswith(b"Internal error; the server's log has the details\n")
    assert len(caplog.records) == 2
    assert "GET / failed\nTraceback" in caplog.text
    assert "secret" not in caplog.text
    assert ("far://me:***@host" in caplog.text) is ("packing" not in where)


def test_what_fails_after_it_answered_answers_once() -> None:
    async def scenario() -> bytes:
        async with carried(lambda _: Started(fail_after_answering)) as server:
            return await server.exchange(GET + LAST)

    heard = asyncio.run(scenario())
    assert heard.count(b"HTTP/1.1 200") == heard.count(b"HTTP/1.1") == 2


class Gate:
    """Requests wait at it until it is opened."""

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


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("gone", [True, False])
def test_large_bodies_count_until_they_are_answered(packed: bool, gone: bool) -> None:
    """One client gets room for eight of the largest, be it there any more or not."""
    body = 4_000_000 * b"x"
    sent = post(gzip.compress(body), b"Content-Encoding: gzip") if packed else post(body)

    async def scenario() -> None:
        gate = Gate()
        async with carried(gate.answer, max_request_bytes=len(body)) as server:
            asked = [asyncio.create_task(server.exchange(sent)) for _ in range(8)]
            for _ in asked:
                await asyncio.wait_for(gate.arrived.acquire(), 30)
            assert server.edge.large_bodies.held_bytes > 7.5 * len(body)
            if gone:
                for task in asked:
                    task.cancel()
                await asyncio.wait(asked)
                while server.edge.connections:  # Until they are missed.
                    await asyncio.sleep(0)
            assert (await server.exchange(sent)).startswith(b"HTTP/1.1 503")
            assert server.edge.large_bodies.held_bytes > 7.5 * len(body)
            gate.open()
            if not gone:
                assert [(await task)[-4:] for task in asked] == 8 * [b"done"]
            while server.edge.pending:
                await asyncio.sleep(0)
            assert server.edge.large_bodies.held_bytes == 0
            asked = [asyncio.create_task(server.exchange(sent))]
            await asyncio.wait_for(gate.arrived.acquire(), 30)
            gate.open()
            assert (await asked[0]).endswith(b"done")

    asyncio.run(scenario())


@pytest.mark.parametrize("packed", [True, False])
def test_a_body_of_many_values_counts_with_what_it_becomes_in_memory(packed: bool) -> None:
    """Its client gets no room for another one, and leaves half of it to other clients."""
    body = b"[" + 1_000_000 * b"0," + b"0]"
    sent = post(gzip.compress(body), b"Content-Encoding: gzip") if packed else post(body)

    async def scenario() -> None:
        gate = Gate()
        async with carried(gate.answer, max_request_bytes=len(body)) as server:
            asked = []
            for number in (1, 2):
                asked.append(asyncio.create_task(server.exchange(sent, f"127.0.0.{number}")))
                await asyncio.wait_for(gate.arrived.acquire(), 30)
                held_bytes = server.edge.large_bodies.held_bytes
                assert held_bytes == number * server.edge.large_bodies.most_of_one_client
                refused = await server.exchange(sent, f"127.0.0.{number}")
                assert refused.startswith(b"HTTP/1.1 503")
            gate.open()
            assert [(await task)[-4:] for task in asked] == 2 * [b"done"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("size", "on_the_loop"), [(1000, True), (16 * 1024, True), (16 * 1024 + 1, False)]
)
def test_what_grows_when_unpacked_is_unpacked_by_a_thread(size: int, on_the_loop: bool) -> None:
    called: list[tuple[bool, int]] = []

    def answer(request: Request) -> Response:
        called.append((threading.get_ident() == main, len(request.body)))
        return DONE

    async def scenario() -> None:
        async with carried(answer) as server:
            sent = post(gzip.compress(bytes(size)), b"Content-Encoding: gzip")
            assert len(sent) < 1000
            assert (await server.exchange(sent)).endswith(b"done")

    main = threading.get_ident()
    asyncio.run(scenario())
    assert called == [(on_the_loop, size)]


def test_one_connection_that_fails_does_not_end_the_time_of_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing:
        def check(self, now: float) -> None:
            fail()

    async def scenario() -> bytes:
        async with carried(lambda _: DONE, idle_timeout_seconds=0.1) as server:
            server.edge.connections.add(cast("Connection", Failing()))
            checking = asyncio.create_task(_check_connections(server.edge))
            try:
                while not caplog.records:
                    await asyncio.sleep(0)
                return await server.exchange(b"")
            finally:
                checking.cancel()
                with suppress(asyncio.CancelledError):
                    await checking

    assert asyncio.run(scenario()) == b""
    assert "Checking a connection failed" in caplog.text


def test_a_start_that_fails_ends_with_an_error_and_closes_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Lifespan):
        def _edge(self) -> Edge:
            raise OSError("no more threads")

    server = ServerSettings(store=f"rocksdb:{tmp_path / 'data'}")
    lifespan = Failing(Settings(), server, loopback_only=True)
    lifespan.open()
    (listening,) = bound("127.0.0.1", 0)
    with listening:
        assert _run_one(server, lifespan, [listening]) == 1
    assert "Cannot start: Traceback" in caplog.text
    assert "OSError: no more threads" in caplog.text
    lifespan.open()  # Nobody else has it.
    lifespan.close()


def test_threads_end_together_or_not_at_all() -> None:
    threads, blocked = Threads(3), threading.Event()
    for _ in range(2):
        threads.spawn(lambda: cast("None", blocked.wait()))
    assert not threads.close(0.01)
    blocked.set()
    assert threads.close(30)


def test_the_access_log_tells_the_time_of_the_clock_it_was_given() -> None:
    lines: list[str] = []
    log = access_log("text", lines.append, lambda: 1_700_000_000_123_000_000)
    assert log is not None
    log(Request("GET", "/x", "hidden"), 200, 5, 1.5, "me")
    assert lines == ["2023-11-14T22:13:20.123+00:00 me GET /x 200 5 B 1.500 ms\n"]


@pytest.mark.parametrize(
    ("form", "told"), [("text", " B 1.235 ms\n"), ("json", '"millis":1.235}\n')]
)
def test_the_access_log_tells_microseconds_and_nothing_finer(
    form: Literal["text", "json"], told: str
) -> None:
    lines: list[str] = []
    log = access_log(form, lines.append, lambda: 0)
    assert log is not None
    log(Request("GET", "/x", ""), 200, 5, 1.2345678, "me")
    assert lines[0].endswith(told)


@pytest.mark.parametrize(
    ("url", "text", "shown"),
    [
        ("memory:", "me:secret@host", "me:secret@host"),
        (SECRET, "no far://me:secret@host, says secret", "no far://me:***@host, says ***"),
        ("x://a:p%40ss@h?token=t0k&b=1", "p@ss p%40ss t0k b=1", "*** *** *** b=1"),
        ("x://a:@h", "a:@h", "a:@h"),
        ("x://a:***@h", "a:***@h", "a:***@h"),
    ],
)
def test_what_a_url_hides_is_hidden_everywhere(url: str, text: str, shown: str) -> None:
    assert hiding(url)(text) == shown
