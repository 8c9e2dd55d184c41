"""Large answers are streamed in pieces: complete, or visibly truncated after a failure."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import socket
import zlib
from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING

import pytest

from morag.api.fair_queue import FairQueue
from morag.api.http import Request, Response
from morag.api.later import InPieces, Pieces
from morag.server.compression import Compressor
from morag.server.lifespan import _check_connections
from tests.server.edge_on_socket import Gate, serving
from tests.server.raw_http import await_cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from morag.api.later import Later

PIECE = 100_000
MANY = 30
WHOLE = b"".join(bytes([65 + n % 26]) * PIECE for n in range(MANY))

pytestmark = pytest.mark.filterwarnings("error")


def in_pieces(pieces: Callable[[], Iterator[bytes]]) -> Callable[[Request], Response | Later]:
    queue = FairQueue(1, most_waiting=100)

    def answer(request: Request) -> Response | Later:
        headers = ((b"content-type", b"text/plain"),)
        work = lambda: Pieces(pieces(), headers)  # noqa: E731 - The work of a handler.
        loop = asyncio.get_running_loop()
        return InPieces(queue, request.client, work, loop.time)

    return answer


def all_pieces() -> Iterator[bytes]:
    for start in range(0, len(WHOLE), PIECE):
        yield b""
        yield WHOLE[start : start + PIECE]


def request(*headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    lines = [f"{method} / HTTP/{version}", "Host: localhost", *headers, "", ""]
    return "\r\n".join(lines).encode()


def received(*sent: bytes, pieces: Callable[[], Iterator[bytes]] = all_pieces) -> bytes:
    async def scenario() -> bytes:
        async with serving(in_pieces(pieces)) as server:
            return await server.exchange(b"".join(sent))

    return asyncio.run(scenario())


def dechunked(body: bytes) -> tuple[bytes, bytes]:
    """The body of a chunked answer, and the bytes after it."""
    found = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        if size == b"0":
            assert body.startswith(b"\r\n")
            return found, body[2:]
        length = int(size, 16)
        assert body[length : length + 2] == b"\r\n"
        found += body[:length]
        body = body[length + 2 :]


def test_a_large_answer_comes_in_chunks_and_the_connection_stays_open() -> None:
    answers = received(request(), request("Connection: close"))
    head, _, rest = answers.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    assert b"content-length" not in head
    first, rest = dechunked(rest)
    head, _, rest = rest.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    second, nothing = dechunked(rest)
    assert (first, second, nothing) == (WHOLE, WHOLE, b"")


def test_a_small_answer_comes_whole_with_its_length() -> None:
    answer = received(request("Connection: close"), pieces=lambda: iter([b"", b"ab", b"", b"c"]))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-length: 3" in head
    assert body == b"abc"


def test_a_client_of_http_1_0_gets_no_chunks_and_is_closed() -> None:
    head, _, body = received(request(version="1.0")).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert body == WHOLE


def test_an_answer_is_compressed_piece_by_piece() -> None:
    answer = received(request("Accept-Encoding: gzip", "Connection: close"))
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert b"content-encoding: gzip" in head
    body, _ = dechunked(rest)
    assert gzip.decompress(body) == WHOLE
    start = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(body[: len(body) // 2])
    assert 0 < len(start) < len(WHOLE)


def test_a_head_request_gets_only_the_head() -> None:
    answer = received(request("Connection: close", method="HEAD"))
    assert answer.endswith(b"\r\n\r\n")
    assert b"content-length" not in answer


def test_a_failure_at_the_start_is_answered_as_an_error() -> None:
    def fails() -> Iterator[bytes]:
        yield b"{"
        raise ValueError("nothing was sent yet")

    answer = received(request("Connection: close"), pieces=fails)
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.endswith(b"nothing was sent yet")


def test_a_later_failure_cuts_the_connection_so_that_the_answer_is_not_taken_for_whole(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails() -> Iterator[bytes]:
        yield from all_pieces()
        raise ValueError("with a secret in it")

    async def scenario() -> None:
        async with serving(in_pieces(fails)) as server:
            with pytest.raises(ConnectionResetError):
                await server.exchange(request())

    asyncio.run(scenario())
    assert "A large response was cut short by ValueError" in caplog.text
    assert "secret" not in caplog.text


def test_a_piece_that_cannot_be_compressed_ends_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    pack, calls = Compressor.compressed, 0

    def fails(self: Compressor, piece: bytes, *, is_last: bool) -> bytes:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise MemoryError
        return pack(self, piece, is_last=is_last)

    monkeypatch.setattr(Compressor, "compressed", fails)

    async def scenario() -> None:
        async with serving(in_pieces(all_pieces)) as server:
            with pytest.raises(ConnectionResetError):
                await server.exchange(request("Accept-Encoding: gzip"))

    asyncio.run(scenario())


def test_pieces_are_not_made_for_a_client_that_does_not_read() -> None:
    made = 0

    def counted() -> Iterator[bytes]:
        nonlocal made
        for piece in all_pieces():
            made += len(piece)
            yield piece
        while True:
            made += PIECE
            yield WHOLE[:PIECE]

    async def scenario() -> None:
        async with serving(in_pieces(counted)) as server:
            reader = slow_reader(server.port)
            reader.sendall(request())
            before = -1
            while made != before:
                before = made
                await asyncio.sleep(0.3)
            assert made < 20 << 20  # The capacity of the system's buffers.
            reader.close()
            await asyncio.sleep(0.1)

    asyncio.run(scenario())


def test_the_client_with_most_unread_bytes_loses_its_oldest_answer() -> None:
    """Other clients keep their connections, and so does a client that has just begun to read."""
    size = 32 << 20
    answer = Response(200, bytes(size))

    async def scenario() -> None:
        # Three answers fit and four do not, although the system buffers a part of each.
        async with serving(lambda _: answer, max_unread_bytes=32 * size // 10) as s:
            other, *readers = (slow_reader(s.port, f"127.0.0.{n}") for n in (2, 1, 1, 1))
            for reader in (other, *readers):
                reader.sendall(request())
                assert await asyncio.to_thread(reader.recv, 1)  # Its answer has begun.
            await asyncio.to_thread(await_cut, readers[0])
            assert len(s.edge.connections) == 3
            for reader in (other, readers[-1]):
                read = await asyncio.to_thread(read_to, reader, size)
                assert read >= size
            for reader in (other, *readers):
                reader.close()
            await asyncio.sleep(0.1)

    asyncio.run(scenario())


def read_to(reader: socket.socket, size: int) -> int:
    read = 0
    while read < size and (part := reader.recv(1 << 20)):
        read += len(part)
    return read


@pytest.mark.parametrize(("version", "sent_ahead"), [("1.1", 0), ("1.1", 3), ("1.0", 0)])
def test_the_answer_to_a_disconnected_client_is_given_up(version: str, sent_ahead: int) -> None:
    """A full close looks like a half-close until the server sends something. Behind pipelined
    requests nothing is read, so the transport does not notice it. A client of HTTP/1.0 cannot be
    sent anything before its answer."""
    going_on, ended = Event(), Event()

    def endless() -> Iterator[bytes]:
        try:
            while True:
                going_on.wait(0.01)
                yield b""
        finally:
            ended.set()

    async def scenario() -> None:
        async with serving(in_pieces(endless)) as server:
            client = socket.create_connection(("127.0.0.1", server.port))
            client.sendall(request(version=version) * (1 + sent_ahead))
            await asyncio.sleep(0.1)
            assert server.edge.pending == 1
            client.close()
            checking = asyncio.create_task(_check_connections(server.edge))
            for _ in range(300):
                if not server.edge.pending:
                    break
                await asyncio.sleep(0.05)
            checking.cancel()
            assert not server.edge.pending

    asyncio.run(scenario())
    assert ended.wait(10)


def test_a_half_closed_client_of_http_1_0_waits_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limit holds for a read; a change is made in any case, so its answer can wait."""
    monkeypatch.setattr("morag.server.client_probe._SILENT_SECONDS", 0.3)

    async def scenario() -> None:
        gate = Gate()
        async with serving(gate.answer) as server:
            pending = []
            for method in ("GET", "POST"):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(request(method=method, version="1.0"))
                writer.write_eof()
                pending.append((reader, writer))
            (read, _), (changed, _) = pending
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(read.read(), 30)
            gate.open()
            assert (await asyncio.wait_for(changed.read(), 30)).endswith(b"done")
            for _, writer in pending:
                writer.close()

    asyncio.run(scenario())


