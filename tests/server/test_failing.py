"""Failures and waits inside the server: every client is answered once, no memory is kept."""

from __future__ import annotations

import asyncio
import gzip
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NoReturn, cast

import pytest

from morag.api.http import Request, Response
from morag.config import ServerSettings, Settings
from morag.masking import hiding
from morag.server.access_log import access_log
from morag.server.lifespan import Lifespan, _check_connections
from morag.server.running import _run_one
from morag.server.sockets import bound
from morag.server.threads import Threads
from tests.server.edge_on_socket import DONE, GET, LAST, SECRET, Gate, Started, post, serving

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from morag.api.later import Later
    from morag.server.connection import Connection
    from morag.server.edge import Edge
    from morag.versions.tickets import Spawn

pytestmark = pytest.mark.filterwarnings("error")


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
def test_a_client_gets_an_answer_despite_a_bug(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> bytes:
        async with serving(FAILURES[where]) as server:
            packing = (b"Host", b"Accept-Encoding: gzip\r\nHost")
            return await server.exchange(GET.replace(*packing) + LAST.replace(*packing))

    received = asyncio.run(scenario())
    assert received.count(b"HTTP/1.1 500") == received.count(b"HTTP/1.1") == 2
    assert received.endswith(b"Internal error; the server's log has the details\n")
    assert len(caplog.records) == 2
    assert "GET / failed\nTraceback" in caplog.text
    assert "secret" not in caplog.text
    assert ("remote://me:***@host" in caplog.text) is ("packing" not in where)


@pytest.mark.parametrize("bytes_sent", [100, 5000])
def test_pages_of_listed_origins_can_read_errors_of_the_edge(bytes_sent: int) -> None:
    """A body that cannot be decompressed, on the event loop or, if it is larger, in a thread."""
    origin = b"https://ui.example.com"
    sent = post(bytes_sent * b"x", b"Content-Encoding: gzip", b"Origin: " + origin)

    async def scenario() -> bytes:
        async with serving(lambda _: DONE, cors_origins=(origin.decode(),)) as server:
            return await server.exchange(sent)

    received = asyncio.run(scenario())
    assert received.startswith(b"HTTP/1.1 400")
    assert received.count(b"access-control-allow-origin: " + origin) == 1


def test_a_failure_after_the_answer_gives_no_second_answer() -> None:
    async def scenario() -> bytes:
        async with serving(lambda _: Started(fail_after_answering)) as server:
            return await server.exchange(GET + LAST)

    received = asyncio.run(scenario())
    assert received.count(b"HTTP/1.1 200") == received.count(b"HTTP/1.1") == 2


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("gone", [True, False])
def test_large_bodies_count_until_they_are_answered(packed: bool, gone: bool) -> None:
    """One client gets room for eight bodies of the largest size, even if it has disconnected."""
    body = 4_000_000 * b"x"
    sent = post(gzip.compress(body), b"Content-Encoding: gzip") if packed else post(body)

    async def scenario() -> None:
        gate = Gate()
        async with serving(gate.answer, max_request_bytes=len(body)) as server:
            pending = [asyncio.create_task(server.exchange(sent)) for _ in range(8)]
            for _ in pending:
                await asyncio.wait_for(gate.arrived.acquire(), 30)
            assert server.edge.large_bodies.held_bytes > 7.5 * len(body)
            if gone:
                for task in pending:
                    task.cancel()
                await asyncio.wait(pending)
                while server.edge.connections:  # Until the server has noticed.
                    await asyncio.sleep(0)
            assert (await server.exchange(sent)).startswith(b"HTTP/1.1 503")
            assert server.edge.large_bodies.held_bytes > 7.5 * len(body)
            gate.open()
            if not gone:
                assert [(await task)[-4:] for task in pending] == 8 * [b"done"]
            while server.edge.pending:
                await asyncio.sleep(0)
            assert server.edge.large_bodies.held_bytes == 0
            pending = [asyncio.create_task(server.exchange(sent))]
            await asyncio.wait_for(gate.arrived.acquire(), 30)
            gate.open()
            assert (await pending[0]).endswith(b"done")

    asyncio.run(scenario())


@pytest.mark.parametrize("packed", [True, False])
def test_a_body_of_many_values_counts_with_its_decoded_size(packed: bool) -> None:
    """The client gets no room for a second body, and half of the room stays for others."""
    body = b"[" + 1_000_000 * b"0," + b"0]"
    sent = post(gzip.compress(body), b"Content-Encoding: gzip") if packed else post(body)

    async def scenario() -> None:
        gate = Gate()
        async with serving(gate.answer, max_request_bytes=len(body)) as server:
            pending = []
            for number in (1, 2):
                pending.append(asyncio.create_task(server.exchange(sent, f"127.0.0.{number}")))
                await asyncio.wait_for(gate.arrived.acquire(), 30)
                held_bytes = server.edge.large_bodies.held_bytes
                assert held_bytes == number * server.edge.large_bodies.most_of_one_client
                refused = await server.exchange(sent, f"127.0.0.{number}")
                assert refused.startswith(b"HTTP/1.1 503")
            gate.open()
            assert [(await task)[-4:] for task in pending] == 2 * [b"done"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("size", "on_the_loop"), [(1000, True), (16 * 1024, True), (16 * 1024 + 1, False)]
)
def test_a_body_that_grows_is_decompressed_by_a_thread(size: int, on_the_loop: bool) -> None:
    called: list[tuple[bool, int]] = []

    def answer(request: Request) -> Response:
        called.append((threading.get_ident() == main, len(request.body)))
        return DONE

    async def scenario() -> None:
        async with serving(answer) as server:
            sent = post(gzip.compress(bytes(size)), b"Content-Encoding: gzip")
            assert len(sent) < 1000
            assert (await server.exchange(sent)).endswith(b"done")

    main = threading.get_ident()
    asyncio.run(scenario())
    assert called == [(on_the_loop, size)]


def test_a_bug_in_one_connection_does_not_end_the_time_outs_of_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing:
        def check(self, now: float) -> None:
            fail()

    async def scenario() -> bytes:
        async with serving(lambda _: DONE, idle_timeout_seconds=0.1) as server:
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
    lifespan.open()  # The store is not locked.
    lifespan.close()


def test_threads_end_together_or_not_at_all() -> None:
    threads, blocked = Threads(3), threading.Event()
    for _ in range(2):
        threads.spawn(lambda: cast("None", blocked.wait()))
    assert not threads.close(0.01)
    blocked.set()
    assert threads.close(30)


def test_the_access_log_uses_the_given_clock() -> None:
    lines: list[str] = []
    log = access_log("text", lines.append, lambda: 1_700_000_000_123_000_000)
    assert log is not None
    log(Request("GET", "/x", "hidden"), 200, 5, 1.5, "me")
    assert lines == ["2023-11-14T22:13:20.123+00:00 me GET /x 200 5 B 1.500 ms\n"]


@pytest.mark.parametrize(
    ("form", "expected"), [("text", " B 1.235 ms\n"), ("json", '"millis":1.235}\n')]
)
def test_the_access_log_rounds_to_microseconds(
    form: Literal["text", "json"], expected: str
) -> None:
    lines: list[str] = []
    log = access_log(form, lines.append, lambda: 0)
    assert log is not None
    log(Request("GET", "/x", ""), 200, 5, 1.2345678, "me")
    assert lines[0].endswith(expected)


@pytest.mark.parametrize(
    ("url", "text", "shown"),
    [
        ("memory:", "me:secret@host", "me:secret@host"),
        (SECRET, "no remote://me:secret@host, says secret", "no remote://me:***@host, says ***"),
        ("x://a:p%40ss@h?token=t0k&b=1", "p@ss p%40ss t0k b=1", "*** *** *** b=1"),
        ("x://a:@h", "a:@h", "a:@h"),
        ("x://a:***@h", "a:***@h", "a:***@h"),
    ],
)
def test_secrets_of_a_url_are_masked_in_any_text(url: str, text: str, shown: str) -> None:
    assert hiding(url)(text) == shown
