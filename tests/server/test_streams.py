"""Large answers in pieces: whole for those who read, cut off visibly where they fail."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import socket
import zlib
from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from morag.api.http import Request, Response
from morag.api.later import InPieces, Pieces
from morag.api.turns import Turns
from morag.server.bodies import Packer
from morag.server.lifespan import _check_connections
from tests.server.talking import await_cut
from tests.server.test_failing import Gate, carried

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from morag.api.http import Later

PIECE = 100_000
MANY = 30
WHOLE = b"".join(bytes([65 + n % 26]) * PIECE for n in range(MANY))

pytestmark = pytest.mark.filterwarnings("error")


def in_pieces(pieces: Callable[[], Iterator[bytes]]) -> Callable[[Request], Response | Later]:
    turns = Turns(1, most_waiting=100)

    def answer(request: Request) -> Response | Later:
        headers = ((b"content-type", b"text/plain"),)
        work = lambda: Pieces(pieces(), headers)  # noqa: E731 - It stands for a handler.
        loop = asyncio.get_running_loop()
        return InPieces(turns, request.client, work, rendered, loop.time)

    return answer


def rendered(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (ValueError, MemoryError) as error:
        return Response(400, str(error).encode())


def all_pieces() -> Iterator[bytes]:
    for start in range(0, len(WHOLE), PIECE):
        yield b""
        yield WHOLE[start : start + PIECE]


def request(*headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    lines = [f"{method} / HTTP/{version}", "Host: localhost", *headers, "", ""]
    return "\r\n".join(lines).encode()


def heard(*sent: bytes, pieces: Callable[[], Iterator[bytes]] = all_pieces) -> bytes:
    async def scenario() -> bytes:
        async with carried(in_pieces(pieces)) as server:
            return await server.exchange(b"".join(sent))

    return asyncio.run(scenario())


def dechunked(body: bytes) -> tuple[bytes, bytes]:
    """The body of a chunked answer, and what follows it."""
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


def test_a_large_answer_comes_in_chunks_and_the_connection_goes_on() -> None:
    answers = heard(request(), request("Connection: close"))
    head, _, rest = answers.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    assert b"content-length" not in head
    first, rest = dechunked(rest)
    head, _, rest = rest.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    second, nothing = dechunked(rest)
    assert (first, second, nothing) == (WHOLE, WHOLE, b"")


def test_a_small_answer_comes_whole_with_its_length() -> None:
    answer = heard(request("Connection: close"), pieces=lambda: iter([b"", b"ab", b"", b"c"]))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-length: 3" in head
    assert body == b"abc"


def test_a_client_of_http_1_0_gets_it_plain_and_is_closed() -> None:
    head, _, body = heard(request(version="1.0")).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert body == WHOLE


def test_it_is_packed_piece_by_piece() -> None:
    answer = heard(request("Accept-Encoding: gzip", "Connection: close"))
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert b"content-encoding: gzip" in head
    body, _ = dechunked(rest)
    assert gzip.decompress(body) == WHOLE
    start = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(body[: len(body) // 2])
    assert 0 < len(start) < len(WHOLE)


def test_only_the_head_is_sent_to_those_who_ask_for_that() -> None:
    answer = heard(request("Connection: close", method="HEAD"))
    assert answer.endswith(b"\r\n\r\n")
    assert b"content-length" not in answer


def test_what_fails_at_the_start_is_answered_as_an_error() -> None:
    def fails() -> Iterator[bytes]:
        yield b"{"
        raise ValueError("nothing was sent yet")

    answer = heard(request("Connection: close"), pieces=fails)
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.endswith(b"nothing was sent yet")


def test_what_fails_later_is_cut_off_so_that_nobody_takes_it_for_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails() -> Iterator[bytes]:
        yield from all_pieces()
        raise ValueError("with a secret in it")

    async def scenario() -> None:
        async with carried(in_pieces(fails)) as server:
            with pytest.raises(ConnectionResetError):
                await server.exchange(request())

    asyncio.run(scenario())
    assert "A large answer was cut short by ValueError" in caplog.text
    assert "secret" not in caplog.text


def test_a_piece_that_cannot_be_packed_ends_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    pack, calls = Packer.packed, 0

    def fails(self: Packer, piece: bytes, *, is_last: bool) -> bytes:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise MemoryError
        return pack(self, piece, is_last=is_last)

    monkeypatch.setattr(Packer, "packed", fails)

    async def scenario() -> None:
        async with carried(in_pieces(all_pieces)) as server:
            with pytest.raises(ConnectionResetError):
                await server.exchange(request("Accept-Encoding: gzip"))

    asyncio.run(scenario())


def test_nothing_is_made_for_a_client_that_does_not_read() -> None:
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
        async with carried(in_pieces(counted)) as server:
            reader = slow_reader(server.port)
            reader.sendall(request())
            before = -1
            while made != before:
                before = made
                await asyncio.sleep(0.3)
            assert made < 20 << 20  # What the system's own buffers take.
            reader.close()
            await asyncio.sleep(0.1)

    asyncio.run(scenario())


def test_the_client_with_most_waiting_loses_what_it_has_not_read_for_longest() -> None:
    """Another client keeps its connection, and so does the one that has just begun to read."""
    size = 32 << 20
    answer = Response(200, bytes(size))

    async def scenario() -> None:
        # Three fit and four do not, although some of each waits in the system's own buffers.
        async with carried(lambda _: answer, max_unread_bytes=32 * size // 10) as s:
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
def test_a_client_that_is_gone_is_noticed_and_its_answer_given_up(
    version: str, sent_ahead: int
) -> None:
    """It closed both halves, which looks like closing one until it is sent something. Behind
    requests that were sent ahead nothing is read, so nobody sees that it did. A client of HTTP/1.0
    cannot be sent anything before its answer."""
    going_on, ended = Event(), Event()

    def endless() -> Iterator[bytes]:
        try:
            while True:
                going_on.wait(0.01)
                yield b""
        finally:
            ended.set()

    async def scenario() -> None:
        async with carried(in_pieces(endless)) as server:
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


def test_a_client_of_http_1_0_that_closed_its_half_waits_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a read; a change is made in any case, so its answer can wait."""
    monkeypatch.setattr("morag.server.writing._SILENT_SECONDS", 0.3)

    async def scenario() -> None:
        gate = Gate()
        async with carried(gate.answer) as server:
            asked = []
            for method in ("GET", "POST"):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(request(method=method, version="1.0"))
                writer.write_eof()
                asked.append((reader, writer))
            (read, _), (changed, _) = asked
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(read.read(), 30)
            gate.open()
            assert (await asyncio.wait_for(changed.read(), 30)).endswith(b"done")
            for _, writer in asked:
                writer.close()

    asyncio.run(scenario())


