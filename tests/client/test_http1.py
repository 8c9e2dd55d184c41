"""Reading answers: the same as the standard library reads, and no harm from bytes that are none."""

from __future__ import annotations

import socket
from contextlib import suppress
from http.client import HTTPResponse
from io import BytesIO
from threading import Thread
from typing import TYPE_CHECKING, Final, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morag.client.http1 import Connection, HungUp, NotHttp

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.client.http1 import Reply

T = TypeVar("T")

_HEADER_NAMES: Final = st.from_regex(r"x-[a-z0-9-]{0,8}", fullmatch=True)
_HEADER_VALUES: Final = st.from_regex(r"[!-~]([ -~]{0,12}[!-~])?", fullmatch=True)
_BODIES: Final = st.binary(max_size=300) | st.builds(
    lambda byte, times: byte * times, st.binary(min_size=1, max_size=1), st.integers(0, 100_000)
)
_CHUNK_EXTENSIONS: Final = st.sampled_from(["", ";", "; a=b", " ;a"])


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, int]:
    """Anything that a server may say: with a length, in chunks, until the end, or no body.

    With it comes how much of it an answer needs at the least, if the connection then ends.
    """
    body = draw(_BODIES)
    extra = draw(st.dictionaries(_HEADER_NAMES, _HEADER_VALUES))
    headers = [f"{name}: {value}" for name, value in extra.items()]
    way = draw(st.sampled_from(["length", "chunks", "end", "none"]))
    status = draw(st.sampled_from([200, 201, 400, 404, 409, 500])) if way != "none" else 204
    if way == "length":
        headers.append(f"Content-Length: {len(body)}")
    elif way == "chunks":
        headers.append("Transfer-Encoding: chunked")
        body = _in_chunks(draw, body)
    elif way == "none":
        body = b""
    if draw(st.booleans()):
        headers.append("Connection: close")
    version = draw(st.sampled_from(["1.0", "1.1"])) if way != "chunks" else "1.1"
    early = "HTTP/1.1 100 Continue\r\n\r\n" if draw(st.booleans()) else ""
    reason = draw(st.sampled_from(["", " ", " OK", " Not Found At All"]))
    head = "\r\n".join([f"HTTP/{version} {status}{reason}", *headers, "", ""])
    said = (early + head).encode()
    return said + body, len(said) + (0 if way == "end" else len(body))


@settings(deadline=None)  # Threads wait for each other on a busy machine.
@given(answers(), st.lists(st.integers(1, 5000), max_size=6))
def test_an_answer_is_what_the_standard_library_reads(
    answer: tuple[bytes, int], cuts: list[int]
) -> None:
    ours, _ = read(answer[0], cuts)
    expected = HTTPResponse(_Said(answer[0]), method="GET")  # type: ignore[arg-type]
    expected.begin()
    assert ours.status == expected.status
    assert ours.body == expected.read()
    assert {name.lower(): value for name, value in expected.headers.items()} == {
        name.decode(): value.decode() for name, value in ours.headers.items()
    }


@settings(deadline=None)
@given(answers())
def test_a_connection_is_kept_when_both_sides_may(answer: tuple[bytes, int]) -> None:
    _, reusable = read(answer[0], [])
    expected = HTTPResponse(_Said(answer[0]), method="GET")  # type: ignore[arg-type]
    expected.begin()
    assert reusable == (not expected.will_close)


@settings(deadline=None)
@given(answers(), st.data())
def test_half_an_answer_is_none(answer: tuple[bytes, int], data: st.DataObject) -> None:
    said, least = answer
    end = data.draw(st.integers(0, least - 1))
    with pytest.raises(HungUp):
        read(said[:end], [])
    read(said[:least], [])


@settings(deadline=None)
@given(st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n"]), st.binary(max_size=400))
def test_any_bytes_are_an_answer_or_refused(start: bytes, said: bytes) -> None:
    with suppress(HungUp, NotHttp):
        read(start + said, [])


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\r\n folded: c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nname : b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"b" * 300_000,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1" * 100_000,
    ],
    ids=lambda said: repr(said[:40]),
)
def test_what_is_not_http_is_refused_at_once(said: bytes) -> None:
    with pytest.raises(NotHttp):
        read(said, [], hang_up=False)


def test_more_than_was_asked_for_spoils_the_connection() -> None:
    def left_over(connection: Connection) -> bool:
        connection.ask(b"")
        return connection.is_idle()

    assert not talk(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nabc", left_over)
    assert talk(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na", left_over)


def test_a_server_may_answer_before_it_has_heard_all() -> None:
    def refused(connection: Connection) -> int:
        return connection.ask(b"x" * 10_000_000).status

    said = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_RDWR)
        assert refused(Connection(ours, 10)) == 413


def read(said: bytes, cuts: list[int], *, hang_up: bool = True) -> tuple[Reply, bool]:
    """The answer, and whether another one could follow on the same connection."""

    def asked(connection: Connection) -> tuple[Reply, bool]:
        reply = connection.ask(b"GET / HTTP/1.1\r\n\r\n")
        return reply, connection.reusable

    return talk(said, asked, cuts, hang_up=hang_up)


def talk(
    said: bytes,
    do: Callable[[Connection], T],
    cuts: list[int] | None = None,
    *,
    hang_up: bool = False,
) -> T:
    """Do something with a connection whose other side says something, in pieces."""
    ours, theirs = socket.socketpair()

    def say() -> None:
        rest = said
        with suppress(BrokenPipeError):  # Who has heard enough does not listen to the end.
            for cut in cuts or []:
                piece, rest = rest[:cut], rest[cut:]
                theirs.sendall(piece)
            theirs.sendall(rest)
            if hang_up:
                theirs.shutdown(socket.SHUT_WR)

    with ours, theirs:
        speaker = Thread(target=say)
        speaker.start()
        try:
            return do(Connection(ours, 10))
        finally:
            ours.close()
            speaker.join()


def _in_chunks(draw: st.DrawFn, body: bytes) -> bytes:
    said = b""
    while body:
        size = draw(st.integers(1, max(1, len(body))))
        said += f"{size:x}{draw(_CHUNK_EXTENSIONS)}\r\n".encode() + body[:size] + b"\r\n"
        body = body[size:]
    trailer = b"x-trailer: 1\r\n" if draw(st.booleans()) else b""
    return said + b"0\r\n" + trailer + b"\r\n"


class _Said:
    """Enough of a socket for the standard library to read from."""

    def __init__(self, said: bytes) -> None:
        self._said = said

    def makefile(self, mode: str) -> BytesIO:
        return BytesIO(self._said)
