"""HTTP responses of all shapes: whole ones are read, truncated and malformed ones are refused."""

from __future__ import annotations

from contextlib import suppress
from http.client import HTTPResponse
from io import BytesIO
from typing import TYPE_CHECKING, Final, cast

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from morag.client import OutcomeUnknown, ServerUnreachable
from morag.client.connections import Connections
from morag.client.server_uris import parse_server_uri
from tests.client.scripted_server import AcceptedConnection, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from socket import socket

    from morag.client.connections import Reply

_HEADER_NAMES: Final = st.from_regex(r"x-[a-z0-9-]{0,8}", fullmatch=True)
_HEADER_VALUES: Final = st.from_regex(r"[!-~]([ -~]{0,12}[!-~])?", fullmatch=True)
_BODIES: Final = st.binary(max_size=300) | st.builds(
    lambda byte, times: byte * times, st.binary(min_size=1, max_size=1), st.integers(0, 100_000)
)
_CHUNK_EXTENSIONS: Final = st.sampled_from(["", ";", "; a=b", " ;a"])


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, bytes, int]:
    """A response, its body, and the least number of bytes that make the response complete.

    The body has a length, comes in chunks, ends with the connection, or is absent.
    In chunks, urllib3 needs no more than the size 0 of the last chunk, which ends the body.
    """
    body = plain = draw(_BODIES)
    extra = draw(st.dictionaries(_HEADER_NAMES, _HEADER_VALUES))
    headers = [f"{name}: {value}" for name, value in extra.items()]
    way = draw(st.sampled_from(["length", "chunks", "end", "none"]))
    status = draw(st.sampled_from([200, 200, 200, 400, 404, 409, 500])) if way != "none" else 204
    if way == "length":
        headers.append(f"Content-Length: {len(body)}")
    elif way == "chunks":
        headers.append("Transfer-Encoding: chunked")
        body = _in_chunks(draw, body)
    elif way == "none":
        body = plain = b""
    if draw(st.booleans()):
        headers.append("Connection: close")
    version = draw(st.sampled_from(["1.0", "1.1"])) if way != "chunks" else "1.1"
    early = "HTTP/1.1 100 Continue\r\n\r\n" if draw(st.booleans()) else ""
    reason = draw(st.sampled_from(["", " ", " OK", " Not Found At All"]))
    head = "\r\n".join([f"HTTP/{version} {status}{reason}", *headers, "", ""])
    sent = (early + head).encode()
    needed = {"end": min(len(body), 1), "chunks": body.rfind(b"\r\n0\r\n") + 3}.get(way, len(body))
    return sent + body, plain, len(sent) + needed


class AnswerOnce:
    """A server that gives one answer to each request, in pieces, and closes the connection."""

    def __init__(self) -> None:
        self.answer = b""
        self.cuts: list[int] = []
        self.hangs_up = True

    def __call__(self, connection: AcceptedConnection, number: int) -> None:
        connection.read_request()
        rest = self.answer
        for cut in self.cuts:
            connection.send(rest[:cut])
            rest = rest[cut:]
        connection.send(rest)
        if not self.hangs_up:
            with suppress(ConnectionError):
                connection.read_request()


@pytest.fixture(scope="module")
def answer_once() -> AnswerOnce:
    return AnswerOnce()


@pytest.fixture(scope="module")
def connections(answer_once: AnswerOnce) -> Iterator[Connections]:
    with ScriptedServer(answer_once) as server:
        connections = Connections(parse_server_uri(server.uri), None, 10, 2)
        yield connections
        connections.close()


def read(connections: Connections, *, repeatable: bool = True) -> Reply:
    return connections.send("GET", "/", {"host": "test"}, None, repeatable=repeatable)


@settings(deadline=None, max_examples=60)  # Threads wait for each other on a busy machine.
@given(answer=answers(), cuts=st.lists(st.integers(1, 5000), max_size=6))
def test_whole_answers_are_read_however_they_arrive(
    answer_once: AnswerOnce,
    connections: Connections,
    answer: tuple[bytes, bytes, int],
    cuts: list[int],
) -> None:
    sent, body, _ = answer
    answer_once.answer, answer_once.cuts, answer_once.hangs_up = sent, cuts, True
    status = _status(sent)
    assume(body or status != 200)
    reply = read(connections)
    assert (reply.status, reply.body) == (status, body)