def test_a_client_of_http_1_0_that_closed_its_half_gets_its_answer() -> None:
    async def scenario() -> bytes:
        async with carried(in_pieces(all_pieces)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(request(version="1.0"))
            writer.write_eof()
            answer = await asyncio.wait_for(reader.read(), 30)
            writer.close()
            return answer

    assert asyncio.run(scenario()).endswith(b"\r\n\r\n" + WHOLE)


def test_clients_of_the_standard_library_skip_the_interim_response() -> None:
    """Python's takes any other than 100 for the answer, as Java's HttpURLConnection did."""

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
        async with carried(gate.answer) as server:
            asking = asyncio.create_task(asyncio.to_thread(ask, server.port, waits))
            assert await asyncio.to_thread(waits.wait, 30)
            gate.open()
            return await asking

    assert asyncio.run(scenario()) == b"done"


def test_a_client_that_closed_its_half_gets_its_answer() -> None:
    goes_on = Event()

    def late() -> Iterator[bytes]:
        goes_on.wait(30)
        yield from all_pieces()

    async def scenario() -> bytes:
        async with carried(in_pieces(late)) as server:
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


def test_a_server_that_is_to_stop_finishes_what_it_has_begun_to_send() -> None:
    async def scenario() -> bytes:
        async with carried(in_pieces(all_pieces)) as server:
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