def test_a_half_closed_client_of_http_1_0_gets_its_answer() -> None:
    async def scenario() -> bytes:
        async with serving(in_pieces(all_pieces)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(request(version="1.0"))
            writer.write_eof()
            answer = await asyncio.wait_for(reader.read(), 30)
            writer.close()
            return answer

    assert asyncio.run(scenario()).endswith(b"\r\n\r\n" + WHOLE)


def test_clients_of_the_standard_library_skip_the_interim_response() -> None:
    """Python's client takes any status but 100 for the answer, as Java's HttpURLConnection did."""

    def ask(port: int, waits: Event) -> bytes:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        with closing(client):
            client.request("GET", "/")
            client.sock.shutdown(socket.SHUT_WR)
            assert client.sock.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 100"
            waits.set()
            answer = client.getresponse()
            assert answer.status == 200
            return answer.read()

    async def scenario() -> bytes:
        gate, waits = Gate(), Event()
        async with serving(gate.answer) as server:
            asking = asyncio.create_task(asyncio.to_thread(ask, server.port, waits))
            assert await asyncio.to_thread(waits.wait, 30)
            gate.open()
            return await asking

    assert asyncio.run(scenario()) == b"done"


def test_a_half_closed_client_gets_its_answer() -> None:
    goes_on = Event()

    def late() -> Iterator[bytes]:
        goes_on.wait(30)
        yield from all_pieces()

    async def scenario() -> bytes:
        async with serving(in_pieces(late)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(request())
            writer.write_eof()
            interim = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
            assert interim.startswith(b"HTTP/1.1 100")
            goes_on.set()
            answer = await asyncio.wait_for(reader.read(), 30)
            writer.close()
            return answer

    head, _, rest = asyncio.run(scenario()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert dechunked(rest) == (WHOLE, b"")


def test_a_server_that_stops_finishes_the_answers_it_has_begun() -> None:
    async def scenario() -> bytes:
        async with serving(in_pieces(all_pieces)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 16)
            writer.write(request())
            answer = await asyncio.wait_for(reader.read(1000), 30)
            for connection in tuple(server.edge.connections):
                connection.shutdown()
            stopping = asyncio.create_task(server.edge.finish())
            await asyncio.sleep(0.1)
            answer += await asyncio.wait_for(reader.read(), 30)
            assert await stopping
            writer.close()
            return answer

    _, _, rest = asyncio.run(scenario()).partition(b"\r\n\r\n")
    assert dechunked(rest) == (WHOLE, b"")


def slow_reader(port: int, address: str = "127.0.0.1") -> socket.socket:
    reader = socket.socket()
    reader.bind((address, 0))
    reader.settimeout(30)
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect(("127.0.0.1", port))
    return reader