@settings(deadline=None, max_examples=60)
@given(answer=answers())
def test_a_connection_is_kept_if_the_answer_allows_it(answer: tuple[bytes, bytes, int]) -> None:
    sent, body, _ = answer
    assume(body or _status(sent) != 200)
    expected = _parsed(sent)
    ends_with_connection = expected.length is None and not expected.chunked

    def script(connection: AcceptedConnection, number: int) -> None:
        connection.read_request()
        connection.send(sent)
        while not ends_with_connection:  # The client decides whether to close the connection.
            connection.read_request()
            connection.send(sent)

    with ScriptedServer(script) as server:
        connections = Connections(parse_server_uri(server.uri), None, 10, 1)
        assert [read(connections).body for _ in range(2)] == [body] * 2
        assert server.connections == (2 if expected.will_close else 1)
        connections.close()


@settings(deadline=None, max_examples=60)
@given(answer=answers(), data=st.data())
def test_a_truncated_answer_is_refused(
    answer_once: AnswerOnce,
    connections: Connections,
    answer: tuple[bytes, bytes, int],
    data: st.DataObject,
) -> None:
    """Except within the head, if the status alone is enough: an error, or success without a body.

    The standard library takes a head that ends early for a whole one.
    """
    sent, body, least = answer
    status, head = _status(sent), _head_bytes(sent)
    end = data.draw(st.integers(0, least - 1))
    answer_once.answer, answer_once.cuts, answer_once.hangs_up = sent[:end], [], True
    if end > head or (body and status == 200):
        with pytest.raises(OutcomeUnknown):
            read(connections, repeatable=False)
    else:
        with suppress(OutcomeUnknown):
            reply = read(connections, repeatable=False)
            assert (reply.status, reply.body) == (status, b"")


@settings(deadline=None, max_examples=60)
@given(start=st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n"]), sent=st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(
    answer_once: AnswerOnce, connections: Connections, start: bytes, sent: bytes
) -> None:
    answer_once.answer, answer_once.cuts, answer_once.hangs_up = start + sent, [], True
    with suppress(ServerUnreachable):
        read(connections)


@pytest.mark.parametrize(
    "sent",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"b" * 300_000,
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 300,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1" * 100_000,
    ],
    ids=lambda sent: repr(sent[:60]),
)
def test_malformed_http_is_refused_at_once(
    answer_once: AnswerOnce, connections: Connections, sent: bytes
) -> None:
    answer_once.answer, answer_once.cuts, answer_once.hangs_up = sent, [], False
    with pytest.raises(ServerUnreachable, match=r"does not respond in HTTP|closed the connection"):
        read(connections)


@pytest.mark.parametrize("times", [1, 10_000])
def test_an_unrequested_answer_is_not_taken_for_the_next_one(times: int) -> None:
    more = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nb" * times

    def script(connection: AcceptedConnection, number: int) -> None:
        connection.read_request()
        connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na" + more)
        connection.read_request()

    with ScriptedServer(script) as server:
        connections = Connections(parse_server_uri(server.uri), None, 10, 1)
        assert [read(connections).body for _ in range(3)] == [b"a"] * 3
        assert server.connections == 3
        connections.close()


def test_a_server_may_answer_before_it_has_read_the_request() -> None:
    def script(connection: AcceptedConnection, number: int) -> None:
        connection.answer(b"", "413 Content Too Large", "Connection: close")
        connection.drop_input()

    with ScriptedServer(script) as server:
        connections = Connections(parse_server_uri(server.uri), None, 10, 1)
        headers = {"host": "test"}
        reply = connections.send("POST", "/", headers, b"x" * 10_000_000, repeatable=False)
        assert reply.status == 413
        connections.close()


def _status(sent: bytes) -> int:
    return _parsed(sent).status


def _head_bytes(sent: bytes) -> int:
    """The size of the head, with the response 100 that may precede it."""
    first, *_ = heads = sent.split(b"\r\n\r\n", 2)
    has_early = first.startswith(b"HTTP/1.1 100 ")
    return sum(len(each) + 4 for each in heads[: 2 if has_early else 1])


def _parsed(sent: bytes) -> HTTPResponse:
    """The answer as the standard library reads its head."""
    response = HTTPResponse(cast("socket", _Received(sent)), method="GET")
    response.begin()
    return response


class _Received:
    """The part of a socket that `HTTPResponse` uses."""

    def __init__(self, sent: bytes) -> None:
        self._sent = sent

    def makefile(self, mode: str) -> BytesIO:
        return BytesIO(self._sent)


def _in_chunks(draw: st.DrawFn, body: bytes) -> bytes:
    sent = b""
    while body:
        size = draw(st.integers(1, max(1, len(body))))
        sent += f"{size:x}{draw(_CHUNK_EXTENSIONS)}\r\n".encode() + body[:size] + b"\r\n"
        body = body[size:]
    trailer = b"x-trailer: 1\r\n" if draw(st.booleans()) else b""
    return sent + b"0\r\n" + trailer + b"\r\n"
